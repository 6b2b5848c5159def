//! Don't send what was already sent: what two ends of a link decide, without a socket or a file.
//!
//! [`chunker`] cuts bodies where their content says so, [`id`] names what lies between two cuts. [`wire`] has the frames
//! two ends exchange, byte by byte; [`codec`] decides how hard they are compressed. [`sender`] makes frames of bodies and
//! [`receiver`] bodies of frames, both against a [`store`] that somebody brings, with [`knowledge`] of what the other
//! end has, and in [`buffer`]s that are handed on rather than copied. [`endpoint`] is both for one peer: what a driver holds.
//! [`recognise()`] finds encrypted streams, which dedup does not help.
//!
//! The machines have no clock. Who drives them says when bytes are flushed and when a connection is new; everything else
//! follows from frames.
#![deny(unsafe_code)]

pub mod buffer;
pub mod chunker;
pub mod codec;
mod digest;
pub mod endpoint;
#[cfg(target_arch = "x86_64")]
pub mod ghash;
pub mod id;
pub mod knowledge;
mod lanes;
pub mod mark;
mod noise;
pub mod receiver;
pub mod sender;
mod speech;
pub mod store;
pub mod wire;

pub use speech::{Speech, recognise};

use thiserror::Error;

use buffer::Pool;
use id::IdKey;
use knowledge::Knowledge;
use wire::StreamId;

/// What the machines work with and do not own: stores and codecs serve many peers.
#[derive(Debug)]
pub struct Tools<'a, S, C> {
    /// Where chunks are kept.
    pub store: &'a mut S,
    /// Compresses and decompresses.
    pub codec: &'a mut C,
    /// What was exchanged with this peer.
    pub knowledge: &'a mut Knowledge,
    /// Names chunks.
    pub ids: &'a IdKey,
    /// Memory for bodies.
    pub pool: &'a Pool,
}

/// Why a stream was given up, as RESET and STOP say it. Other numbers are the drivers' own.
pub mod reason {
    /// Whoever used it gave it up.
    pub const GIVEN_UP: u32 = 0;
    /// The body is not as it was sent. Send it again, without `dedup`.
    pub const DIGEST: u32 = 1;
    /// More streams than are taken at the same time.
    pub const TOO_MANY: u32 = 2;
    /// More or less of the body came than CLOSE says.
    pub const LENGTH: u32 = 3;
    /// The other end began anew and knows of no stream.
    pub const RESTARTED: u32 = 4;
    /// Neither end has what was named any more.
    pub const LOST: u32 = 5;
}

/// What became of a frame that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a frame that is to come again has to be kept until it does"]
pub enum Handled {
    /// All there was to do.
    Done,
    /// Nothing: the store [owes](store::ChunkStore::has_pending_reads) an answer. The frame is to be handed in again once that has been seen to; others may go
    /// before it, as if it had taken longer on its way.
    Again,
}

impl From<()> for Handled {
    fn from((): ()) -> Self {
        Self::Done
    }
}

/// What no honest peer does. Whoever sees it closes the connection and counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A body went beyond its credit.
    #[error("stream {}: sent up to byte {end}, the credit ends at {limit}", .stream.0)]
    Credit {
        /// Whose.
        stream: StreamId,
        /// Up to where it went.
        end: u64,
        /// Up to where it might have gone.
        limit: u64,
    },
    /// Pieces that overlap, so that together they take more memory than the credit they were given.
    #[error("stream {}: pieces overlap", .0.0)]
    Overlap(StreamId),
    /// Cuts that do not fit the bytes that came.
    #[error("stream {}: a chunk ends where it cannot", .0.0)]
    Cut(StreamId),
    /// A payload that its method did not make.
    #[error("stream {}: a payload cannot be decompressed", .0.0)]
    Payload(StreamId),
    /// Numbers of streams with more gaps than streams may be open.
    #[error("stream {}: numbers before it were left out", .0.0)]
    Numbering(StreamId),
    /// More was acknowledged than was sent.
    #[error("stream {}: what was not sent was acknowledged", .0.0)]
    Acknowledged(StreamId),
    /// Frames that are refused come faster than the refusals are read.
    #[error("{0} refusals wait to be sent")]
    Flood(usize),
    /// A frame that has no place here.
    #[error("a frame that was not awaited")]
    Direction,
}
