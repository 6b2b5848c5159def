//! The form of a path in which rules compare it.

use std::borrow::Cow;

/// Returns the path in the form for matching: percent-encoded bytes are decoded once, consecutive slashes are one
/// slash, and dot segments are removed (RFC 3986 §5.2.4). `..` at the root has no effect.
///
/// It is the most usual reading of a path: nginx and file servers read `/%61dmin/`, `//admin/` and `/x/../admin/` as
/// `/admin/`. Only rules use this form, beside the [other readings](crate::readings::PathReadings). The cache key and the
/// forwarded request keep the path as sent.
///
/// The result begins with a slash. It is borrowed if nothing in the path needs a closer look, which is the usual case.
/// The target `*` is its own form.
pub fn matching_path(path: &str) -> Cow<'_, [u8]> {
    let bytes = path.as_bytes();
    if bytes == b"*" || is_in_form(bytes) {
        return Cow::Borrowed(bytes);
    }
    let mut form = Vec::with_capacity(bytes.len() + 1);
    // The start of each segment in `form`, so that `..` can remove the last segment without a search.
    form.push(b'/');
    let mut segment_start = form.len();
    let mut rest = bytes;
    while let Some((byte, after)) = decode_first(rest) {
        rest = after;
        if byte == b'/' {
            end_segment(&mut form, segment_start);
            if form.last() != Some(&b'/') {
                form.push(b'/');
            }
            segment_start = form.len();
        } else {
            form.push(byte);
        }
    }
    end_segment(&mut form, segment_start);
    Cow::Owned(form)
}

/// Returns true if the path begins with a slash and has neither percent-encoding, nor consecutive slashes, nor a
/// segment that begins with a dot. Such a path is equal to its form.
fn is_in_form(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && !path.contains(&b'%')
        && !path
            .windows(2)
            .any(|pair| pair[0] == b'/' && (pair[1] == b'/' || pair[1] == b'.'))
}

/// Removes the last segment of `form` if it is a dot segment, and for `..` also the segment before it.
fn end_segment(form: &mut Vec<u8>, segment_start: usize) {
    match &form[segment_start..] {
        b"." => form.truncate(segment_start),
        b".." => {
            // Without the slash before the segment, and without the segment before this slash.
            let parent = &form[..segment_start.saturating_sub(1)];
            let parent_start = parent.iter().rposition(|byte| *byte == b'/');
            form.truncate(parent_start.map_or(1, |slash| slash + 1));
        }
        _ => {}
    }
}

/// Returns the first byte of the text, decoded, and the rest. A `%` without two hexadecimal digits stands for itself.
pub(crate) fn decode_first(text: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    match text {
        [] => None,
        [b'%', high, low, rest @ ..] => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Some((high << 4 | low, rest)),
            _ => Some((b'%', &text[1..])),
        },
        [byte, rest @ ..] => Some((*byte, rest)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_that_origins_read_alike_have_one_form() {
        for (path, form) in [
            ("/", "/"),
            ("/a/b.html", "/a/b.html"),
            ("/%61dmin/", "/admin/"),
            ("/%2561dmin/", "/%61dmin/"),
            ("//a///b//", "/a/b/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/./b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/../../a", "/a"),
            ("/..", "/"),
            ("/a%2Fb", "/a/b"),
            ("/a%2F..%2fb", "/b"),
            ("/a//../b", "/b"),
            ("/.well-known/x", "/.well-known/x"),
            ("/...", "/..."),
            ("/100%", "/100%"),
            ("/%zz", "/%zz"),
            ("*", "*"),
        ] {
            assert_eq!(matching_path(path), form.as_bytes(), "{path}");
        }
    }

    /// The same form in three literal passes: decode, split at slashes, remove segments from a list.
    fn literal(path: &str) -> Vec<u8> {
        let mut decoded = Vec::new();
        let mut rest = path.as_bytes();
        while let Some((byte, after)) = decode_first(rest) {
            decoded.push(byte);
            rest = after;
        }
        let mut segments: Vec<&[u8]> = Vec::new();
        let parts: Vec<&[u8]> = decoded.split(|byte| *byte == b'/').collect();
        for part in &parts {
            match *part {
                b"" | b"." => {}
                b".." => drop(segments.pop()),
                segment => segments.push(segment),
            }
        }
        let mut form = vec![b'/'];
        form.extend(segments.join(&b'/'));
        let ends_with_slash = matches!(parts.last(), Some(&b"" | &b"." | &b".."));
        if ends_with_slash && !segments.is_empty() {
            form.push(b'/');
        }
        form
    }

    proptest! {
        #[test]
        fn the_form_agrees_with_three_literal_passes(path in "/(a|/|\\.|%2e|%2F|%61|%|b){0,12}") {
            prop_assert_eq!(matching_path(&path).into_owned(), literal(&path));
        }

        #[test]
        fn a_form_without_encoding_is_its_own_form(path in "/(a|/|\\.|b){0,12}") {
            let form = matching_path(&path).into_owned();
            let text = String::from_utf8(form.clone()).expect("ASCII");
            prop_assert_eq!(matching_path(&text).into_owned(), form);
        }
    }
}
