//! Paths with [delimiters](edgeward_semantics::encode_delimiters) in header blocks.
//!
//! h2 gets slashes of the same length in place of such a path, so that its dynamic table keeps the size of the peer's.
//! The encoded path follows in a field whose name no client knows. [`take_path`] moves it into the request.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;
use edgeward_semantics::{encode_delimiters, has_delimiters};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Uri};

use crate::exchange::h2_frames::representations::{push_integer, push_text};

/// The paths with delimiters in a dynamic table.
#[derive(Debug)]
pub(super) struct Paths {
    /// The number of fields that were added to the table.
    added: u64,
    /// The paths and the numbers of their fields, the oldest first.
    texts: VecDeque<(u64, Box<str>)>,
    bytes: usize,
}

impl Paths {
    pub(super) const fn new() -> Self {
        Self {
            added: 0,
            texts: VecDeque::new(),
            bytes: 0,
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the path of the field that was added before `nth` others.
    pub(super) fn get(&self, nth: usize) -> Option<&str> {
        let number = self.added.checked_sub(nth as u64 + 1)?;
        let place = self
            .texts
            .binary_search_by_key(&number, |(number, _)| *number);
        Some(&self.texts[place.ok()?].1)
    }

    /// Records a field that was added to the table.
    pub(super) fn push(&mut self, path: Option<&str>) {
        if let Some(path) = path {
            self.bytes += path.len();
            self.texts.push_back((self.added, path.into()));
        }
        self.added += 1;
    }

    /// Removes the paths of all but the newest `fields` of the table.
    pub(super) fn keep(&mut self, fields: usize) {
        while let Some((number, path)) = self.texts.front()
            && number + (fields as u64) < self.added
        {
            self.bytes -= path.len();
            self.texts.pop_front();
        }
    }
}

/// A path with delimiters in a block.
#[derive(Debug)]
pub(super) struct DelimitedPath {
    pub(super) text: Box<str>,
    /// Where its string is in the block, unless the block refers to the dynamic table.
    pub(super) place: Option<Range<usize>>,
}

impl DelimitedPath {
    /// Returns the block that h2 gets.
    pub(super) fn replace_in(&self, block: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(block.len() + 3 * self.text.len() + 64);
        match &self.place {
            Some(place) => {
                out.extend_from_slice(&block[..place.start]);
                push_text(&mut out, b'/', self.text.len());
                out.extend_from_slice(&block[place.end..]);
            }
            None => out.extend_from_slice(block),
        }
        out.push(NEVER_INDEXED_LITERAL);
        for text in [PATH_FIELD.as_str(), &encode_delimiters(&self.text)] {
            push_integer(&mut out, 0, 7, text.len());
            out.extend_from_slice(text.as_bytes());
        }
        out
    }
}

/// Returns the text of a path if it is valid except for delimiters.
pub(super) fn delimited(path: &[u8]) -> Option<&str> {
    let text = has_delimiters(path).then(|| str::from_utf8(path).ok())??;
    let is_valid = PathAndQuery::try_from(&*encode_delimiters(text)).is_ok();
    (is_valid && !text.contains('#')).then_some(text)
}

/// Sets the path of a request over HTTP/2 whose block had a path with delimiters.
pub(crate) fn take_path(uri: &mut Uri, headers: &mut HeaderMap) {
    if !uri.path().starts_with("//") {
        return;
    }
    if let Some(path) = headers.remove(&*PATH_FIELD)
        && let Ok(path) = PathAndQuery::from_maybe_shared(Bytes::from_owner(path))
    {
        let mut parts = std::mem::take(uri).into_parts();
        parts.path_and_query = Some(path);
        *uri = Uri::from_parts(parts).expect("only the path has changed");
    }
}

/// The name of the field with the encoded path. It is random, so that no client can send the field itself.
static PATH_FIELD: LazyLock<HeaderName> = LazyLock::new(|| {
    let random = RandomState::new().hash_one("path");
    HeaderName::try_from(format!("edgeward-path-{random:016x}")).expect("a name of a field")
});

/// The first byte of a literal field with a literal name that no table gets (RFC 7541 §6.2.3).
const NEVER_INDEXED_LITERAL: u8 = 0x10;
