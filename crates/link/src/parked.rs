//! Frames and outgoing streams that wait for a disk read while the connection continues, and read-ahead.
//!
//! A frame may reference chunks that the system would have to read from the disk. The frame is parked with its
//! pending reads. A blocking thread performs the reads, and then the frame is delivered again, as if it had been
//! delayed. Other frames are handled meanwhile: frames of one body may arrive in any order anyway. Parked frames
//! are lost with their connection, like frames in transit. An outgoing stream is resumed when it is known whether
//! the store has its chunk.

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
    frames: usize,
    streams: usize,
    limit: usize,
    /// True while a read-ahead is in progress.
    is_reading_ahead: bool,
}

/// The purpose of a read.
#[derive(Debug)]
enum ReadPurpose {
    Parked(ParkedItem),
    /// Read-ahead: the chunks will be requested.
    ReadAhead,
}

/// A parked frame or stream.
#[derive(Debug)]
pub(crate) enum ParkedItem {
    Frame(ParkedFrame),
    /// An outgoing stream, and how many times the store was queried for it.
    Stream(StreamId, u32),
}

/// A frame that is delivered again.
#[derive(Debug)]
pub(crate) struct ParkedFrame {
    pub(crate) frame: Bytes,
    /// How many times the frame was handled.
    pub(crate) attempts: u32,
}

impl Parked {
    /// Creates an empty set for at most `limit` frames and as many streams. A limit of zero is raised to one.
    pub(crate) fn new(store: Chunks, limit: usize) -> Self {
        Self {
            store,
            reads: JoinSet::new(),
            frames: 0,
            streams: 0,
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
        self.limit.saturating_sub(self.frames)
    }

    /// Returns how many more streams can be parked. Further ones wait in the core.
    pub(crate) fn free_streams(&self) -> usize {
        self.limit.saturating_sub(self.streams)
    }

    fn count(&mut self, item: &ParkedItem) -> &mut usize {
        match item {
            ParkedItem::Frame(_) => &mut self.frames,
            ParkedItem::Stream(..) => &mut self.streams,
        }
    }

    /// Parks a frame or stream until its pending reads are performed.
    pub(crate) fn park(&mut self, item: ParkedItem, pending: PendingReads) {
        *self.count(&item) += 1;
        self.read(pending, ReadPurpose::Parked(item));
    }

    /// Starts the next read-ahead, if none is in progress. Returns true if there was one to start.
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

    /// Returns the next frame or stream whose reads are performed, or `None` if none is parked.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<ParkedItem>>> {
        while let Some(joined) = std::task::ready!(self.reads.poll_join_next(cx)) {
            // A panic lost the frame, so the connection ends with an error.
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
