//! Reads objects: the head with one read, the body by ranges. Every byte is verified before it is returned.
//!
//! Heads and bodies are read by two kinds of calls. A `…_now` call never waits: it returns the bytes if they are in
//! the page cache, otherwise [`NonBlockingRead::WouldBlock`]. The caller then makes the blocking call on a thread that
//! may wait.
//!
//! [`DiskObject::piece_now`] does not read bytes that are in the page cache and were verified recently. It returns
//! them as a [`Span`], which the kernel sends to a socket.
//!
//! A location from the index may be outdated, and a segment may be overwritten while it is read. The reader
//! therefore checks all data that it reads: the checksum of the metadata, the full key, the epoch, and the
//! checksum of every block of the body.

mod body;
mod open;
mod record;
mod span;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_types::KeyHash;

use super::error::{Miss, NonBlockingRead};
use super::format::Extent;
use super::location::Location;
use super::segment::Pin;
use super::unwritten;
use super::volume::Volume;
use crate::sync::Mutex;
use body::{Body, InnerPiece};

pub(super) use record::Record;
pub use span::{SendError, Span};

/// An object that can be read. Cheap to clone. While a clone exists, the segments of the object are pinned. A pinned
/// segment is overwritten only if all free segments are pinned.
#[derive(Clone, Debug)]
pub struct DiskObject {
    inner: Arc<Inner>,
}

/// The parts of an object that all clones of its [`DiskObject`] share.
#[derive(Debug)]
struct Inner {
    volume: Arc<Volume>,
    hash: KeyHash,
    location: Location,
    head: Bytes,
    /// The length of the body in bytes.
    length: u64,
    layout: Layout,
    /// The pin of the segment with the object's only record or its commit record, which lists the pieces.
    _pin: Pin,
    /// The pins of further segments that contain pieces of the object.
    _pins: Vec<Pin>,
}

/// The location of the body.
#[derive(Debug)]
enum Layout {
    /// The record is not written yet.
    Unwritten(unwritten::Body),
    /// The body is in the object's only record.
    Single(Body),
    /// The body is in pieces.
    Pieces {
        /// The number of the object, unique among all objects ever written to the device.
        object_id: u64,
        extents: Vec<Extent>,
        /// The offset of each piece in the body.
        starts: Vec<u64>,
        /// The number and the body of the piece that was read last, so that the next read of this piece does not
        /// read its metadata again.
        last: Mutex<Option<(usize, Body)>>,
    },
}

/// A part of a body, as returned by [`DiskObject::piece_now`]. Its boundaries need not be those of pieces on disk.
#[derive(Debug)]
pub enum Piece {
    /// Bytes that were read and verified.
    Bytes(Bytes),
    /// Bytes in the page cache that were verified recently.
    Span(Span),
}

impl Piece {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Span(span) => span.len(),
        }
    }

    /// Returns true if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// States whether a read may wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Never,
    Allowed,
}

/// The reason why a read returned no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotRead {
    WouldBlock,
    Miss(Miss),
}

impl From<Miss> for NotRead {
    fn from(miss: Miss) -> Self {
        Self::Miss(miss)
    }
}

impl<T> From<Result<T, NotRead>> for NonBlockingRead<T> {
    fn from(result: Result<T, NotRead>) -> Self {
        match result {
            Ok(value) => Self::Ready(value),
            Err(NotRead::WouldBlock) => Self::WouldBlock,
            Err(NotRead::Miss(miss)) => Self::Miss(miss),
        }
    }
}

fn into_blocking<T>(result: Result<T, NotRead>) -> Result<T, Miss> {
    result.map_err(|not_read| match not_read {
        NotRead::Miss(miss) => miss,
        NotRead::WouldBlock => unreachable!("a blocking read waits for the device"),
    })
}

impl DiskObject {
    /// The metadata that the caller stored with the body.
    pub fn head(&self) -> &Bytes {
        &self.inner.head
    }

    /// The length of the body in bytes.
    pub fn length(&self) -> u64 {
        self.inner.length
    }

    /// Reads the body from `range.start` on, without waiting for the device. Returns at most as many
    /// bytes as the setting `read_bytes`, so the caller repeats the call for the rest of the range. The result is
    /// empty only if the range is empty or begins after the body.
    pub fn read_now(&self, range: Range<u64>) -> NonBlockingRead<Bytes> {
        let result = self.inner.read(range, Wait::Never);
        self.count_would_block(&result);
        result.into()
    }

    /// Like [`read_now`](Self::read_now), but returns a span of at most one mebibyte if the bytes are in the
    /// page cache and were verified recently. The caller sends the span to a socket.
    pub fn piece_now(&self, range: Range<u64>) -> NonBlockingRead<Piece> {
        let result = self.inner.piece(range);
        self.count_would_block(&result);
        match result {
            Ok(InnerPiece::Bytes(bytes)) => NonBlockingRead::Ready(Piece::Bytes(bytes)),
            Ok(InnerPiece::Cached(range)) => {
                NonBlockingRead::Ready(Piece::Span(Span::new(self.clone(), range)))
            }
            Err(NotRead::WouldBlock) => NonBlockingRead::WouldBlock,
            Err(NotRead::Miss(miss)) => NonBlockingRead::Miss(miss),
        }
    }

    fn count_would_block<T>(&self, result: &Result<T, NotRead>) {
        if matches!(result, Err(NotRead::WouldBlock)) {
            self.inner.volume.counters.would_block.increment();
        }
    }

    /// Like [`read_now`](Self::read_now), but waits for the device if necessary.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are corrupt or cannot be read. The object is then removed from the index.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes, Miss> {
        into_blocking(self.inner.read(range, Wait::Allowed))
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.inner.hash
    }

    pub(crate) fn location(&self) -> Location {
        self.inner.location
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.inner.volume
    }
}
