//! Stored responses in the compact form of the memory tier.
//!
//! The head is one block of HTTP/1.1 lines and not a map: a map of ten fields takes more than a kilobyte, as much as
//! a small body, and pins the buffer into which the response was read. A hit over HTTP/1.1 copies the block. Other
//! uses parse the block into a map, which costs half a microsecond and no allocation per field.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use edgeward_purge::Stamp;
use edgeward_semantics::{NoVarySearch, StoredPolicy, VaryFields};
use edgeward_store::disk::DiskObject;
use edgeward_store::hot::{ChargeGuard, HotCache};
use edgeward_store::versions::Version;
use edgeward_types::{KeyHash, allocated_bytes};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

use super::key_parts::{primary_of, without_rule};
use super::slices::Slices;
use crate::config::watch::RequestedObject;
use crate::exchange::field_bytes::push_field;

/// The memory tier.
pub(crate) type Hot = HotCache<Stored>;

/// A body moves to the arena (memory that the kernel sends without a copy) after this many copies into sockets. A move
/// costs as much as 4 later hits save for a body of 1 MiB, and 12 hits for 128 KiB. A number between the two makes the
/// total cost at most about twice the lowest possible cost, for any number of hits (the ski-rental problem).
const COPIES_BEFORE_MOVE: u8 = 8;

/// The value of a key in the cache.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The full key. Two keys may have the same hash, so lookups compare the key before they serve the response.
    key: Box<[u8]>,
    pub(crate) kind: StoredKind,
    /// The newest purge that does not cover the response. For a marker, that of the newest response that this process
    /// has stored through it, or `NONE`.
    stamp: AtomicU64,
    /// The number of times that a large body was copied into a socket.
    copies: AtomicU8,
    /// For a response in a coding that the edge has applied: the response without the coding.
    plain: Option<Weak<Self>>,
}

#[derive(Debug)]
pub(crate) enum StoredKind {
    /// A complete response, or the entry of a sliced response.
    Response(StoredResponse),
    /// A marker: the responses are stored under other keys, which depend on more of the request.
    Varies(Box<Variants>),
}

/// The contents of a marker.
#[derive(Debug)]
pub(crate) struct Variants {
    pub(crate) selector: Selector,
    /// A part of the key of each response that lookups find through this marker, unique across processes. An
    /// invalidation removes the marker, and the next marker has another generation, so that no lookup finds an older
    /// response.
    pub(crate) generation: u64,
    /// The number of responses that were stored for new keys through this marker. It begins at 0 when the marker is
    /// read from disk.
    pub(crate) count: AtomicU32,
    /// True if this marker was written to disk or read from disk.
    pub(crate) on_disk: AtomicBool,
    /// For a marker that was read from disk: the version of its key at which the marker was current.
    pub(crate) version: Option<Version>,
    /// The cache's charge for this marker.
    pub(crate) charge: OnceLock<ChargeGuard>,
}

/// The part of a request that selects a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    /// The responses of one target vary by these request fields, and are stored under secondary keys.
    Fields(VaryFields),
    /// The responses of one path depend on a part of the query only, and are stored under keys made by this rule.
    Query(NoVarySearch),
}

/// Status, head, body and freshness of a response.
#[derive(Clone, Debug)]
pub(crate) struct StoredResponse {
    pub(crate) policy: StoredPolicy,
    pub(crate) status: StatusCode,
    /// `name: value\r\n` for each field including `Content-Length`, without the status line and the empty line.
    pub(crate) head: Bytes,
    pub(crate) body: StoredBody,
    /// For a response that the edge may encode: a part of the keys of its [encodings](super::encodings), unique across
    /// processes.
    pub(crate) generation: Option<NonZeroU64>,
    /// The plan for the time when memory evicts the response.
    pub(crate) disk_plan: DiskPlan,
}

/// The decision if the disk gets a response when memory evicts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskPlan {
    /// The admission decides.
    Decide,
    /// The disk has admitted the response, but its queue was full. The disk gets the response even without a hit.
    Queued,
    /// A rule keeps the response off the disk.
    Never,
    /// The response is a copy: another node of the fleet owns the object, and the disk never gets it. `is_kept_off` is
    /// true if a rule keeps the response off the disk of its owner, too.
    Copy { is_kept_off: bool },
}

/// The place of a body. The memory tier stores no bodies that are on disk.
#[derive(Clone, Debug)]
pub(crate) enum StoredBody {
    Memory(Bytes),
    Disk(DiskObject),
    /// Each slice is an object of its own.
    Slices(Arc<Slices>),
}

impl StoredBody {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(object) => object.length(),
            Self::Slices(slices) => slices.slicing.complete_length,
        }
    }

    /// Returns the bytes of the body that are stored in the same object as the head.
    pub(crate) fn own_bytes(&self) -> u64 {
        match self {
            Self::Memory(_) | Self::Disk(_) => self.len(),
            Self::Slices(_) => 0,
        }
    }
}

impl Stored {
    /// Returns a value with the newest purge before its request was sent to the origin.
    pub(crate) fn new(key: &[u8], kind: StoredKind, stamp: Stamp) -> Arc<Self> {
        Arc::new(Self {
            key: key.into(),
            kind,
            stamp: AtomicU64::new(stamp.0),
            copies: AtomicU8::new(0),
            plain: None,
        })
    }

    /// Returns a new value with the same key and stamp, whose head is that of this value.
    pub(crate) fn renewed(&self, kind: StoredKind) -> Arc<Self> {
        Arc::new(Self {
            key: self.key.clone(),
            kind,
            stamp: AtomicU64::new(self.stamp().0),
            copies: AtomicU8::new(0),
            plain: self.plain.clone(),
        })
    }

    /// Returns the response of `plain` in a coding. `key` is the key of the encoded response.
    pub(super) fn encoded(key: &[u8], response: StoredResponse, plain: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self {
            key: key.into(),
            kind: StoredKind::Response(response),
            stamp: AtomicU64::new(plain.stamp().0),
            copies: AtomicU8::new(0),
            plain: Some(Arc::downgrade(plain)),
        })
    }

    /// Returns true if this value was made from exactly this response, so that its head and its policy are up to date.
    pub(super) fn is_encoded_from(&self, plain: &Arc<Self>) -> bool {
        let source = self.plain.as_ref().map(Weak::as_ptr);
        source == Some(Arc::as_ptr(plain))
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp(self.stamp.load(Relaxed))
    }

    /// Records that no purge up to this stamp covers the response, so that later hits need not check these purges.
    pub(crate) fn set_stamp(&self, stamp: Stamp) {
        self.stamp.store(stamp.0, Relaxed);
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn has_key(&self, key: &[u8]) -> bool {
        *self.key == *key
    }

    /// Returns the response. A value that a lookup returned is never a marker.
    pub(crate) fn response(&self) -> &StoredResponse {
        match &self.kind {
            StoredKind::Response(response) => response,
            StoredKind::Varies(_) => unreachable!("lookups return responses only"),
        }
    }

    /// Returns the rule and the generation of a marker of a path.
    pub(crate) fn rule(&self) -> Option<(&NoVarySearch, u64)> {
        match &self.kind {
            StoredKind::Varies(variants) => match &variants.selector {
                Selector::Query(rule) => Some((rule, variants.generation)),
                Selector::Fields(_) => None,
            },
            _ => None,
        }
    }

    /// Counts a hit that copied a large body into a socket. Returns true if the body should move to the arena now.
    pub(crate) fn count_copy(&self) -> bool {
        self.copies.fetch_add(1, Relaxed) + 1 == COPIES_BEFORE_MOVE
    }

    /// Gives a marker or the entry of a sliced response its charge, to be released with it. Other responses need no
    /// call: their bodies own the charge.
    pub(crate) fn attach_charge(&self, charge: Option<ChargeGuard>) {
        let Some(charge) = charge else { return };
        // A value that has a charge keeps it.
        _ = match &self.kind {
            StoredKind::Varies(variants) => variants.charge.set(charge),
            StoredKind::Response(_) => match self.slices() {
                Some(slices) => slices.charge.set(charge),
                None => return,
            },
        };
    }

    /// Returns the slices if the body of the response is in slices.
    pub(crate) fn slices(&self) -> Option<&Arc<Slices>> {
        match &self.kind {
            StoredKind::Response(response) => match &response.body {
                StoredBody::Slices(slices) => Some(slices),
                StoredBody::Memory(_) | StoredBody::Disk(_) => None,
            },
            StoredKind::Varies(_) => None,
        }
    }

    /// Returns the object of the response for the watcher. A response in slices has none, because each slice is an
    /// object.
    pub(crate) fn seen_object(&self, key: KeyHash) -> Option<RequestedObject> {
        let response = self.response();
        if self.slices().is_some() {
            return None;
        }
        let length = Some(response.body.len());
        Some(RequestedObject::new(
            key,
            self.charge_bytes(),
            length,
            &response.policy,
        ))
    }

    /// Returns true if the response is a copy of an object that another node of the fleet owns.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(&self.kind, StoredKind::Response(response) if matches!(response.disk_plan, DiskPlan::Copy { .. }))
    }

    /// Returns true if the body has to be read from disk.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(&self.kind, StoredKind::Response(response) if matches!(response.body, StoredBody::Disk(_)))
    }

    /// Returns the bytes that the memory tier charges for the value.
    pub(crate) fn charge_bytes(&self) -> u64 {
        match &self.kind {
            StoredKind::Response(response) => {
                let body_bytes = response.body.own_bytes();
                charge_bytes(self.key.len(), response.head.len(), body_bytes)
            }
            StoredKind::Varies(variants) => variants.charge_bytes(self.key.len()),
        }
    }
}

impl Variants {
    /// Returns the contents of a marker that is not on disk.
    pub(crate) fn new(selector: Selector, generation: u64) -> Self {
        Self {
            selector,
            generation,
            count: AtomicU32::new(0),
            on_disk: AtomicBool::new(false),
            version: None,
            charge: OnceLock::new(),
        }
    }

    pub(crate) fn charge_bytes(&self, key_bytes: usize) -> u64 {
        let selector_bytes = match &self.selector {
            Selector::Fields(fields) => size_of_val(fields.names()),
            Selector::Query(rule) => rule.heap_bytes(),
        };
        charge_bytes(key_bytes, size_of::<Self>() + selector_bytes, 0)
    }

    /// Turns a primary key into a secondary key: appends the generation and the values of the request's fields.
    /// A URI contains no newline, so a primary key never equals a secondary key.
    pub(crate) fn write_key(&self, fields: &VaryFields, request: &HeaderMap, key: &mut Vec<u8>) {
        key.push(b'\n');
        key.extend_from_slice(&self.generation.to_le_bytes());
        key.push(b'\n');
        fields.write_key(request, key);
    }
}

/// Returns a key without the generations of the markers through which lookups find it, or `None` for the own key of a
/// target.
pub(crate) fn stable_key(key: &[u8]) -> Option<Vec<u8>> {
    let (primary, secondary) = key.split_at(primary_of(key).len());
    let own = without_rule(primary);
    if secondary.is_empty() {
        return (own.len() < primary.len()).then(|| own.to_vec());
    }
    // `Variants::write_key` appends a newline, the generation, a newline and the fields.
    let fields = secondary.get(1 + size_of::<u64>()..)?;
    Some([own, fields].concat())
}

impl StoredResponse {
    /// Returns a response whose header block has the fields of `head` and the `Content-Length` of `body`.
    pub(crate) fn new(
        status: StatusCode,
        head: &HeaderMap,
        policy: StoredPolicy,
        body: StoredBody,
    ) -> Self {
        Self {
            policy,
            status,
            head: head_block(status, head, body.len()),
            body,
            generation: None,
            disk_plan: DiskPlan::Decide,
        }
    }

    /// Returns the head as a map. The values of the map share the bytes of `head`.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(16);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &self.head) {
            let line = &self.head[start..end - 1];
            let colon = memchr::memchr(b':', line).expect("each line contains a colon");
            let name = HeaderName::from_bytes(&line[..colon]).expect("the name is valid");
            let value = self.head.slice(start + colon + 2..end - 1);
            let value = HeaderValue::from_maybe_shared(value).expect("the value is valid");
            headers.append(name, value);
            start = end + 1;
        }
        headers
    }
}

/// Returns the bytes that the memory tier charges for a response whose key, head and body have these lengths.
pub(crate) fn charge_bytes(key_bytes: usize, head_bytes: usize, body_bytes: u64) -> u64 {
    let overhead = Hot::OBJECT_OVERHEAD_BYTES
        + SHARED_BYTES
        + allocated_bytes(key_bytes as u64)
        + allocated_bytes(head_bytes as u64);
    edgeward_types::charge_bytes(body_bytes, overhead)
}

/// Returns the length of the header block that would be written for `head`.
pub(crate) fn head_block_bytes(status: StatusCode, head: &HeaderMap, body_bytes: u64) -> usize {
    fields_bytes(head) + length_bytes(status, body_bytes)
}

fn head_block(status: StatusCode, head: &HeaderMap, body_bytes: u64) -> Bytes {
    let mut block = Vec::with_capacity(head_block_bytes(status, head, body_bytes));
    push_fields(head, &mut block);
    push_length(status, body_bytes, &mut block);
    Bytes::from(block)
}

/// Appends the lines of all fields but `Content-Length`.
pub(crate) fn push_fields(head: &HeaderMap, block: &mut Vec<u8>) {
    for (name, value) in head {
        if *name != CONTENT_LENGTH {
            push_field(block, name, value.as_bytes());
        }
    }
}

/// Returns the bytes that [`push_fields`] appends.
pub(crate) fn fields_bytes(head: &HeaderMap) -> usize {
    head.iter()
        .filter(|(name, _)| *name != CONTENT_LENGTH)
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum()
}

/// Appends the line of `Content-Length`, if the status allows this field.
pub(crate) fn push_length(status: StatusCode, body_bytes: u64, block: &mut Vec<u8>) {
    if has_length(status) {
        let mut digits = itoa::Buffer::new();
        push_field(block, CONTENT_LENGTH, digits.format(body_bytes).as_bytes());
    }
}

/// Returns the bytes that [`push_length`] appends.
pub(crate) fn length_bytes(status: StatusCode, body_bytes: u64) -> usize {
    if !has_length(status) {
        return 0;
    }
    CONTENT_LENGTH.as_str().len() + 4 + itoa::Buffer::new().format(body_bytes).len()
}

/// Returns true if a response with this status has a `Content-Length`: 1xx and 204 have none (RFC 9110 §8.6).
pub(crate) fn has_length(status: StatusCode) -> bool {
    !status.is_informational() && status != StatusCode::NO_CONTENT
}

/// The memory of two allocations with reference counts: 32 bytes for the head (pointer, length, count), and 48 bytes
/// for the body, because its allocation also holds the body's charge.
const SHARED_BYTES: u64 = allocated_bytes(32) + allocated_bytes(48);

#[cfg(test)]
mod tests {
    use edgeward_semantics::{Exchange, Rules, Verdict, on_response};
    use edgeward_types::Timestamp;
    use http::Method;

    use super::*;

    fn stored(fields: &[(&str, &str)], body: &'static [u8]) -> StoredResponse {
        let mut head = HeaderMap::new();
        for (name, value) in fields {
            head.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                value.parse().expect("a value"),
            );
        }
        let now = Timestamp::from_secs(1_000_000_000);
        let exchange = Exchange::at(now);
        let verdict = on_response(
            &Rules::default(),
            &Method::GET,
            &HeaderMap::new(),
            StatusCode::OK,
            &head,
            exchange,
        );
        let Verdict::Store(storable) = verdict else {
            panic!("{verdict:?}");
        };
        StoredResponse::new(
            StatusCode::OK,
            &storable.head,
            storable.policy,
            StoredBody::Memory(Bytes::from_static(body)),
        )
    }

    #[test]
    fn a_head_block_parses_to_the_fields_it_was_written_from() {
        let response = stored(
            &[
                ("cache-control", "max-age=60"),
                ("x-empty", ""),
                ("x-two", "one"),
                ("x-two", "t\u{e4}o: with colon"),
                ("date", "Sun, 09 Sep 2001 01:46:40 GMT"),
            ],
            b"hello",
        );
        let headers = response.headers();
        assert_eq!(headers["content-length"], "5");
        assert_eq!(headers["x-empty"], "");
        let two: Vec<_> = headers
            .get_all("x-two")
            .iter()
            .map(HeaderValue::as_bytes)
            .collect();
        assert_eq!(two, [&b"one"[..], "t\u{e4}o: with colon".as_bytes()]);
        assert_eq!(headers.len(), 6);
    }

    #[test]
    fn the_length_of_a_head_is_known_before_it_is_written() {
        let response = stored(
            &[("cache-control", "max-age=60"), ("etag", "\"a\"")],
            b"0123456789",
        );
        let headers = response.headers();
        let bytes = head_block_bytes(StatusCode::OK, &headers, 10);
        assert_eq!(bytes, response.head.len());
    }
}
