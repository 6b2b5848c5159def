//! Finds the resident of the lowest rank, learning of risen ranks only when they come up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// A min-heap of `(rank when last seen, slot index)`.
///
/// 16 bytes a resident. A pop is O(log n) plus one sift for each entry at the top whose rank
/// has risen since it was last seen; an entry pays that at most once per hit it had.
#[derive(Debug, Default)]
pub(crate) struct LazyQueue {
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

/// What the caller knows of an entry that came up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Standing {
    /// Resident, with this rank now.
    Resident(u64),
    /// Removed by hand; the entry only kept its place until it came up.
    Gone,
}

impl LazyQueue {
    pub(crate) fn push(&mut self, rank: u64, index: u32) {
        self.heap.push(Reverse((rank, index)));
    }

    /// Takes out the resident of the lowest rank.
    ///
    /// `gone` hears of every removed entry that came up on the way: its place is free from then on.
    pub(crate) fn pop(
        &mut self,
        standing: impl Fn(u32) -> Standing,
        mut gone: impl FnMut(u32),
    ) -> Option<(u64, u32)> {
        let mut sifts_left = SIFTS_MAX;
        loop {
            let mut top = self.heap.peek_mut()?;
            let Reverse((seen, index)) = *top;
            match standing(index) {
                Standing::Gone => {
                    PeekMut::pop(top);
                    gone(index);
                }
                Standing::Resident(rank) if rank > seen && sifts_left > 0 => {
                    sifts_left -= 1;
                    // Sifts down to its true place when `top` is dropped.
                    *top = Reverse((rank, index));
                }
                Standing::Resident(rank) => {
                    PeekMut::pop(top);
                    return Some((rank, index));
                }
            }
        }
    }

    /// Drops the entries of removed residents all at once.
    pub(crate) fn sweep(&mut self, standing: impl Fn(u32) -> Standing, mut gone: impl FnMut(u32)) {
        self.heap
            .retain(|&Reverse((_, index))| match standing(index) {
                Standing::Resident(_) => true,
                Standing::Gone => {
                    gone(index);
                    false
                }
            });
    }
}

/// Entries one pop may put back before it takes what it has.
///
/// After a long time of hits alone every rank has risen, and a pop could visit all of a million
/// entries, 0.2 s under the tier's lock. 4096 sifts are about half a millisecond. Past it the
/// victim is the one that came up: touched since, but longer ago than most.
pub(crate) const SIFTS_MAX: u32 = 4096;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::*;

    /// Lazy and eager agree while ranks only rise.
    ///
    /// Method: random pushes, rises, removals and pops against a plain table searched in full.
    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Rise(usize, u64),
        Remove(usize),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        prop::collection::vec(
            prop_oneof![
                3 => (0u64..50).prop_map(Step::Push),
                3 => (any::<usize>(), 1u64..30).prop_map(|(n, by)| Step::Rise(n, by)),
                1 => any::<usize>().prop_map(Step::Remove),
                3 => Just(Step::Pop),
            ],
            0..200,
        )
    }

    proptest! {
        #[test]
        fn the_lazy_queue_chooses_the_victims_of_an_eager_one(steps in steps()) {
            let mut lazy = LazyQueue::default();
            // index -> rank, or gone
            let table: RefCell<Vec<Option<u64>>> = RefCell::new(Vec::new());
            let live = || -> Vec<usize> {
                (0..table.borrow().len()).filter(|&i| table.borrow()[i].is_some()).collect()
            };
            for step in steps {
                match step {
                    Step::Push(rank) => {
                        lazy.push(rank, table.borrow().len() as u32);
                        table.borrow_mut().push(Some(rank));
                    }
                    Step::Rise(n, by) => if let Some(&i) = live().get(n % live().len().max(1)) {
                        *table.borrow_mut()[i].as_mut().expect("live") += by;
                    },
                    Step::Remove(n) => if let Some(&i) = live().get(n % live().len().max(1)) {
                        table.borrow_mut()[i] = None;
                    },
                    Step::Pop => {
                        let eager = live().into_iter()
                            .map(|i| (table.borrow()[i].expect("live"), i as u32))
                            .min();
                        let victim = lazy.pop(
                            |i| table.borrow()[i as usize].map_or(Standing::Gone, Standing::Resident),
                            |_| (),
                        );
                        prop_assert_eq!(victim, eager);
                        if let Some((_, i)) = victim {
                            table.borrow_mut()[i as usize] = None;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_pop_gives_up_sifting_at_its_limit() {
        let entries = SIFTS_MAX + 10;
        let mut queue = LazyQueue::default();
        (0..entries).for_each(|i| queue.push(0, i));
        // All ranks rose: an unlimited search would put back every entry once.
        let seen = RefCell::new(0);
        let victim = queue.pop(
            |i| {
                *seen.borrow_mut() += 1;
                Standing::Resident(1000 + u64::from(i))
            },
            |_| (),
        );
        assert!(victim.is_some());
        assert_eq!(*seen.borrow(), SIFTS_MAX + 1);
    }
}
