//! Frames and bodies that wait for the disk, so that nobody else does; and reading ahead, so that nobody has to.
//!
//! A frame may name chunks that the system would have to read first. It is put aside with what is wanted for it; that is read
//! on a blocking thread, and then the frame comes again. Others go on meanwhile: frames of one body may arrive in any order as it is. What
//! is aside is gone with its connection, as anything that was under way on it. A body on its way out goes on when it is known whether a chunk of it is there.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::task::JoinSet;

use edgeward_chunk_store::{Chunks, Wanted};
use edgeward_dedup::wire::StreamId;

/// Of one connection.
pub(crate) struct Aside {
    store: Chunks,
    reads: JoinSet<For>,
    frames: usize,
    bodies: usize,
    most: usize,
    /// One reads what will be asked for.
    is_ahead: bool,
}

/// What something is read for.
#[derive(Debug)]
enum For {
    Somebody(Late),
    /// What will be asked for.
    Later,
}

/// Who waited for the disk.
#[derive(Debug)]
pub(crate) enum Late {
    Frame(LateFrame),
    /// A body on its way out, and how often the store was asked.
    Body(StreamId, u32),
}

/// A frame that comes again.
#[derive(Debug)]
pub(crate) struct LateFrame {
    pub(crate) frame: Bytes,
    /// How often it was handed in.
    pub(crate) times: u32,
}

impl Aside {
    /// Nothing yet, and never more than `most` frames and as many bodies, but one at least.
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

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// For how many more frames there is room.
    pub(crate) fn room(&self) -> usize {
        self.most.saturating_sub(self.frames)
    }

    /// For how many more bodies; further ones wait their turn.
    pub(crate) fn room_for_bodies(&self) -> usize {
        self.most.saturating_sub(self.bodies)
    }

    fn count(&mut self, late: &Late) -> &mut usize {
        match late {
            Late::Frame(_) => &mut self.frames,
            Late::Body(..) => &mut self.bodies,
        }
    }

    /// Puts somebody aside until what he wants was read.
    pub(crate) fn put(&mut self, late: Late, wanted: Wanted) {
        *self.count(&late) += 1;
        self.read(wanted, For::Somebody(late));
    }

    /// Has read what will be asked for, one after the other, so that nobody has to wait for it; whether there was anything.
    pub(crate) fn look_ahead(&mut self) -> bool {
        if self.is_ahead {
            return false;
        }
        let wanted = self.store.foreseen();
        self.is_ahead = wanted.is_some();
        wanted
            .into_iter()
            .for_each(|wanted| self.read(wanted, For::Later));
        self.is_ahead
    }

    fn read(&mut self, wanted: Wanted, whom: For) {
        let store = self.store.clone();
        self.reads.spawn_blocking(move || {
            store.fetch(&wanted);
            whom
        });
    }

    /// The next one for whom everything was read; none if nobody waits.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Late>>> {
        while let Some(joined) = std::task::ready!(self.reads.poll_join_next(cx)) {
            // Without its frame a connection has lost something, like one that broke.
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
