//! Ghosts: keys and sizes of evicted objects, in lists from the newest to the oldest.
//!
//! All operations take O(1). A ghost takes 44 bytes: 24 in its list, 8 for the key, 8 in the index and 4 for reuse.

use edgeward_types::{KeyHash, mix64};
use hashbrown::HashTable;

use super::links::{Index, Lists};
use crate::object::Object;

/// `N` lists of ghosts. A key has at most one ghost in all lists. An [`Index`] is here the number of a ghost.
#[derive(Debug)]
pub(super) struct Ghosts<const N: usize> {
    lists: Lists<N>,
    /// The key of each ghost, by the number of the ghost.
    keys: Vec<KeyHash>,
    /// Finds the number of the ghost of a key.
    index: HashTable<Index>,
    /// The numbers of removed ghosts, which the next ghosts use again.
    free: Vec<Index>,
}

/// A ghost that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ghost {
    pub(super) list: usize,
    pub(super) index: Index,
    pub(super) size_bytes: u64,
}

impl<const N: usize> Ghosts<N> {
    pub(super) fn new() -> Self {
        Self {
            lists: Lists::new(),
            keys: Vec::new(),
            index: HashTable::new(),
            free: Vec::new(),
        }
    }

    /// Adds an object as the newest ghost of `list`. Returns the number of the ghost, which it has until it is removed.
    pub(super) fn insert(&mut self, list: usize, object: &Object) -> Index {
        // A key that was filled twice has two objects. Only the last one evicted has a ghost.
        self.take(object.key);
        let index = self.free.pop().unwrap_or_else(|| {
            self.keys.push(object.key);
            Index::try_from(self.keys.len() - 1).expect("the number of ghosts is limited")
        });
        self.keys[index as usize] = object.key;
        self.lists.push(list, index, object.size_bytes);
        let keys = &self.keys;
        self.index
            .insert_unique(mix64(object.key.0), index, |&at| mix64(keys[at as usize].0));
        index
    }

    /// Removes and returns the ghost of a key, if it has one.
    pub(super) fn take(&mut self, key: KeyHash) -> Option<Ghost> {
        let keys = &self.keys;
        let entry = self
            .index
            .find_entry(mix64(key.0), |&at| keys[at as usize] == key)
            .ok()?;
        let (index, _) = entry.remove();
        let size_bytes = self.lists.size_bytes(index);
        let list = self.lists.remove(index).expect("in the index");
        self.free.push(index);
        Some(Ghost {
            list,
            index,
            size_bytes,
        })
    }

    /// Removes the oldest ghosts of `list` until their objects had at most `bytes_max` bytes, and the list has at most
    /// `GHOSTS_PER_RESIDENT` ghosts per resident and `GHOSTS_MIN` more.
    pub(super) fn trim(&mut self, list: usize, bytes_max: u64, residents: usize) {
        let ghosts_max = GHOSTS_PER_RESIDENT * residents + GHOSTS_MIN;
        while self.lists.bytes(list) > bytes_max || self.lists.objects(list) > ghosts_max {
            let oldest = self.lists.oldest(list).expect("the list is not empty");
            self.take(self.keys[oldest as usize]);
        }
    }

    /// Returns the bytes of the objects whose ghosts are in `list`.
    pub(super) fn bytes(&self, list: usize) -> u64 {
        self.lists.bytes(list)
    }

    /// Returns the bytes of the tables. The fill of the index varies, so its mean size per entry is used.
    pub(super) fn bookkeeping_bytes(&self) -> usize {
        self.lists.bookkeeping_bytes()
            + self.keys.len() * (size_of::<KeyHash>() + INDEX_BYTES + size_of::<Index>())
    }
}

/// The maximum number of ghosts in a list for each resident object. One suffices if ghosts and residents have the same
/// mean size. Without a maximum, many small ghosts would take much memory.
const GHOSTS_PER_RESIDENT: usize = 2;

/// The number of ghosts that a list may have without any resident. They take 45 KB.
const GHOSTS_MIN: usize = 1024;

/// The mean size of an entry in the index: 4 bytes and a control byte, at a fill of 44 to 88 %.
const INDEX_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_driver::object;

    proptest! {
        /// The ghosts equal those of a reference implementation: a vector of keys per list, from the oldest.
        #[test]
        fn the_ghosts_equal_vectors(
            steps in prop::collection::vec((0u8..4, 0u64..30, 0usize..2), 0..300),
            bytes_max in 0u64..200,
        ) {
            let mut ghosts = Ghosts::<2>::new();
            let mut vectors: [Vec<u64>; 2] = [Vec::new(), Vec::new()];
            for (step, key, list) in steps {
                let old = vectors.iter().position(|vector| vector.contains(&key));
                match step {
                    0 => prop_assert_eq!(ghosts.take(KeyHash(key)).map(|ghost| ghost.list), old),
                    1 => ghosts.trim(list, bytes_max, 0),
                    _ => _ = ghosts.insert(list, &object(key, key + 1)),
                }
                if let (0 | 2 | 3, Some(old)) = (step, old) {
                    vectors[old].retain(|&other| other != key);
                }
                match step {
                    0 => {}
                    1 => while vectors[list].iter().map(|key| key + 1).sum::<u64>() > bytes_max {
                        vectors[list].remove(0);
                    },
                    _ => vectors[list].push(key),
                }
                for (list, vector) in vectors.iter().enumerate() {
                    let bytes: u64 = vector.iter().map(|key| key + 1).sum();
                    prop_assert_eq!(ghosts.bytes(list), bytes);
                }
                prop_assert_eq!(ghosts.index.len(), vectors.iter().map(Vec::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn the_number_of_ghosts_is_limited() {
        let mut ghosts = Ghosts::<1>::new();
        for key in 0..3 * GHOSTS_MIN as u64 {
            ghosts.insert(0, &object(key, 1));
            ghosts.trim(0, u64::MAX, 5);
        }
        let ghosts_max = GHOSTS_MIN + 5 * GHOSTS_PER_RESIDENT;
        assert_eq!(ghosts.bytes(0), ghosts_max as u64);
        let oldest = (3 * GHOSTS_MIN - ghosts_max) as u64;
        assert_eq!(ghosts.take(KeyHash(oldest - 1)), None);
        assert!(ghosts.take(KeyHash(oldest)).is_some());
        assert!(
            ghosts.bookkeeping_bytes() <= (ghosts_max + 1) * 44,
            "a ghost takes 44 bytes"
        );
    }
}
