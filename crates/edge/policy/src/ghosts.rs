//! The ghosts: histories of objects that are not resident.
//!
//! A ring of entries with an index by key. A new entry replaces the oldest entry. The keys do not influence which entry
//! is replaced, so a server that hashes URLs and a simulator that reads ids make the same decisions.
//!
//! A history is any small value. The default value is the empty history, which no object has.

use edgeward_types::{KeyHash, mix64};
use hashbrown::HashTable;

/// A bounded table of histories by key. An entry takes 16 bytes, and 6 to 11 bytes in the index.
#[derive(Debug, Default)]
pub(crate) struct Ghosts<H> {
    ring: Vec<Ghost<H>>,
    /// The position of each key in the ring.
    index: HashTable<u32>,
    /// The position of the oldest entry, which the next insertion replaces.
    oldest: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ghost<H> {
    key: u64,
    /// Empty if the entry is not in use.
    history: H,
}

impl<H: Copy + Default + PartialEq> Ghosts<H> {
    /// The number of entries, used or unused.
    pub(crate) fn capacity(&self) -> usize {
        self.ring.len()
    }

    /// Returns the history at `position`, which is below the capacity. An unused entry has an empty history.
    pub(crate) fn at(&self, position: usize) -> H {
        self.ring[position].history
    }

    /// Removes the history of an object.
    pub(crate) fn take(&mut self, key: KeyHash) -> Option<H> {
        let ring = &mut self.ring;
        let same_key = |&position: &u32| ring[position as usize].key == key.0;
        let entry = self.index.find_entry(mix64(key.0), same_key).ok()?;
        let (position, _) = entry.remove();
        Some(std::mem::take(&mut ring[position as usize]).history)
    }

    /// Remembers the history of an object instead of an earlier one.
    pub(crate) fn insert(&mut self, key: KeyHash, history: H) {
        if self.ring.is_empty() {
            return;
        }
        // If a key was filled twice, both slots are evicted under it. The ring must not hold a key twice, because the
        // index could not tell which of the two entries is replaced.
        self.take(key);
        let position = self.oldest;
        self.oldest = (self.oldest + 1) % self.ring.len();
        let replaced = self.ring[position];
        if replaced.history != H::default() {
            self.take(KeyHash(replaced.key));
        }
        self.ring[position] = Ghost {
            key: key.0,
            history,
        };
        let ring = &self.ring;
        let hash_at = |&position: &u32| mix64(ring[position as usize].key);
        self.index
            .insert_unique(mix64(key.0), position as u32, hash_at);
    }

    /// Enlarges the table if it has fewer entries than wanted. It grows by at least a quarter, so that the amortised
    /// work per object is constant.
    pub(crate) fn grow_to(&mut self, entries_min: usize) {
        if self.ring.len() >= entries_min {
            return;
        }
        let entries = entries_min
            .max(self.ring.len() / 4 * 5)
            .next_multiple_of(ENTRIES_STEP)
            .min(u32::MAX as usize);
        let (newer, older) = self.ring.split_at(self.oldest);
        let in_order: Vec<Ghost<H>> = older.iter().chain(newer).copied().collect();
        self.ring = vec![Ghost::default(); entries];
        self.index.clear();
        self.oldest = 0;
        for ghost in in_order {
            if ghost.history != H::default() {
                self.insert(KeyHash(ghost.key), ghost.history);
            }
        }
    }

    /// Bytes of the tables. The size of the index depends on the keys, so its mean is used.
    pub(crate) fn bookkeeping_bytes(&self) -> usize {
        self.ring.len() * (size_of::<Ghost<H>>() + INDEX_BYTES)
    }
}

/// The mean size of an entry in the index: 4 bytes and a control byte, at a fill of 44 to 88 %.
const INDEX_BYTES: usize = 8;

/// The number of entries is a multiple of this, so that a small table does not grow at each insertion.
const ENTRIES_STEP: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a history that is not empty.
    fn history(number: u32) -> u32 {
        number + 1
    }

    #[test]
    fn a_remembered_history_is_taken_once() {
        let mut ghosts = Ghosts::<u32>::default();
        ghosts.grow_to(100);
        ghosts.insert(KeyHash(0), history(5));
        assert_eq!(ghosts.take(KeyHash(0)), Some(history(5)));
        assert_eq!(ghosts.take(KeyHash(0)), None);
    }

    #[test]
    fn a_table_without_entries_remembers_nothing() {
        let mut ghosts = Ghosts::<u32>::default();
        ghosts.insert(KeyHash(1), history(1));
        assert_eq!(ghosts.take(KeyHash(1)), None);
    }

    /// The table forgets exactly the objects whose entries were replaced, also after it grew.
    ///
    /// Method: insertions beyond the capacity, compared with the last keys in order.
    #[test]
    fn a_full_table_forgets_the_oldest_entry() {
        let mut ghosts = Ghosts::<u32>::default();
        ghosts.grow_to(16);
        (0..21).for_each(|n| ghosts.insert(KeyHash(n), history(n as u32)));
        ghosts.grow_to(17);
        assert_eq!(ghosts.capacity(), 32);
        (21..40).for_each(|n| ghosts.insert(KeyHash(n), history(n as u32)));
        // 16 objects were left at the growth, 16 unused entries came with it, and three entries were replaced after it.
        let first_remembered = 21 - 16 + 3;
        for n in 0..40 {
            let expected = (n >= first_remembered).then(|| history(n as u32));
            assert_eq!(ghosts.take(KeyHash(n)), expected, "{n}");
        }
    }

    proptest! {
        /// The table equals a ring that is searched completely, also if a key is inserted again, and the index has no
        /// other entries.
        #[test]
        fn the_table_equals_a_search_of_a_ring(
            steps in prop::collection::vec((any::<bool>(), 0u64..40), 0..300),
        ) {
            let mut ghosts = Ghosts::<u32>::default();
            ghosts.grow_to(16);
            let mut ring: Vec<Option<(u64, u32)>> = vec![None; 16];
            let mut inserted = 0;
            for (number, (is_insertion, key)) in steps.into_iter().enumerate() {
                let known = ring.iter().position(|entry| entry.is_some_and(|entry| entry.0 == key));
                let known = known.and_then(|position| ring[position].take());
                if is_insertion {
                    let history = history(number as u32);
                    ghosts.insert(KeyHash(key), history);
                    ring[inserted % 16] = Some((key, history));
                    inserted += 1;
                } else {
                    prop_assert_eq!(ghosts.take(KeyHash(key)), known.map(|entry| entry.1));
                }
                prop_assert_eq!(ghosts.index.len(), ring.iter().flatten().count());
            }
        }
    }
}
