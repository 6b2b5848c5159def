//! The tags of a response: the members of the fields in [`TAG_FIELDS`] and of `Cache-Groups`.

use std::borrow::Cow;

/// The bytes that separate the tags of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separators {
    /// Commas. A tag may contain spaces.
    Commas,
    /// Spaces, tabs and commas.
    Any,
}

/// The response fields whose members are tags, with the products that send them. Names are in lower case.
pub(crate) const TAG_FIELDS: [(&str, Separators); 10] = [
    ("surrogate-key", Separators::Any),       // Fastly
    ("xkey", Separators::Any),                // Varnish
    ("cache-tag", Separators::Commas),        // Cloudflare
    ("edge-cache-tag", Separators::Any),      // Akamai
    ("cache-tags", Separators::Any),          // Drupal
    ("purge-cache-tags", Separators::Any),    // Drupal
    ("x-drupal-cache-tags", Separators::Any), // Drupal
    ("x-magento-tags", Separators::Any),      // Magento
    ("x-cache-tags", Separators::Any),        // FOSHttpCache
    ("x-tag", Separators::Any),               // FOSHttpCache, older installations
];

/// Calls `visit` with each tag of a header field. Fields other than `TAG_FIELDS` and `Cache-Groups` have no tags.
///
/// `Cache-Groups` is a list of strings (RFC 9875 §2). A malformed list is ignored as a whole (RFC 9651 §4.2).
pub fn visit_tags(name: &[u8], value: &[u8], visit: impl FnMut(&[u8])) {
    let Some((_, separators)) = TAG_FIELDS.iter().find(|(field, _)| is_name(name, field)) else {
        return visit_groups(name, value, visit);
    };
    let is_separator = |byte: &u8| match separators {
        Separators::Commas => *byte == b',',
        Separators::Any => matches!(byte, b' ' | b'\t' | b','),
    };
    let members = value.split(is_separator).map(<[u8]>::trim_ascii);
    members.filter(|tag| !tag.is_empty()).for_each(visit);
}

/// Calls `visit` with each cache group of a header field. Fields other than `Cache-Groups` have none.
pub(crate) fn visit_groups(name: &[u8], value: &[u8], mut visit: impl FnMut(&[u8])) {
    if is_name(name, "cache-groups") {
        for group in groups(value).unwrap_or_default() {
            visit(&group);
        }
    }
}

/// Calls `visit` with each tag of a head. Its lines are `name: value\r\n`; lines without a colon are skipped.
pub fn visit_head_tags(head: &[u8], mut visit: impl FnMut(&[u8])) {
    for (name, value) in head_fields(head) {
        visit_tags(name, value, &mut visit);
    }
}

/// Returns the fields of a head. Its lines are `name: value\r\n`; lines without a colon are skipped.
pub(crate) fn head_fields(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    head.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

fn is_name(name: &[u8], expected: &str) -> bool {
    name.eq_ignore_ascii_case(expected.as_bytes())
}

/// Parses a list of strings (RFC 9651 §4.2.1). Parameters are skipped. Returns `None` for a malformed list.
pub(crate) fn groups(value: &[u8]) -> Option<Vec<Cow<'_, [u8]>>> {
    let mut groups = Vec::new();
    let mut rest = value.trim_ascii();
    while !rest.is_empty() {
        let (group, after) = string(rest)?;
        groups.push(group);
        rest = skip_parameters(after)?.trim_ascii_start();
        if rest.is_empty() {
            break;
        }
        // A comma separates members, so a list must not end with one.
        rest = rest.strip_prefix(b",")?.trim_ascii_start();
        if rest.is_empty() {
            return None;
        }
    }
    Some(groups)
}

/// Returns the unescaped string at the start of `bytes` and the bytes after it (RFC 9651 §4.2.5).
fn string(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let body = bytes.strip_prefix(b"\"")?;
    let mut unescaped = Vec::new();
    let mut at = 0;
    loop {
        match *body.get(at)? {
            b'"' => break,
            b'\\' => {
                let escaped = *body.get(at + 1)?;
                if !matches!(escaped, b'"' | b'\\') {
                    return None;
                }
                unescaped.push(escaped);
                at += 2;
            }
            byte @ 0x20..=0x7e => {
                unescaped.push(byte);
                at += 1;
            }
            _ => return None,
        }
    }
    let group = match unescaped.len() == at {
        true => Cow::Borrowed(&body[..at]),
        false => Cow::Owned(unescaped),
    };
    Some((group, &body[at + 1..]))
}

/// Skips parameters such as `;name=value`. A value that is a string may contain commas and semicolons.
fn skip_parameters(mut bytes: &[u8]) -> Option<&[u8]> {
    while let Some(rest) = bytes.strip_prefix(b";") {
        let end = rest
            .iter()
            .position(|byte| matches!(byte, b';' | b',' | b'"'));
        bytes = &rest[end.unwrap_or(rest.len())..];
        if bytes.first() == Some(&b'"') {
            (_, bytes) = string(bytes)?;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(head: &str) -> Vec<String> {
        let mut tags = Vec::new();
        visit_head_tags(head.as_bytes(), |tag| {
            tags.push(String::from_utf8_lossy(tag).into_owned());
        });
        tags
    }

    #[test]
    fn each_field_has_its_own_separators() {
        let table: [(&str, &[&str]); 14] = [
            ("Surrogate-Key: a b  c\r\n", &["a", "b", "c"]),
            ("xkey: a,b c\r\nxkey: d\r\n", &["a", "b", "c", "d"]),
            ("cache-tag: a b, c ,,d\r\n", &["a b", "c", "d"]),
            ("cache-groups: \"a b\", \"c\\\"d\"\r\n", &["a b", "c\"d"]),
            ("cache-groups: \"a\";x=\"1,2\";y , \"b\"\r\n", &["a", "b"]),
            ("cache-groups: \"a\", b\r\n", &[]),
            ("cache-groups: \"a\",\r\n", &[]),
            ("cache-groups: \"a\r\n", &[]),
            ("cache-groups: \r\n", &[]),
            (
                "X-Magento-Tags: a,b\r\nX-Cache-Tags: c d\r\n",
                &["a", "b", "c", "d"],
            ),
            (
                "cache-tags: a b\r\nx-drupal-cache-tags: c d\r\n",
                &["a", "b", "c", "d"],
            ),
            ("x-tag: a,b\r\nEdge-Cache-Tag: c\r\n", &["a", "b", "c"]),
            ("cache-control: max-age=60\r\nx-tags: a\r\n", &[]),
            ("", &[]),
        ];
        for (head, expected) in table {
            assert_eq!(tags(head), expected, "{head:?}");
        }
    }
}
