//! A table of numbers that takes no lock and no further memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A table of fixed size that forgets an entry for another one.
#[derive(Debug)]
pub(super) struct Marks(Box<[AtomicU64]>);

impl Marks {
    pub(super) fn new() -> Self {
        Self((0..MARKS).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn has(&self, mark: u64) -> bool {
        self.slot(mark).load(Relaxed) == mark
    }

    pub(super) fn set(&self, mark: u64) {
        self.slot(mark).store(mark, Relaxed);
    }

    fn slot(&self, mark: u64) -> &AtomicU64 {
        // The upper bits of a product depend on all bits of the mark.
        let index = mark.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - MARKS.trailing_zeros());
        &self.0[usize::try_from(index).expect("less than the length")]
    }

    /// Returns how often a mark was counted before. Its lower bits do not count.
    pub(super) fn count(&self, mark: u64) -> u64 {
        let mark = mark & !COUNT_MASK;
        let slot = self.slot(mark);
        let old = slot.load(Relaxed);
        let count = match old & !COUNT_MASK == mark {
            true => (old & COUNT_MASK) + 1,
            false => 0,
        };
        // The counts of the upper half repeat.
        let kept = if count > COUNT_MASK {
            count / 2 + 1
        } else {
            count
        };
        slot.store(mark | kept, Relaxed);
        kept
    }
}

/// The slots, a power of two: 32 KiB.
const MARKS: usize = 4096;

const COUNT_MASK: u64 = 31;
