//! The bytes of keys, which [`key`](super::key) describes.

use std::num::NonZeroU64;

use edgeward_semantics::NoVarySearch;
use edgeward_semantics::content_coding::Coding;
use edgeward_semantics::dictionary::DictionaryHash;

/// Returns the primary key of a primary or secondary key. A secondary key has a line feed after the primary key.
pub(crate) fn primary_of(key: &[u8]) -> &[u8] {
    &key[..memchr::memchr(b'\n', key).unwrap_or(key.len())]
}

/// Splits the key of a variant before its secondary key: the lines with the values of the request's fields. `None` for
/// a primary key.
pub(crate) fn split_variant_key(key: &[u8]) -> Option<(&[u8], &[u8])> {
    // `Variants::write_key` appends a newline, the generation, a newline and the fields.
    let fields_at = primary_of(key).len() + 1 + size_of::<u64>() + 1;
    (fields_at <= key.len()).then(|| key.split_at(fields_at))
}

/// Returns the key of the marker that holds the rule of a target's path. `target` is the target's own key.
pub(crate) fn path_key(target: &[u8]) -> Vec<u8> {
    let path_end = memchr::memchr2(b'?', b'#', target).unwrap_or(target.len());
    [&target[..path_end], b"#"].concat()
}

/// Returns the URL of a primary key. For a key made by a rule, this is the target with the canonical query.
pub(crate) fn url_of(primary: &[u8]) -> &[u8] {
    &primary[..memchr::memchr(b'#', primary).unwrap_or(primary.len())]
}

/// Appends the class of a request to a target's own key: `#:` and a text without `#` and line feeds.
pub(crate) fn push_class(class: &[u8], target: &mut Vec<u8>) {
    if !class.is_empty() {
        target.extend_from_slice(CLASS_START);
        target.extend_from_slice(class);
    }
}

/// Returns a primary key without the part that the rule of its path has appended: URL and class.
pub(crate) fn without_rule(primary: &[u8]) -> &[u8] {
    let url_end = url_of(primary).len();
    if !primary[url_end..].starts_with(CLASS_START) {
        return &primary[..url_end];
    }
    let class = url_end + CLASS_START.len();
    let class_end = memchr::memchr(b'#', &primary[class..]).map_or(primary.len(), |at| class + at);
    &primary[..class_end]
}

/// Returns the key under which a response with this rule is stored for a target. `target` is the target's own key.
pub(crate) fn key_under_rule(target: &[u8], rule: &NoVarySearch, generation: u64) -> Vec<u8> {
    let (url, class) = target.split_at(url_of(target).len());
    let path_end = memchr::memchr(b'?', url).unwrap_or(url.len());
    let query = url.get(path_end + 1..).unwrap_or_default();
    let mut key = url[..path_end].to_vec();
    rule.write_query(query, &mut key);
    key.extend_from_slice(class);
    key.push(b'#');
    key.extend_from_slice(format!("{generation:016x}").as_bytes());
    key
}

/// Appends what distinguishes the key of an encoding from the key of its response.
pub(crate) fn write_encoding_key(generation: NonZeroU64, coding: Coding, key: &mut Vec<u8>) {
    key.push(b'\n');
    key.extend_from_slice(&generation.get().to_le_bytes());
    key.push(b'\n');
    key.extend_from_slice(coding.name().as_bytes());
}

/// Appends what distinguishes the key of a delta from the key of its response: the coding and the dictionary.
pub(crate) fn write_delta_key(
    generation: NonZeroU64,
    coding: Coding,
    dictionary: &DictionaryHash,
    key: &mut Vec<u8>,
) {
    write_encoding_key(generation, coding, key);
    key.push(b':');
    for byte in dictionary {
        // A raw byte could be a line feed.
        key.extend([byte >> 4, byte & 15].map(|digit| b'a' + digit));
    }
}

/// Returns the coding of the object with this key, or `None` for other objects than encodings. Slices may look like
/// encodings, so the caller checks that the object has not the status 206.
///
/// The key of a variant ends with a newline, and the key of a target has none.
pub(crate) fn coding_of_key(key: &[u8]) -> Option<Coding> {
    let at = memchr::memrchr(b'\n', key)?;
    let last = &key[at + 1..];
    let name_end = memchr::memchr(b':', last).unwrap_or(last.len());
    let coding = Coding::from_name(&last[..name_end])?;
    (key.get(at.checked_sub(1 + 8)?) == Some(&b'\n')).then_some(coding)
}

/// The bytes between the URL and the class of a key. The part of a rule has no colon.
const CLASS_START: &[u8] = b"#:";

#[cfg(test)]
mod tests {
    use http::header::{HeaderMap, HeaderValue};

    use super::*;

    #[test]
    fn a_class_stays_in_the_key_under_a_rule_and_is_no_part_of_the_url() {
        let mut fields = HeaderMap::new();
        let value = HeaderValue::from_static("params=(\"u\")");
        fields.insert("no-vary-search", value);
        let rule = NoVarySearch::from_headers(&fields).expect("a rule");
        for (class, own) in [
            (&b""[..], &b"http://h/a?x=1&u=2"[..]),
            (b"mobile;", b"http://h/a?x=1&u=2#:mobile;"),
        ] {
            let mut target = b"http://h/a?x=1&u=2".to_vec();
            push_class(class, &mut target);
            assert_eq!(target, own);
            assert_eq!(url_of(own), b"http://h/a?x=1&u=2");
            assert_eq!(without_rule(own), own);
            assert_eq!(path_key(own), b"http://h/a#");
            let under_rule = key_under_rule(own, &rule, 7);
            assert_eq!(url_of(&under_rule), b"http://h/a?x=1");
            assert!(under_rule.ends_with(b"#0000000000000007"));
            let without = without_rule(&under_rule);
            assert_eq!(without.len() + 17, under_rule.len());
            assert!(without.ends_with(&own[own.len() - class.len()..]));
        }
        assert_eq!(without_rule(b"http://h/a#"), b"http://h/a");
    }
}
