//! Reads objects: the head with one read, the body by ranges. Every byte is verified before it is returned.
//!
//! Heads and bodies are read by two kinds of calls. A `…_now` call never waits: it returns the bytes if they are in
//! the page cache, otherwise [`WouldBlock`](super::NonBlockingRead::WouldBlock). The caller then makes the blocking call
//! on a thread that may wait.
//!
//! [`DiskObject::piece_now`] does not read bytes that are in the page cache and were verified recently. It returns
//! them as a [`Span`], which the kernel sends to a socket.
//!
//! A location from the index may be outdated, and a segment may be overwritten while it is read. The reader
//! therefore checks all data that it reads: the checksum of the metadata, the full key, the epoch, and the
//! checksum of every block of the body.

mod body;
mod object;
mod open;
mod ranges;
pub(super) mod record;
mod record_read;
mod span;
mod waiting;

pub use object::DiskObject;
pub use ranges::Piece;
pub use span::{SendError, Span};
