//! Sliced responses: the entry under the key of the target has the head of a large representation, and each slice is an
//! object of its own with status 206. `path/fetch/lead/slice.rs` stores both; this file has their keys and their state.
//!
//! The key of a slice contains the generation of the entry. An entry that was purged, invalidated or replaced by
//! another version takes all its slices along: a new entry has another generation, so no lookup finds the older slices.

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use edgeward_semantics::ContentRange;
use edgeward_semantics::slices::Slicing;
use edgeward_store::hot::ChargeGuard;
use edgeward_store::versions::Version;
use http::header::CONTENT_RANGE;

/// The slices of one stored version of a representation.
#[derive(Debug)]
pub(crate) struct Slices {
    pub(crate) slicing: Slicing,
    /// A part of each slice's key, unique across processes.
    pub(crate) generation: u64,
    /// True if the entry was written to disk or read from disk.
    pub(crate) on_disk: AtomicBool,
    /// For an entry that was read from disk: the version of its key at which it was current.
    pub(crate) version: Option<Version>,
    /// The cache's charge for the entry.
    pub(crate) charge: OnceLock<ChargeGuard>,
}

impl Slices {
    /// Returns the slices of an entry that is not on disk.
    pub(crate) fn new(slicing: Slicing, generation: u64) -> Self {
        Self {
            slicing,
            generation,
            on_disk: AtomicBool::new(false),
            version: None,
            charge: OnceLock::new(),
        }
    }
}

/// Appends what distinguishes the key of a slice from the key of its entry. The generation follows a newline, as in the
/// key of a variant. Generations of Vary markers and of sliced entries are distinct, and so are the keys.
pub(super) fn write_slice_key(generation: u64, index: u64, key: &mut Vec<u8>) {
    key.push(b'\n');
    key.extend_from_slice(&generation.to_le_bytes());
    key.push(b'\n');
    key.extend_from_slice(&index.to_be_bytes());
}

/// Returns the key of the entry to which a slice belongs.
pub(super) fn entry_of_slice(slice_key: &[u8]) -> Option<&[u8]> {
    slice_key
        .len()
        .checked_sub(SUFFIX_BYTES)
        .map(|end| &slice_key[..end])
}

/// Returns the part that a slice has, from the lines of its head.
pub(crate) fn part_of_slice(head: &[u8]) -> Option<ContentRange> {
    let name = CONTENT_RANGE.as_str().as_bytes();
    head.split(|&byte| byte == b'\n').find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(b": ")?;
        ContentRange::parse(value.strip_suffix(b"\r")?)
    })
}

/// The bytes that [`write_slice_key`] appends.
const SUFFIX_BYTES: usize = 1 + 8 + 1 + 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_slice_begins_with_the_key_of_its_entry() {
        let mut keys = Vec::new();
        for (generation, index) in [(1, 0), (1, 1), (1, 256), (2, 0), (u64::MAX, u64::MAX)] {
            let mut key = b"http://host/path".to_vec();
            write_slice_key(generation, index, &mut key);
            assert_eq!(entry_of_slice(&key), Some(&b"http://host/path"[..]));
            assert!(!keys.contains(&key));
            keys.push(key);
        }
        assert_eq!(entry_of_slice(b"short"), None);
    }

    #[test]
    fn the_part_of_a_slice_is_in_its_head() {
        let part = part_of_slice(b"content-range: bytes 5-9/20\r\ncontent-length: 5\r\n");
        assert_eq!(part, ContentRange::parse(b"bytes 5-9/20"));
        assert!(part.is_some());
        assert_eq!(part_of_slice(b"content-length: 5\r\n"), None);
    }
}
