//! Values of response fields that matter to a cache.

/// Returns true for media types that compression makes smaller.
pub(super) fn is_text(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let media_type = media_type.to_ascii_lowercase();
    let is_stream = media_type == "text/event-stream";
    let names = [
        "application/javascript",
        "application/json",
        "application/xml",
        "image/svg+xml",
    ];
    (media_type.starts_with("text/") && !is_stream) || names.contains(&media_type.as_str())
}

/// Returns true if a list, such as the value of `Cache-Control`, has one of these members, or may have it because the
/// value may be the beginning of a longer one.
pub(super) fn head_has(list: &[u8], names: &[&str]) -> bool {
    list.len() >= FIELD_BYTES_MAX
        || list.split(|byte| *byte == b',').any(|member| {
            let name = member.split(|byte| *byte == b'=').next();
            let name = name.unwrap_or_default().trim_ascii();
            let mut names = names.iter();
            names.any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
        })
}

pub(super) fn states_lifetime(cache_control: &[u8]) -> bool {
    head_has(cache_control, &["max-age", "s-maxage", "must-revalidate"])
}

/// The length in bytes from which a value may be cut, because a sample has only the beginning of a long value.
pub const FIELD_BYTES_MAX: usize = 256;
