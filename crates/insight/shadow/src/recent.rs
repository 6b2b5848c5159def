//! A table of the most recent keys with a limit.

use std::collections::HashMap;

/// The values of the keys that were used most recently.
///
/// The table has two generations. If the younger one is full, the older one is dropped. A key that is used moves to the
/// younger one. At least `capacity / 2` of the last used keys are therefore present, and never more than `capacity`.
#[derive(Debug)]
pub(crate) struct Recent<V> {
    young: HashMap<u64, V>,
    old: HashMap<u64, V>,
    generation_max: usize,
}

impl<V: Default> Recent<V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            generation_max: (capacity / 2).max(1),
        }
    }

    /// Returns the value of a key, which is the default value if the table does not have the key.
    pub(crate) fn entry(&mut self, key: u64) -> &mut V {
        if !self.young.contains_key(&key) {
            if self.young.len() == self.generation_max {
                self.old = std::mem::take(&mut self.young);
            }
            let value = self.old.remove(&key).unwrap_or_default();
            self.young.insert(key, value);
        }
        self.young.get_mut(&key).expect("the key was inserted")
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: use more keys than the capacity, and check the last half of them and the size after each.
    #[test]
    fn the_last_used_keys_are_present_and_the_table_is_bounded() {
        let mut table: Recent<u64> = Recent::new(8);
        for key in 0..100_u64 {
            *table.entry(key) = key + 1;
            assert!(table.len() <= 8);
            for recent in key.saturating_sub(3)..=key {
                assert_eq!(*table.entry(recent), recent + 1, "{key}");
            }
        }
        assert_eq!(*table.entry(0), 0, "an old key is forgotten");
    }
}
