//! What two ends say to each other: frames, byte by byte in `docs/reference/link-protocol.md`.
//!
//! Bodies travel as numbered ranges: each frame that carries some of a body says where they stand in
//! it, credit and acknowledgements are positions, not increments. Frames can therefore be
//! repeated, lost with a connection and sent again, or overtake each other without harm.
//!
//! [`frame_length`] tells from a header how much to read, and refuses what is longer than [`PAYLOAD_BYTES_MAX`]
//! before a byte of it is stored; [`decode()`] opens a whole frame, [`Frame::encode`] makes one.

mod decode;
mod encode;
mod hello;

use bytes::Bytes;
use thiserror::Error;

use crate::codec::Method;
use crate::id::ChunkId;

pub use decode::{decode, decode_with, frame_length};
pub use hello::{Agreed, Disagreement, Hello, Role, VERSION, VERSION_MIN};

/// The bytes before each payload.
pub const HEADER_BYTES: usize = 16;

/// Bytes 5 to 7 of a header, of those before: a length that came wrong must not make anybody wait for bytes
/// that nobody sends.
pub(crate) fn header_check(length: u32, kind: u8) -> [u8; 3] {
    let mut first = [0; 5];
    first[..4].copy_from_slice(&length.to_le_bytes());
    first[4] = kind;
    let hash = edgeward_types::xxh3::xxh3_64(&first).to_le_bytes();
    [hash[0], hash[1], hash[2]]
}

/// No frame carries more of a body: the longest chunk there is.
pub const PIECE_BYTES_MAX: usize = 512 << 10;

/// No payload is longer: a piece that does not compress, with its cuts.
pub const PAYLOAD_BYTES_MAX: usize = PIECE_BYTES_MAX + (16 << 10);

/// No frame names or cuts more chunks.
pub const CHUNKS_MAX: usize = 1024;

/// What an opened stream is for, in the words of who opened it.
pub const LABEL_BYTES_MAX: usize = 16 << 10;

/// No frame acknowledges, or gives credit to, more streams.
pub const STREAMS_PER_FRAME: usize = 1024;

const _: () =
    assert!(CHUNKS_MAX * 16 + 64 <= PAYLOAD_BYTES_MAX && LABEL_BYTES_MAX < PAYLOAD_BYTES_MAX);

/// A stream of one sender. Each end counts its own from zero; no number is used twice in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Where some of a body belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whose body.
    pub stream: StreamId,
    /// Bytes of the body before it.
    pub offset: u64,
    /// Its own bytes, at most [`PIECE_BYTES_MAX`].
    pub length: u32,
}

impl Span {
    /// Bytes of the body up to its end.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// Chunks that lie one after the other in the receiver's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The name of the first.
    pub first: ChunkId,
    /// How many, 1 to [`CHUNKS_MAX`].
    pub chunks: u16,
    /// [`row_check`](crate::id::row_check) of all their names.
    pub check: u64,
}

/// What of a frame its checksum is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// All of the payload.
    #[default]
    Whole,
    /// All but the bytes of a body that it ends with: the line itself lets nothing through that was changed on
    /// the way.
    Fields,
}

/// Where frames go: what is short is copied, bytes of bodies are handed over where they lie.
pub trait FrameSink {
    /// What comes next is appended here.
    fn head(&mut self) -> &mut Vec<u8>;

    /// After all that is in the head.
    fn payload(&mut self, payload: &Bytes);

    /// All that came so far.
    fn bytes(&self) -> usize;

    /// What the other end of the line expects checksums to be made of.
    fn checksum(&self) -> Checksum {
        Checksum::Whole
    }
}

/// Something one end tells the other. What is long is borrowed from where it was read, or is to be written from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are explained with their frame")]
pub enum Frame<'a> {
    /// The first on each connection, from both ends.
    Hello(Hello),
    /// A stream begins. `label` says what for.
    Open { stream: StreamId, label: &'a [u8] },
    /// Bytes that are delivered and not kept.
    Plain {
        span: Span,
        method: Method,
        payload: &'a [u8],
    },
    /// Bytes that are delivered, and kept as chunks. `cuts` are lengths: the first from the end of the stream's
    /// last chunk, which may lie in an earlier frame. What follows the last cut belongs to a chunk that later
    /// frames end.
    Literal {
        span: Span,
        method: Method,
        cuts: Vec<u32>,
        payload: &'a [u8],
    },
    /// Chunks the receiver has. Of the first, `skip` bytes were already sent.
    Ref {
        span: Span,
        skip: u32,
        ids: Vec<ChunkId>,
    },
    /// Chunks the receiver has in this order.
    RefRun { span: Span, run: Run },
    /// As `Literal`, compressed with the chunks of `base` as its past.
    Delta {
        span: Span,
        method: Method,
        base: Vec<ChunkId>,
        cuts: Vec<u32>,
        payload: &'a [u8],
    },
    /// The body has `length` bytes and this digest.
    Close {
        stream: StreamId,
        length: u64,
        digest: u128,
    },
    /// The sender gives the body up.
    Reset { stream: StreamId, reason: u32 },
    /// The receiver gives the body up.
    Stop { stream: StreamId, reason: u32 },
    /// How far bodies were delivered.
    Ack(Vec<Acked>),
    /// The frame whose span begins here could not be used.
    Nak {
        stream: StreamId,
        offset: u64,
        cause: NakCause,
    },
    /// The sender of this has a new store, or an emptied one: forget what it had.
    Epoch(u64),
    /// Up to where each body may be sent.
    Credit(Vec<(StreamId, u64)>),
}

/// How far a body got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// Which body.
    pub stream: StreamId,
    /// What became of it.
    pub state: StreamState,
    /// Bytes delivered, and kept where they were to be.
    pub offset: u64,
}

/// What became of a body, at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// More is awaited.
    Open,
    /// It is whole, and as it was sent.
    Complete,
    /// It was given up, by one end or the other.
    Ended,
}

/// Why a frame could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakCause {
    /// A chunk is not there, or not as it was: send the bytes.
    Missing,
    /// The first chunk of a run is there, followed by others: name them one by one.
    Order,
    /// No such stream: open it, and send again.
    Unopened,
}

/// Why bytes are no frame. Whoever reads them closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// The length is refused before anything is allocated.
    #[error("a payload of {0} bytes, which is more than any frame has")]
    TooLong(u32),
    /// From a newer version, or no frame at all.
    #[error("frames of type {0} are not known")]
    UnknownType(u8),
    /// A bit of the header's first half turned on the way.
    #[error("the check of a frame's header disagrees with it")]
    Header,
    /// A bit turned on the way.
    #[error("the checksum disagrees with the frame")]
    Checksum,
    /// The payload is shorter than its fields, or longer.
    #[error("a payload of {bytes} bytes does not fit a frame of type {kind}")]
    Length {
        /// The frame's type.
        kind: u8,
        /// What there is of it.
        bytes: usize,
    },
    /// A field has a value it cannot have.
    #[error("a frame of type {kind} has no such {field}: {value}")]
    Field {
        /// The frame's type.
        kind: u8,
        /// Which field.
        field: &'static str,
        /// What it says.
        value: u64,
    },
}
