//! A response as it lies in the cache: no byte more than it needs.
//!
//! The head is one block of finished HTTP/1.1 lines, not a map: a map of ten fields takes over a
//! kilobyte, as much as a small body, and pins the buffer the response was read into. A hit over
//! HTTP/1.1 can copy the block as it is; where a map is needed it is parsed back, which costs
//! half a microsecond and no allocation per field.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use edgeward_semantics::{StoredPolicy, VaryFields};
use edgeward_store::disk::DiskObject;
use edgeward_store::hot::{Hold, HotCache};
use edgeward_store::versions::Version;
use edgeward_types::allocated_bytes;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};

/// The cache in memory, of this crate's values.
pub(crate) type Hot = HotCache<Stored>;

/// A body moves to the arena when copying it has cost about what the move does, so that neither a body that is asked for
/// once nor one that is asked for always costs more than twice the least. At 1 MiB the move costs as much as four hits
/// save, at 128 KiB as twelve.
const COPIES_BEFORE_MOVE: u8 = 8;

/// What lies under a key.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The full key: two may share a hash, and the other's response must never be served.
    key: Box<[u8]>,
    pub(crate) kind: StoredKind,
    /// How often its body was copied into a socket, if that body is large.
    copies: AtomicU8,
}

#[derive(Debug)]
pub(crate) enum StoredKind {
    /// A complete response.
    Response(StoredResponse),
    /// The URI's responses differ by these request fields and lie under secondary keys.
    Varies(Box<Variants>),
}

/// How the responses of one URI are told apart.
#[derive(Debug)]
pub(crate) struct Variants {
    pub(crate) fields: VaryFields,
    /// Part of every secondary key. An invalidation removes this marker, the next one has another
    /// generation, and so no variant from before can come back. Never the same twice, whichever process drew it.
    pub(crate) generation: u64,
    /// Whether this very marker was given to the disk or came from it.
    pub(crate) on_disk: AtomicBool,
    /// The version of the URL's key at which the disk had this marker, if it was read there.
    pub(crate) seen: Option<Version>,
    /// The cache's charge for this marker.
    pub(crate) hold: OnceLock<Hold>,
}

/// Status, head and body, with the freshness as integers.
#[derive(Clone, Debug)]
pub(crate) struct StoredResponse {
    pub(crate) policy: StoredPolicy,
    pub(crate) status: StatusCode,
    /// `name: value\r\n` for each field, `Content-Length` included, without the status line and
    /// the empty line.
    pub(crate) head: Bytes,
    pub(crate) body: StoredBody,
}

/// Where a body lies. In the hot cache all bodies are in memory.
#[derive(Clone, Debug)]
pub(crate) enum StoredBody {
    Memory(Bytes),
    Disk(DiskObject),
}

impl StoredBody {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(object) => object.length(),
        }
    }
}

impl Stored {
    pub(crate) fn new(key: &[u8], kind: StoredKind) -> Arc<Self> {
        Arc::new(Self {
            key: key.into(),
            kind,
            copies: AtomicU8::new(0),
        })
    }

    /// Another value for the same key.
    pub(crate) fn renewed(&self, kind: StoredKind) -> Arc<Self> {
        Self::new(&self.key, kind)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        *self.key == *key
    }

    /// The response, of a value that a lookup returned.
    pub(crate) fn response(&self) -> &StoredResponse {
        match &self.kind {
            StoredKind::Response(response) => response,
            StoredKind::Varies(_) => unreachable!("lookups return responses only"),
        }
    }

    /// Counts one more hit that had to copy a large body. True for the one hit that should move it to the arena.
    pub(crate) fn is_worth_moving(&self) -> bool {
        self.copies.fetch_add(1, Relaxed) + 1 == COPIES_BEFORE_MOVE
    }

    /// Charges a marker for as long as it is in memory. A body brings its own charge.
    pub(crate) fn keep_hold(&self, hold: Option<Hold>) {
        if let (StoredKind::Varies(variants), Some(hold)) = (&self.kind, hold) {
            // One that was charged before is charged once.
            _ = variants.hold.set(hold);
        }
    }

    /// Whether its body has to be read from disk.
    pub(crate) fn is_on_disk(&self) -> bool {
        matches!(&self.kind, StoredKind::Response(response) if matches!(response.body, StoredBody::Disk(_)))
    }

    /// What the hot cache charges for it.
    pub(crate) fn charge_bytes(&self) -> u64 {
        match &self.kind {
            StoredKind::Response(response) => {
                charge_bytes(self.key.len(), response.head.len(), response.body.len())
            }
            StoredKind::Varies(variants) => variants.charge_bytes(self.key.len()),
        }
    }
}

impl Variants {
    pub(crate) fn charge_bytes(&self, key_bytes: usize) -> u64 {
        let names = size_of::<Self>() + size_of_val(self.fields.names());
        charge_bytes(key_bytes, names, 0)
    }

    /// Appends what turns the primary key into this request's secondary one.
    ///
    /// A URI holds no newline, so no primary key can look like a secondary one.
    pub(crate) fn write_key(&self, request: &HeaderMap, key: &mut Vec<u8>) {
        key.push(b'\n');
        key.extend_from_slice(&self.generation.to_le_bytes());
        key.push(b'\n');
        self.fields.write_key(request, key);
    }
}

/// A variant's key without the generation; `None` if the key is not that of a variant.
pub(crate) fn stable_key(key: &[u8]) -> Option<Vec<u8>> {
    let primary_len = memchr::memchr(b'\n', key)?;
    let (primary, secondary) = key.split_at(primary_len);
    // A newline, the generation, a newline, the fields: see `Variants::write_key`.
    let fields = secondary.get(1 + size_of::<u64>()..)?;
    Some([primary, fields].concat())
}

impl StoredResponse {
    /// Writes the head down. `head` is the stored head, without `Content-Length` if the origin
    /// sent none; here the length is known.
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
        }
    }

    /// The head as a map whose values share this block.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(16);
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', &self.head) {
            let line = &self.head[start..end - 1];
            let colon = memchr::memchr(b':', line).expect("every line was written with a colon");
            let name = HeaderName::from_bytes(&line[..colon]).expect("written from a name");
            let value = self.head.slice(start + colon + 2..end - 1);
            let value = HeaderValue::from_maybe_shared(value).expect("written from a value");
            headers.append(name, value);
            start = end + 1;
        }
        headers
    }
}

/// Bytes the hot cache charges for a response of these parts.
pub(crate) fn charge_bytes(key_bytes: usize, head_bytes: usize, body_bytes: u64) -> u64 {
    let overhead = Hot::OBJECT_OVERHEAD_BYTES
        + SHARED_BYTES
        + allocated_bytes(key_bytes as u64)
        + allocated_bytes(head_bytes as u64);
    edgeward_types::charge_bytes(body_bytes, overhead)
}

/// How long a head block will be, before it is written.
pub(crate) fn head_block_bytes(status: StatusCode, head: &HeaderMap, body_bytes: u64) -> usize {
    let fields: usize = head
        .iter()
        .filter(|(name, _)| *name != CONTENT_LENGTH)
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    let length = if has_length(status) {
        CONTENT_LENGTH.as_str().len() + 4 + itoa::Buffer::new().format(body_bytes).len()
    } else {
        0
    };
    fields + length
}

fn head_block(status: StatusCode, head: &HeaderMap, body_bytes: u64) -> Bytes {
    let mut block = Vec::with_capacity(head_block_bytes(status, head, body_bytes));
    let mut line = |name: &HeaderName, value: &[u8]| {
        block.extend_from_slice(name.as_str().as_bytes());
        block.extend_from_slice(b": ");
        block.extend_from_slice(value);
        block.extend_from_slice(b"\r\n");
    };
    for (name, value) in head {
        if *name != CONTENT_LENGTH {
            line(name, value.as_bytes());
        }
    }
    if has_length(status) {
        let mut digits = itoa::Buffer::new();
        line(&CONTENT_LENGTH, digits.format(body_bytes).as_bytes());
    }
    Bytes::from(block)
}

/// RFC 9110 §8.6: never with 1xx and 204.
pub(crate) fn has_length(status: StatusCode) -> bool {
    !status.is_informational() && status != StatusCode::NO_CONTENT
}

/// Head and body are reference-counted, each in an allocation of its own: a pointer, a length and a count for the head once a
/// first hit has cloned it (32); for the body also its charge (48).
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
        let exchange = Exchange {
            request_time: now,
            response_time: now,
        };
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
    fn a_head_written_down_reads_back() {
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
