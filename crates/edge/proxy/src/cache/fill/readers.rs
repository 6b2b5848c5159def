//! The readers of a fill: the position and the waker of each.
//!
//! A fill may have ten thousand readers. Each read therefore takes constant time. Only the pump scans the list, at most
//! once for each wake.

use std::task::{Context, Waker};

/// The readers of one fill, by the number that [`add`](Self::add) returns.
#[derive(Debug, Default)]
pub(super) struct Readers {
    slots: Vec<Option<Reader>>,
    /// The empty slots.
    free: Vec<usize>,
    /// While the pump waits for the slowest readers: their position, and how many of them are still there.
    slowest: Option<(u64, usize)>,
}

#[derive(Debug, Default)]
struct Reader {
    position: u64,
    waker: Option<Waker>,
}

impl Readers {
    /// Adds a reader at the start of the body, and returns its number.
    pub(super) fn add(&mut self) -> usize {
        let reader = Some(Reader::default());
        match self.free.pop() {
            Some(free) => {
                self.slots[free] = reader;
                free
            }
            None => {
                self.slots.push(reader);
                self.slots.len() - 1
            }
        }
    }

    /// Removes a reader. Returns true if it was the last reader, or the last one for which the pump waited.
    pub(super) fn remove(&mut self, id: usize) -> bool {
        let was_awaited = self.leave(self.position(id));
        self.slots[id] = None;
        self.free.push(id);
        was_awaited || self.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn position(&self, id: usize) -> u64 {
        self.slots[id].as_ref().expect(IN_LIST).position
    }

    /// Moves a reader. Returns true if it was the last reader for which the pump waited.
    pub(super) fn set_position(&mut self, id: usize, position: u64) -> bool {
        let reader = self.slots[id].as_mut().expect(IN_LIST);
        let before = std::mem::replace(&mut reader.position, position);
        self.leave(before)
    }

    /// Registers the task of a reader, to be woken when bytes arrive.
    pub(super) fn register(&mut self, id: usize, cx: &Context<'_>) {
        self.slots[id].as_mut().expect(IN_LIST).waker = Some(cx.waker().clone());
    }

    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        let readers = self.slots.iter_mut().flatten();
        readers.filter_map(|reader| reader.waker.take()).collect()
    }

    /// Returns the position of the fastest reader.
    pub(super) fn fastest(&self) -> Option<u64> {
        self.positions().max()
    }

    /// Returns the position of the slowest reader.
    pub(super) fn slowest(&self) -> Option<u64> {
        self.positions().min()
    }

    /// Records that the pump waits until no reader is at the position of the slowest one.
    pub(super) fn await_slowest(&mut self) {
        self.slowest = self.slowest().map(|slowest| {
            let count = self.positions().filter(|&at| at == slowest).count();
            (slowest, count)
        });
    }

    fn positions(&self) -> impl Iterator<Item = u64> {
        self.slots.iter().flatten().map(|reader| reader.position)
    }

    /// Records that a reader has left a position. Returns true if it was the last reader for which the pump waited.
    fn leave(&mut self, position: u64) -> bool {
        let Some((slowest, count)) = &mut self.slowest else {
            return false;
        };
        if position != *slowest {
            return false;
        }
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.slowest = None;
        }
        is_last
    }
}

const IN_LIST: &str = "a reader is in the list until it is dropped";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_of_a_removed_reader_is_used_again() {
        let mut readers = Readers::default();
        let ids: Vec<_> = (0..3).map(|_| readers.add()).collect();
        assert!(!readers.remove(ids[1]));
        assert_eq!((readers.len(), readers.add()), (2, ids[1]));
        assert_eq!(readers.len(), 3);
        let ends: Vec<_> = ids.into_iter().map(|id| readers.remove(id)).collect();
        assert_eq!(ends, [false, false, true], "the last reader");
        assert!(readers.is_empty());
    }

    /// The pump waits for the two slowest of four readers: one of them reads on, and the other one leaves.
    #[test]
    fn only_the_last_of_the_slowest_readers_ends_the_wait() {
        let mut readers = Readers::default();
        let ids: Vec<_> = (0..4).map(|_| readers.add()).collect();
        readers.set_position(ids[2], 10);
        readers.set_position(ids[3], 20);
        assert_eq!((readers.slowest(), readers.fastest()), (Some(0), Some(20)));
        readers.await_slowest();
        assert!(!readers.set_position(ids[2], 30), "a faster reader");
        assert!(!readers.set_position(ids[0], 5));
        assert!(!readers.set_position(ids[0], 6), "counted once");
        assert!(readers.remove(ids[1]));
        assert!(!readers.set_position(ids[0], 7), "no wait");
    }
}
