//! The deduplication of the link: the state machines of both endpoints, without sockets and files.
//!
//! [`chunker`] cuts bodies into chunks at positions that depend on the content, and [`id`] computes chunk hashes.
//! [`wire`] defines the frames between the endpoints, byte by byte. [`codec`] selects the compression method of
//! payloads. [`sender`] turns bodies into frames and [`receiver`] turns frames into bodies. Both queue requests to a
//! [`store`] of the caller, record in [`knowledge`] which chunks the peer has, and pass bodies on in [`buffer`]s
//! instead of copying them. [`endpoint`] combines the sender and the receiver for one peer. The driver is the program
//! that connects endpoints to sockets; it has one endpoint for each peer. [`detect_protocol()`] detects encrypted
//! streams, which cannot be deduplicated.
//!
//! Two modules save processor time: [`fingerprint`] recognises chunks without their hashes, and `noise` detects chunks
//! that cannot be compressed.
//!
//! The state machines have no clock and do no input or output. The driver decides when bytes are flushed and reports
//! new connections. All other changes of state follow from received frames and from calls of the streams' users.
#![deny(unsafe_code)]

pub mod buffer;
pub mod chunker;
pub mod codec;
pub mod endpoint;
pub mod fingerprint;
pub mod id;
pub mod knowledge;
mod noise;
mod protocol;
pub mod receiver;
pub mod sender;
pub mod store;
pub mod wire;

pub use protocol::{StreamProtocol, detect_protocol};

use thiserror::Error;

use buffer::Pool;
use id::IdKey;
use knowledge::Knowledge;
use wire::StreamId;

/// The resources that the sender and the receiver borrow for a call.
#[derive(Debug)]
pub struct Resources<'a> {
    /// The chunks exchanged with this peer.
    pub knowledge: &'a mut Knowledge,
    /// Computes chunk hashes.
    pub id_key: &'a IdKey,
    /// Provides memory for bodies.
    pub pool: &'a Pool,
}

/// The reasons in RESET and STOP frames: why an endpoint ended a stream. The user of this crate defines further
/// numbers.
pub mod reason {
    /// The program that used the stream ended it.
    pub const CANCELLED: u32 = 0;
    /// The received body differs from the sent one. The sender should send it again without deduplication.
    pub const DIGEST: u32 = 1;
    /// The stream exceeds the highest number of open streams that the peer accepts.
    pub const TOO_MANY: u32 = 2;
    /// The received body is longer or shorter than CLOSE says.
    pub const LENGTH: u32 = 3;
    /// The peer restarted, so it has no state of any stream.
    pub const RESTARTED: u32 = 4;
    /// Both endpoints have lost a chunk that was sent as a reference.
    pub const LOST: u32 = 5;
}

/// Bytes or frames that no correct peer sends. The driver closes the connection and counts the violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A body exceeds its credit.
    #[error("stream {}: received bytes up to offset {end}, but the credit ends at {limit}", .stream.0)]
    Credit {
        /// The stream.
        stream: StreamId,
        /// The offset at which the frame's bytes end.
        end: u64,
        /// The offset up to which the stream has credit.
        limit: u64,
    },
    /// Pieces of a body (the bytes of one frame each) overlap. A sender divides a body into pieces only once.
    #[error("stream {}: overlapping pieces", .0.0)]
    Overlap(StreamId),
    /// A frame ends a chunk at an offset outside the received bytes, or a chunk is too long.
    #[error("stream {}: invalid chunk boundary", .0.0)]
    Cut(StreamId),
    /// A payload that cannot be decompressed by the method that the frame names.
    #[error("stream {}: invalid compressed payload", .0.0)]
    Payload(StreamId),
    /// The peer skipped too many stream numbers. A number between two ended streams belongs to a stream that is open,
    /// or whose OPEN frame has not arrived yet. The number of such streams is limited.
    #[error("stream {}: too many skipped stream numbers", .0.0)]
    Numbering(StreamId),
    /// An acknowledgement of bytes that were not sent.
    #[error("stream {}: acknowledgement of bytes that were not sent", .0.0)]
    Acknowledged(StreamId),
    /// The pieces of a body that wait for earlier bytes take too much memory, because they are too short.
    #[error("stream {}: too many short pieces wait for earlier bytes", .0.0)]
    Pieces(StreamId),
    /// Acknowledgements, NAKs (requests for missing chunks) and STOPs are queued faster than the peer reads them. The
    /// value is their number.
    #[error("too many unread answers: {0}")]
    Flood(usize),
    /// A frame that is not valid in this direction or in this state of the connection.
    #[error("unexpected frame")]
    Direction,
}
