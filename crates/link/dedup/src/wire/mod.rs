//! The frames of the link protocol. `docs/reference/link-protocol.md` describes each byte.
//!
//! Each frame with bytes of a body has the offset of these bytes in the body. Credit and acknowledgements are
//! offsets too, not increments. Frames can therefore be repeated, sent again after a lost connection, or
//! reordered.
//!
//! [`frame_length`] returns the length of a frame from its header. It refuses payloads longer than
//! [`PAYLOAD_BYTES_MAX`], so that the reader never allocates memory for them. [`decode()`] decodes a complete
//! frame, and [`Frame::encode`] encodes a frame.

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

/// Returns bytes 5 to 7 of a header, which are a checksum of bytes 0 to 4. Without this checksum, a corrupt
/// length could make the reader wait for bytes that are never sent.
pub(crate) fn header_check(length: u32, kind: u8) -> [u8; 3] {
    let mut first = [0; 5];
    first[..4].copy_from_slice(&length.to_le_bytes());
    first[4] = kind;
    let hash = edgeward_types::xxh3::xxh3_64(&first).to_le_bytes();
    [hash[0], hash[1], hash[2]]
}

/// The maximum number of bytes of a body in one frame (a piece), which is also the maximum length of a chunk.
pub const PIECE_BYTES_MAX: usize = 512 << 10;

/// The maximum length of a payload: an incompressible piece, and 16 KiB for the other fields, such as cuts.
pub const PAYLOAD_BYTES_MAX: usize = PIECE_BYTES_MAX + (16 << 10);

/// The maximum number of chunks in a frame, as references or as [`cuts`](Frame::Literal), which are lengths of chunks.
pub const CHUNKS_MAX: usize = 1024;

/// The maximum length of a label. The endpoint that opens a stream states the purpose of the stream in the label.
pub const LABEL_BYTES_MAX: usize = 16 << 10;

/// The maximum number of streams in an ACK or CREDIT frame.
pub(crate) const STREAMS_PER_FRAME: usize = 1024;

// A reference takes 16 bytes. The other fields of its frame take less than 64 bytes.
const _: () =
    assert!(CHUNKS_MAX * 16 + 64 <= PAYLOAD_BYTES_MAX && LABEL_BYTES_MAX < PAYLOAD_BYTES_MAX);

/// The number of a stream. Each endpoint numbers the streams that it sends from 0, and uses no number twice in
/// a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A range of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The stream.
    pub stream: StreamId,
    /// The offset in the body.
    pub offset: u64,
    /// The length before compression, at most [`PIECE_BYTES_MAX`].
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
    /// The payload without the bytes of a body at its end. This is for authenticated connections, because their
    /// transport already detects changed bytes.
    Fields,
}

/// Receives encoded frames. Short parts are copied into a buffer; long payloads are passed without a copy.
pub trait FrameSink {
    /// Returns the buffer to which the next bytes are appended.
    fn head(&mut self) -> &mut Vec<u8>;

    /// Adds a payload after all bytes that were appended before.
    fn payload(&mut self, payload: &Bytes);

    /// Returns the number of bytes that were added so far, including payloads.
    fn bytes(&self) -> usize;

    /// Returns the kind of checksum that the peer expects on this connection.
    fn checksum(&self) -> Checksum {
        Checksum::Whole
    }
}

/// A message of the protocol. Long fields are borrowed from a buffer: the received frame, or the bytes to send.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are explained with their frame")]
pub enum Frame<'a> {
    /// The first frame on each connection, from both endpoints.
    Hello(Hello),
    /// Opens a stream. `label` states its purpose.
    Open { stream: StreamId, label: &'a [u8] },
    /// Bytes that are delivered and not stored. `method` is the compression of `payload`, here and below.
    Plain {
        span: Span,
        method: Method,
        payload: &'a [u8],
    },
    /// Bytes that are delivered, and stored as chunks. `cuts` are the lengths of the chunks that end in this
    /// frame. The first of these chunks may begin in an earlier frame; its length includes the bytes there. The
    /// bytes after the last cut belong to a chunk that ends in a later frame.
    Literal {
        span: Span,
        method: Method,
        cuts: Vec<u32>,
        payload: &'a [u8],
    },
    /// References to chunks that the receiver has. The first `skip` bytes of the first chunk were already sent.
    Ref {
        span: Span,
        skip: u32,
        ids: Vec<ChunkId>,
    },
    /// A reference to consecutive chunks that the receiver has in this order.
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
    /// The sender ends the stream before the end of its body. [`reason`](crate::reason) has the codes, here and below.
    Reset { stream: StreamId, reason: u32 },
    /// The receiver ends the stream before the end of its body.
    Stop { stream: StreamId, reason: u32 },
    /// Acknowledges the delivered bytes of some streams.
    Ack(Vec<StreamAck>),
    /// Refuses the frame whose span starts at `offset`. An offset of `u64::MAX` refuses a CLOSE.
    Nak {
        stream: StreamId,
        offset: u64,
        cause: NakCause,
    },
    /// The epoch of the store of the endpoint that sends this frame. If the epoch has changed, this store has lost its
    /// chunks, and the receiver of the frame forgets which chunks the store had.
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
    /// The length exceeds the limit. The reader has allocated no memory for the payload.
    #[error("a payload of {0} bytes exceeds the maximum")]
    TooLong(u32),
    /// The frame is of a newer version, or the bytes are not a frame.
    #[error("unknown frame type {0}")]
    UnknownType(u8),
    /// The checksum of the first half of the header is wrong.
    #[error("corrupt frame: wrong header checksum")]
    Header,
    /// The checksum of the frame is wrong.
    #[error("corrupt frame: wrong checksum")]
    Checksum,
    /// The payload is shorter or longer than its fields require.
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
        /// The name of the field.
        field: &'static str,
        /// The value.
        value: u64,
    },
}
