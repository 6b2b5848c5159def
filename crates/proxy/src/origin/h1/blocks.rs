//! Memory that large bodies are read into, used again as soon as nobody has a share of it.
//!
//! What is read is handed on without a copy: to the client, to others who asked, to the disk's queue, each of which lets
//! go of it in its own time and some on another thread. Memory from the allocator is new to this process each time
//! then, and the kernel's zeroing of its pages cost as much as the rest of a large miss. So a worker
//! keeps a handle to each block it gave out and looks whether that is the last one left.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use bytes::BytesMut;

/// Blocks that were given out, of one worker.
#[derive(Debug, Default)]
pub(in crate::origin) struct Blocks {
    /// An empty handle to the beginning of each, the longest out first.
    handles: RefCell<VecDeque<BytesMut>>,
    /// Since the last sweep.
    taken: Cell<usize>,
}

impl Blocks {
    /// Room for [`BLOCK_BYTES`].
    pub(super) fn take(&self) -> BytesMut {
        let mut handles = self.handles.borrow_mut();
        self.taken.set(self.taken.get() + 1);
        // A slow client's block may be in front of those that are back.
        for _ in 0..handles.len().min(LOOKED_AT) {
            let Some(mut block) = handles.pop_front() else {
                break;
            };
            if block.try_reclaim(BLOCK_BYTES) {
                handles.push_back(block.split_to(0));
                return block;
            }
            handles.push_back(block);
        }
        let mut block = BytesMut::with_capacity(BLOCK_BYTES);
        if handles.len() < HANDLES_MAX {
            handles.push_back(block.split_to(0));
        }
        block
    }

    /// Gives back to the allocator what was not needed since the last sweep.
    pub(in crate::origin) fn sweep(&self) {
        let mut handles = self.handles.borrow_mut();
        let unused = handles.len().saturating_sub(self.taken.take());
        handles.drain(..unused);
        if handles.is_empty() {
            handles.shrink_to_fit();
        }
    }
}

pub(super) const BLOCK_BYTES: usize = 64 << 10;

/// Blocks kept at most: what the disk's queue holds while it is written, and some clients.
const HANDLES_MAX: usize = 64;

const LOOKED_AT: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(block: &BytesMut) -> *const u8 {
        block.as_ptr()
    }

    #[test]
    fn a_block_is_used_again_once_all_its_shares_are_gone() {
        let blocks = Blocks::default();
        let mut first = blocks.take();
        first.extend_from_slice(&[1; 1000]);
        let share = first.split_to(500).freeze();
        let second = blocks.take();
        assert_ne!(place(&second), share.as_ptr());
        drop(first);
        let third = blocks.take();
        assert_ne!(place(&third), share.as_ptr(), "a share is left");

        let at = share.as_ptr();
        drop(share);
        let again = blocks.take();
        assert_eq!(place(&again), at);
        assert!(again.is_empty());
        assert!(again.capacity() >= BLOCK_BYTES);
    }

    #[test]
    fn a_worker_keeps_no_more_handles_than_its_bound_and_a_block_for_each_who_asks() {
        let blocks = Blocks::default();
        let out: Vec<BytesMut> = (0..HANDLES_MAX * 2).map(|_| blocks.take()).collect();
        assert!(out.iter().all(|block| block.capacity() >= BLOCK_BYTES));
        assert_eq!(blocks.handles.borrow().len(), HANDLES_MAX);
    }

    #[test]
    fn what_a_period_did_not_need_is_given_back_at_its_end() {
        let blocks = Blocks::default();
        drop((0..8).map(|_| blocks.take()).collect::<Vec<_>>());
        blocks.sweep();
        assert_eq!(blocks.handles.borrow().len(), 8, "all were needed");
        drop(blocks.take());
        drop(blocks.take());
        blocks.sweep();
        assert_eq!(blocks.handles.borrow().len(), 2);
        blocks.sweep();
        assert_eq!(blocks.handles.borrow().len(), 0);
    }
}
