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
pub(crate) struct Aside {
    store: Chunks,
    reads: JoinSet<For>,
    frames: usize,
    bodies: usize,
    most: usize,
    /// True while a read-ahead is in progress.
    is_ahead: bool,
}

/// The purpose of a read.
#[derive(Debug)]
enum For {
    Somebody(Late),
    /// Read-ahead: the chunks will be requested.
    Later,
}

/// A parked frame or stream.
#[derive(Debug)]
pub(crate) enum Late {
    Frame(LateFrame),
    /// An outgoing stream, and how many times the store was queried for it.
    Body(StreamId, u32),
}

/// A frame that is delivered again.
#[derive(Debug)]
pub(crate) struct LateFrame {
    pub(crate) frame: Bytes,
    /// How many times the frame was handled.
    pub(crate) times: u32,
}

impl Aside {
    /// Creates an empty set for at most `most` frames and as many streams. A limit of zero is raised to one.
    pub(crate) fn new(store: Chunks, most: usize) -> Self {
        Self {
            store,
            reads: JoinSet::new(),
            frames: 0,
            bodies: 0,
            most: most.max(1),
            is_ahead: false,
        }
    }

    /// Returns true if no read is in progress.
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Returns how many more frames can be parked.
    pub(crate) fn room(&self) -> usize {
        self.most.saturating_sub(self.frames)
    }

    /// Returns how many more streams can be parked. Further ones wait in the core.
    pub(crate) fn room_for_bodies(&self) -> usize {
        self.most.saturating_sub(self.bodies)
    }

    fn count(&mut self, late: &Late) -> &mut usize {
        match late {
            Late::Frame(_) => &mut self.frames,
            Late::Body(..) => &mut self.bodies,
        }
    }

    /// Parks a frame or stream until its pending reads are performed.
    pub(crate) fn put(&mut self, late: Late, wanted: PendingReads) {
        *self.count(&late) += 1;
        self.read(wanted, For::Somebody(late));
    }

    /// Starts the next read-ahead, if none is in progress. Returns true if there was one to start.
    pub(crate) fn look_ahead(&mut self) -> bool {
        if self.is_ahead {
            return false;
        }
        let wanted = self.store.read_ahead();
        self.is_ahead = wanted.is_some();
        wanted
            .into_iter()
            .for_each(|wanted| self.read(wanted, For::Later));
        self.is_ahead
    }

    fn read(&mut self, wanted: PendingReads, whom: For) {
        let store = self.store.clone();
        self.reads.spawn_blocking(move || {
            store.fetch(&wanted);
            whom
        });
    }

    /// Returns the next frame or stream whose reads are performed, or `None` if none is parked.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Late>>> {
        while let Some(joined) = std::task::ready!(self.reads.poll_join_next(cx)) {
            // A panic lost the frame, so the connection ends with an error.
            match joined.map_err(io::Error::other)? {
                For::Somebody(late) => {
                    *self.count(&late) -= 1;
                    return Poll::Ready(Ok(Some(late)));
                }
                For::Later => self.is_ahead = false,
            }
        }
        Poll::Ready(Ok(None))
    }
}
