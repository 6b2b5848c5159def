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

/// Returns true if a list, such as the value of `Cache-Control`, has one of these members.
pub(super) fn head_has(list: &str, names: &[&str]) -> bool {
    list.split(',').any(|member| {
        let name = member.split('=').next().unwrap_or_default().trim();
        names.iter().any(|other| name.eq_ignore_ascii_case(other))
    })
}

pub(super) fn states_lifetime(cache_control: &str) -> bool {
    head_has(cache_control, &["max-age", "s-maxage", "must-revalidate"])
}
