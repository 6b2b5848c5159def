//! The body of a response that is stored in slices: reads one slice after the other, and has slices fetched ahead.

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use edgeward_semantics::slices::{self, Slicing};
use edgeward_store::disk::Piece;

use crate::cache::WorkerCache;
use crate::cache::disk_body::DiskBody;
use crate::cache::fill::{Failure, FillReader};
use crate::exchange::pieces::PieceMemory;

/// Finds slices in the cache, and fetches them from the origin.
pub(crate) trait SliceOpener {
    /// Returns a slice that can be read without waiting. `bytes` are offsets in the representation within the slice.
    fn open_now(&self, index: u64, bytes: &Range<u64>) -> Option<OpenSlice>;

    /// Opens a slice, which may have to be fetched. `ahead` is the fetch that [`fetch_ahead`](Self::fetch_ahead) began.
    fn open(&self, index: u64, bytes: Range<u64>, ahead: Option<SliceFetch>) -> OpeningSlice;

    /// Begins to fetch a slice, unless the cache has it.
    fn fetch_ahead(&self, index: u64) -> Option<SliceFetch>;
}

/// A slice that is being opened.
pub(crate) type OpeningSlice = Pin<Box<dyn Future<Output = Result<OpenSlice, SliceError>>>>;

/// The fetch of a slice that other requests may share.
pub(crate) struct SliceFetch {
    pub(crate) reader: FillReader,
    /// True if this request began the fetch, so that the response is for it in any case.
    pub(crate) leads: bool,
}

/// The source of the requested bytes of one slice.
pub(crate) enum OpenSlice {
    Memory { bytes: Bytes, memory: PieceMemory },
    Disk(Box<DiskBody>),
    Fill(FillReader),
}

/// Why a slice cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SliceError {
    /// The representation at the origin is another one now.
    #[error("the representation changed at the origin")]
    Changed,
    /// The origin did not send the slice, although the representation may be the same.
    #[error("the origin did not send the requested part")]
    Ignored,
    /// The origin answered with an error, or could not be reached.
    #[error("the fetch of a slice failed: {}", .0.detail)]
    Failed(Failure),
    /// The slice ended before its end.
    #[error("a slice ended early")]
    Incomplete,
}

/// A range of a sliced response, on its way to a client.
pub(crate) struct SlicedBody {
    opener: Box<dyn SliceOpener>,
    slicing: Slicing,
    remaining: Range<u64>,
    current: Current,
    /// The end of the current slice, or of the range if it is earlier.
    current_end: u64,
    /// True if the current slice could not be opened or ended early, and is opened for the second time.
    was_reopened: bool,
    /// The bytes that the client got.
    given_bytes: u64,
    /// Slices that are fetched ahead of the client, in ascending order.
    ahead: VecDeque<(u64, SliceFetch)>,
    /// The slice after the last one that was fetched ahead or opened.
    next_ahead: u64,
    ahead_max: u64,
}

enum Current {
    None,
    Opening(OpeningSlice),
    Open(OpenSlice),
}

impl SlicedBody {
    /// Returns the body of `range`, which must not be empty. At most `ahead_max` slices are fetched ahead of the
    /// client.
    pub(crate) fn new(
        opener: Box<dyn SliceOpener>,
        slicing: Slicing,
        range: Range<u64>,
        ahead_max: u64,
    ) -> Self {
        Self {
            next_ahead: slicing.index_of(range.start) + 1,
            current_end: range.start,
            opener,
            slicing,
            remaining: range,
            current: Current::None,
            was_reopened: false,
            given_bytes: 0,
            ahead: VecDeque::new(),
            ahead_max,
        }
    }

    /// Gives the body the fetch of a slice that has just begun, so that the slice is not looked up.
    pub(crate) fn begin_with(&mut self, index: u64, fetch: SliceFetch) {
        if index == self.slicing.index_of(self.remaining.start) {
            self.ahead.push_back((index, fetch));
        }
    }

    pub(crate) fn remaining_bytes(&self) -> u64 {
        self.remaining.end - self.remaining.start
    }

    /// Returns true if the current slice is read from disk.
    pub(crate) fn reads_disk(&self) -> bool {
        matches!(self.current, Current::Open(OpenSlice::Disk(_)))
    }

    /// Opens the next slice. Resolves when the slice is in the cache, or when its head has arrived from the origin.
    pub(crate) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SliceError>> {
        loop {
            match &mut self.current {
                Current::Open(_) => return Poll::Ready(Ok(())),
                Current::Opening(opening) => {
                    let opened = ready!(opening.as_mut().poll(cx));
                    self.current = Current::None;
                    self.current = Current::Open(opened?);
                }
                Current::None => {
                    let index = self.slicing.index_of(self.remaining.start);
                    self.current_end = self.slicing.bytes_of(index).end.min(self.remaining.end);
                    let bytes = self.remaining.start..self.current_end;
                    let ahead = self.take_ahead(index);
                    let open = match &ahead {
                        None => self.opener.open_now(index, &bytes),
                        Some(_) => None,
                    };
                    self.current = match open {
                        Some(open) => Current::Open(open),
                        None => Current::Opening(self.opener.open(index, bytes, ahead)),
                    };
                }
            }
        }
    }

    /// Returns the next piece, or `None` at the end. A piece in memory has at most `piece_max` bytes. The piece may
    /// be a [`Piece::Span`] if `spans` is true.
    pub(crate) fn poll_piece(
        &mut self,
        cache: &WorkerCache,
        cx: &mut Context<'_>,
        spans: bool,
        piece_max: usize,
    ) -> Poll<Option<Result<(Piece, PieceMemory), SliceError>>> {
        loop {
            if self.remaining.is_empty() {
                return Poll::Ready(None);
            }
            if let Err(error) = ready!(self.poll_open(cx)) {
                let is_final = matches!(error, SliceError::Changed | SliceError::Ignored);
                if is_final || std::mem::replace(&mut self.was_reopened, true) {
                    return Poll::Ready(Some(Err(error)));
                }
                continue;
            }
            let Current::Open(open) = &mut self.current else {
                unreachable!("the slice was just opened");
            };
            let polled = match open {
                OpenSlice::Memory { bytes, memory } => {
                    let piece = bytes.split_to(bytes.len().min(piece_max));
                    Some((Piece::Bytes(piece), *memory)).filter(|(piece, _)| !piece.is_empty())
                }
                // A part of a slice on disk may be reclaimed while it is read.
                OpenSlice::Disk(body) => match ready!(body.poll_piece(cache, cx, spans)) {
                    Some(Ok(piece)) => Some((piece, PieceMemory::Private)),
                    Some(Err(_)) | None => None,
                },
                OpenSlice::Fill(reader) => match ready!(reader.poll_bytes(&cache.hot, cx)) {
                    Some(Ok((bytes, memory))) => Some((Piece::Bytes(bytes), memory)),
                    Some(Err(_)) | None => None,
                },
            };
            let Some((piece, memory)) = polled else {
                self.current = Current::None;
                if std::mem::replace(&mut self.was_reopened, true) {
                    return Poll::Ready(Some(Err(SliceError::Incomplete)));
                }
                continue;
            };
            self.remaining.start += piece.len();
            self.given_bytes += piece.len();
            if self.remaining.start == self.current_end {
                self.current = Current::None;
                self.was_reopened = false;
            }
            self.fetch_ahead();
            return Poll::Ready(Some(Ok((piece, memory))));
        }
    }

    /// Begins the fetches of slices that the client will soon need.
    fn fetch_ahead(&mut self) {
        if self.remaining.is_empty() {
            return;
        }
        let count = slices::read_ahead(self.given_bytes, self.slicing.slice_bytes, self.ahead_max);
        let current = self.slicing.index_of(self.remaining.start);
        let last = self.slicing.index_of(self.remaining.end - 1);
        while self.next_ahead <= last.min(current + count) {
            if let Some(fetch) = self.opener.fetch_ahead(self.next_ahead) {
                self.ahead.push_back((self.next_ahead, fetch));
            }
            self.next_ahead += 1;
        }
    }

    fn take_ahead(&mut self, index: u64) -> Option<SliceFetch> {
        self.next_ahead = self.next_ahead.max(index + 1);
        while let Some((first, _)) = self.ahead.front()
            && *first <= index
        {
            let (first, fetch) = self.ahead.pop_front()?;
            if first == index {
                return Some(fetch);
            }
        }
        None
    }
}
