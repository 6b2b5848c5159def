//! Keeps frames and outgoing streams that wait for a disk read while the connection continues. Also reads trailers (the
//! lists of the chunks in a container) before they are needed.
//!
//! A received frame may reference chunks that are on disk and not in the page cache. The frame is parked with
//! its pending reads. A blocking thread performs the reads, and then the frame is handled again as if it had
//! just arrived. Meanwhile the connection handles other frames; the receiver accepts the frames of a body in
//! any order. If the connection ends, its parked frames are lost like frames in transit. An outgoing stream is
//! parked until the store can answer whether it has the stream's next chunk.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::task::JoinSet;

use edgeward_chunk_store::{Chunks, PendingReads};
use edgeward_dedup::wire::StreamId;

/// The parked frames and streams of one connection.
pub(crate) struct Parked {
    store: Chunks,
    reads: JoinSet<ReadPurpose>,
    /// The number of parked frames, and the number of parked streams. Each is at most `limit`.
    frame_count: usize,
    stream_count: usize,
    limit: usize,
    /// True while a read-ahead is in progress.
    is_reading_ahead: bool,
}

/// The purpose of a read.
#[derive(Debug)]
enum ReadPurpose {
    Parked(ParkedItem),
    /// The read loads trailers of containers that will probably be needed soon.
    ReadAhead,
}

/// A parked frame or stream.
#[derive(Debug)]
pub(crate) enum ParkedItem {
    Frame(ParkedFrame),
    /// An outgoing stream, and the number of failed attempts to look up its next chunk without a disk read.
    Stream(StreamId, u32),
}

/// A frame that is handled again when its reads are performed.
#[derive(Debug)]
pub(crate) struct ParkedFrame {
    pub(crate) frame: Bytes,
    /// The number of times that the frame was handled before.
    pub(crate) attempts: u32,
}

impl Parked {
    /// Creates an empty set for at most `limit` frames and at most `limit` streams. A limit of zero is raised to one.
    pub(crate) fn new(store: Chunks, limit: usize) -> Self {
        Self {
            store,
            reads: JoinSet::new(),
            frame_count: 0,
            stream_count: 0,
            limit: limit.max(1),
            is_reading_ahead: false,
        }
    }

    /// Returns true if no read is in progress.
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Returns how many more frames can be parked.
    pub(crate) fn free_frames(&self) -> usize {
        self.limit.saturating_sub(self.frame_count)
    }

    /// Returns how many more streams can be parked. Further streams wait in [`Core`](crate::core::Core).
    pub(crate) fn free_streams(&self) -> usize {
        self.limit.saturating_sub(self.stream_count)
    }

    fn count(&mut self, item: &ParkedItem) -> &mut usize {
        match item {
            ParkedItem::Frame(_) => &mut self.frame_count,
            ParkedItem::Stream(..) => &mut self.stream_count,
        }
    }

    /// Parks a frame or stream until its pending reads are performed.
    pub(crate) fn park(&mut self, item: ParkedItem, pending: PendingReads) {
        *self.count(&item) += 1;
        self.read(pending, ReadPurpose::Parked(item));
    }

    /// Starts the next read-ahead of the store unless a read-ahead is in progress. Returns true if it started one.
    pub(crate) fn read_ahead(&mut self) -> bool {
        if self.is_reading_ahead {
            return false;
        }
        let pending = self.store.read_ahead();
        self.is_reading_ahead = pending.is_some();
        pending
            .into_iter()
            .for_each(|pending| self.read(pending, ReadPurpose::ReadAhead));
        self.is_reading_ahead
    }

    fn read(&mut self, pending: PendingReads, purpose: ReadPurpose) {
        let store = self.store.clone();
        self.reads.spawn_blocking(move || {
            store.fetch(&pending);
            purpose
        });
    }

    /// Returns the next frame or stream whose reads are performed, or `None` if no read is in progress.
    /// A read-ahead that ends is not returned.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<ParkedItem>>> {
        while let Some(joined) = std::task::ready!(self.reads.poll_join_next(cx)) {
            // An error means that the read panicked. Its frame is lost, so the connection ends with an error.
            match joined.map_err(io::Error::other)? {
                ReadPurpose::Parked(item) => {
                    *self.count(&item) -= 1;
                    return Poll::Ready(Ok(Some(item)));
                }
                ReadPurpose::ReadAhead => self.is_reading_ahead = false,
            }
        }
        Poll::Ready(Ok(None))
    }
}
