//! Reading: a head with one read, bodies by ranges, every byte checked before it is handed on.
//!
//! Every read exists twice. `…_now` answers if that takes no waiting (what is asked for lies in the
//! page cache), so that a thread that serves many clients may try it in place; if it says
//! [`Now::WouldBlock`] the blocking call belongs on a thread that may wait.
//!
//! What lies in the page cache and was compared lately is not read at all but lent: a [`Span`].
//!
//! A location from the index may be stale and a segment may be overwritten while it is read. So
//! nothing is believed that the bytes themselves do not prove: the meta's checksum, the full key,
//! the epoch, and a checksum for every block of body.

mod body;
mod open;
mod record;
mod span;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use edgeward_types::KeyHash;

use super::error::{Miss, Now};
use super::format::Extent;
use super::location::Location;
use super::segment::Pin;
use super::unwritten;
use super::volume::Volume;
use crate::sync::Mutex;
use body::{Body, InnerPiece};

pub(super) use record::Record;
pub use span::{Span, Unsent};

/// An object that can be read. Cheap to clone; while one lives its segments are overwritten last.
#[derive(Clone, Debug)]
pub struct DiskObject {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    volume: Arc<Volume>,
    hash: KeyHash,
    location: Location,
    head: Bytes,
    length: u64,
    layout: Layout,
    _pin: Pin,
    /// Of the other segments its pieces lie in.
    _pins: Vec<Pin>,
}

#[derive(Debug)]
enum Layout {
    /// The record is not written yet.
    Unwritten(unwritten::Body),
    /// The body lies in the record itself.
    Single(Body),
    /// The body lies in pieces.
    Pieces {
        object: u64,
        extents: Vec<Extent>,
        /// Where each begins in the body.
        starts: Vec<u64>,
        /// The piece that was read last: reading on needs no second look at its meta.
        last: Mutex<Option<(usize, Body)>>,
    },
}

/// A part of a body.
#[derive(Debug)]
pub enum Piece {
    /// Read, and compared with its checksums.
    Bytes(Bytes),
    /// In the page cache, and compared lately.
    Span(Span),
}

impl Piece {
    /// Bytes of it.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Span(span) => span.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Whether a read may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Never,
    AsLongAsItTakes,
}

/// Why a read gave nothing.
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

impl<T> From<Result<T, NotRead>> for Now<T> {
    fn from(result: Result<T, NotRead>) -> Self {
        match result {
            Ok(value) => Self::Ready(value),
            Err(NotRead::WouldBlock) => Self::WouldBlock,
            Err(NotRead::Miss(miss)) => Self::Miss(miss),
        }
    }
}

fn waited<T>(result: Result<T, NotRead>) -> Result<T, Miss> {
    result.map_err(|not_read| match not_read {
        NotRead::Miss(miss) => miss,
        NotRead::WouldBlock => unreachable!("only asked for where waiting is forbidden"),
    })
}

impl DiskObject {
    /// What the writer kept beside the body.
    pub fn head(&self) -> &Bytes {
        &self.inner.head
    }

    /// Bytes of the body.
    pub fn length(&self) -> u64 {
        self.inner.length
    }

    /// The body from `range.start` on: at least a byte, at most the range, and no more than one read
    /// brings. Ask again behind what came. Empty if the range is, or lies behind the body.
    pub fn read_now(&self, range: Range<u64>) -> Now<Bytes> {
        let result = self.inner.read(range, Wait::Never);
        self.note_wait(&result);
        result.into()
    }

    /// As [`read_now`](Self::read_now), but what lies in the page cache and was compared with its checksums lately
    /// comes as a span of a mebibyte at most, for a socket.
    pub fn piece_now(&self, range: Range<u64>) -> Now<Piece> {
        let result = self.inner.piece(range);
        self.note_wait(&result);
        match result {
            Ok(InnerPiece::Bytes(bytes)) => Now::Ready(Piece::Bytes(bytes)),
            Ok(InnerPiece::Lent(place)) => Now::Ready(Piece::Span(Span::new(self.clone(), place))),
            Err(NotRead::WouldBlock) => Now::WouldBlock,
            Err(NotRead::Miss(miss)) => Now::Miss(miss),
        }
    }

    fn note_wait<T>(&self, result: &Result<T, NotRead>) {
        if matches!(result, Err(NotRead::WouldBlock)) {
            self.inner.volume.counters.would_block.one();
        }
    }

    /// As [`read_now`](Self::read_now), waiting for the device if need be.
    ///
    /// # Errors
    ///
    /// If what is there is not what was written, or cannot be read; the object is forgotten then.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes, Miss> {
        waited(self.inner.read(range, Wait::AsLongAsItTakes))
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
