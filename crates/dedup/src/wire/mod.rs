//! The frames of the protocol, byte by byte in `docs/reference/link-protocol.md`.
//!
//! Each frame with bytes of a body states their offset; credit and acknowledgements are offsets too, not
//! increments. Frames can therefore be repeated, sent again after a lost connection, or reordered.
//!
//! [`frame_length`] returns how many bytes to read, from the header alone, and refuses payloads longer than
//! [`PAYLOAD_BYTES_MAX`] before any is stored. [`decode()`] decodes a whole frame and [`Frame::encode`] encodes
//! one.

mod decode;
mod encode;
mod hello;

use bytes::Bytes;
use thiserror::Error;

use crate::codec::Method;
use crate::id::ChunkId;

pub use decode::{decode, decode_with, frame_length};
pub use hello::{AgreedTerms, Disagreement, Hello, Role, VERSION, VERSION_MIN};

/// The length of the header before each payload.
pub const HEADER_BYTES: usize = 16;

/// Returns bytes 5 to 7 of a header, a checksum of the bytes before them. Without it a corrupt length would make
/// the reader wait for bytes that are never sent.
pub(crate) fn header_check(length: u32, kind: u8) -> [u8; 3] {
    let mut first = [0; 5];
    first[..4].copy_from_slice(&length.to_le_bytes());
    first[4] = kind;
    let hash = edgeward_types::xxh3::xxh3_64(&first).to_le_bytes();
    [hash[0], hash[1], hash[2]]
}

/// The maximum number of bytes of a body in one frame, which is also the maximum length of a chunk.
pub const PIECE_BYTES_MAX: usize = 512 << 10;

/// The maximum length of a payload: an incompressible piece with its cuts.
pub const PAYLOAD_BYTES_MAX: usize = PIECE_BYTES_MAX + (16 << 10);

/// The maximum number of references or cuts in a frame.
pub const CHUNKS_MAX: usize = 1024;

/// The maximum length of a label, by which the opener of a stream states its purpose.
pub const LABEL_BYTES_MAX: usize = 16 << 10;

/// The maximum number of streams in an ACK or CREDIT frame.
pub const STREAMS_PER_FRAME: usize = 1024;

const _: () =
    assert!(CHUNKS_MAX * 16 + 64 <= PAYLOAD_BYTES_MAX && LABEL_BYTES_MAX < PAYLOAD_BYTES_MAX);

/// A stream of one sender. Each endpoint numbers its streams from zero and uses no number twice in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// A range of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The stream.
    pub stream: StreamId,
    /// The offset in the body.
    pub offset: u64,
    /// The length, at most [`PIECE_BYTES_MAX`].
    pub length: u32,
}

impl Span {
    /// Returns the offset at which the range ends.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// Consecutive chunks in the receiver's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The hash of the first chunk.
    pub first: ChunkId,
    /// The number of chunks, 1 to [`CHUNKS_MAX`].
    pub chunks: u16,
    /// The [`sequence_check`](crate::id::sequence_check) of all hashes.
    pub check: u64,
}

/// Which part of a frame its checksum covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// The whole payload.
    #[default]
    Whole,
    /// The payload without the bytes of a body at its end, for authenticated connections, which detect changed
    /// bytes themselves.
    Fields,
}

/// Receives frames: copies short parts, and takes long payloads by reference.
pub trait FrameSink {
    /// Returns the buffer to which the next bytes are appended.
    fn head(&mut self) -> &mut Vec<u8>;

    /// Adds a payload after all bytes of the head.
    fn payload(&mut self, payload: &Bytes);

    /// Returns the number of bytes so far.
    fn bytes(&self) -> usize;

    /// Returns the kind of checksum that the peer expects on this connection.
    fn checksum(&self) -> Checksum {
        Checksum::Whole
    }
}

/// A message of the protocol. Long fields are borrowed from the buffer they were read into or will be sent from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are explained with their frame")]
pub enum Frame<'a> {
    /// The first frame on each connection, from both endpoints.
    Hello(Hello),
    /// Opens a stream. `label` states its purpose.
    Open { stream: StreamId, label: &'a [u8] },
    /// Bytes that are delivered and not stored.
    Plain {
        span: Span,
        method: Method,
        payload: &'a [u8],
    },
    /// Bytes that are delivered, and stored as chunks. `cuts` are the lengths of the chunks that end here. The
    /// first counts from the end of the stream's last chunk, which may lie in an earlier frame. The bytes after the
    /// last cut belong to a chunk that a later frame ends.
    Literal {
        span: Span,
        method: Method,
        cuts: Vec<u32>,
        payload: &'a [u8],
    },
    /// Chunks the receiver has. The first `skip` bytes of the first chunk were already sent.
    Ref {
        span: Span,
        skip: u32,
        ids: Vec<ChunkId>,
    },
    /// Consecutive chunks that the receiver has in this order.
    RefRun { span: Span, run: Run },
    /// Like `Literal`, compressed with the chunks of `base` as dictionary.
    Delta {
        span: Span,
        method: Method,
        base: Vec<ChunkId>,
        cuts: Vec<u32>,
        payload: &'a [u8],
    },
    /// Ends a body with its length and digest.
    Close {
        stream: StreamId,
        length: u64,
        digest: u128,
    },
    /// The sender ends the stream before the end of its body.
    Reset { stream: StreamId, reason: u32 },
    /// The receiver ends the stream before the end of its body.
    Stop { stream: StreamId, reason: u32 },
    /// How far bodies were delivered.
    Ack(Vec<StreamAck>),
    /// Refuses the frame whose span starts at `offset`.
    Nak {
        stream: StreamId,
        offset: u64,
        cause: NakCause,
    },
    /// The store of the sending endpoint is new or empty: the peer must forget which chunks it had.
    Epoch(u64),
    /// The offset up to which each body may be sent.
    Credit(Vec<(StreamId, u64)>),
}

/// The progress of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamAck {
    /// The stream.
    pub stream: StreamId,
    /// The state of the stream.
    pub state: StreamState,
    /// The number of bytes that were delivered, and stored if they are chunks.
    pub offset: u64,
}

/// The state of a stream at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// More bytes are expected.
    Open,
    /// The whole body was received, and its digest is correct.
    Complete,
    /// One of the endpoints ended the stream early.
    Ended,
}

/// Why a frame is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCause {
    /// A chunk is missing or corrupt: send the bytes.
    Missing,
    /// The chunks after the first one of a run differ: send one reference for each chunk.
    Order,
    /// The stream is unknown: send OPEN, then the frame again.
    Unopened,
}

/// Why bytes are not a valid frame. The reader closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The length exceeds the limit; refused before any allocation.
    #[error("a payload of {0} bytes exceeds the maximum")]
    TooLong(u32),
    /// A frame of a newer version, or no frame at all.
    #[error("unknown frame type {0}")]
    UnknownType(u8),
    /// A flipped bit in the first half of the header.
    #[error("corrupt frame: wrong header checksum")]
    Header,
    /// A flipped bit in the frame.
    #[error("corrupt frame: wrong checksum")]
    Checksum,
    /// The payload is shorter or longer than its fields.
    #[error("invalid length of {bytes} bytes for a frame of type {kind}")]
    Length {
        /// The type of the frame.
        kind: u8,
        /// The length of the payload.
        bytes: usize,
    },
    /// A field has an invalid value.
    #[error("invalid {field} in a frame of type {kind}: {value}")]
    Field {
        /// The type of the frame.
        kind: u8,
        /// The field.
        field: &'static str,
        /// The value.
        value: u64,
    },
}
