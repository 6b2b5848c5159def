//! The bytes of keys, which [`key`](super::key) describes.

use edgeward_semantics::NoVarySearch;

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

/// Returns the key under which a response with this rule is stored for a target. `target` is the target's own key.
pub(crate) fn key_under_rule(target: &[u8], rule: &NoVarySearch, generation: u64) -> Vec<u8> {
    let path_end = memchr::memchr(b'?', target).unwrap_or(target.len());
    let query = target.get(path_end + 1..).unwrap_or_default();
    let mut key = target[..path_end].to_vec();
    rule.write_query(query, &mut key);
    key.push(b'#');
    key.extend_from_slice(format!("{generation:016x}").as_bytes());
    key
}
