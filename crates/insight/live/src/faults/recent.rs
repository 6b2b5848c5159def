//! A table of fixed size that keeps what was used recently.

/// A table from hashes to values. It has a fixed number of slots in buckets of eight. A new hash takes the slot of its
/// bucket that was used longest ago.
#[derive(Debug)]
pub(super) struct RecentTable<V> {
    buckets: Vec<[Slot<V>; BUCKET_SLOTS]>,
    uses: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot<V> {
    hash: u64,
    /// The number of the last use. 0: the slot is free.
    used: u64,
    value: V,
}

impl<V: Copy + Default> RecentTable<V> {
    /// Returns an empty table that takes at most `memory_max_bytes`, and has at least one bucket.
    pub(super) fn new(memory_max_bytes: u64) -> Self {
        let bucket_bytes = size_of::<[Slot<V>; BUCKET_SLOTS]>() as u64;
        let buckets = (memory_max_bytes / bucket_bytes).max(1) as usize;
        Self {
            buckets: vec![[Slot::default(); BUCKET_SLOTS]; buckets],
            uses: 0,
        }
    }

    /// Returns the value of a hash, and true if the table had it. A new value is the default.
    pub(super) fn entry(&mut self, hash: u64) -> (&mut V, bool) {
        self.uses += 1;
        let uses = self.uses;
        // Multiplication maps the hash to the buckets without a bias.
        let bucket = ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize;
        let slots = &mut self.buckets[bucket];
        let known = slots
            .iter()
            .position(|slot| slot.used > 0 && slot.hash == hash);
        let oldest = || {
            let slots = slots.iter().enumerate();
            slots
                .min_by_key(|(_, slot)| slot.used)
                .map_or(0, |(at, _)| at)
        };
        let at = known.unwrap_or_else(oldest);
        let slot = &mut slots[at];
        if known.is_none() {
            (slot.hash, slot.value) = (hash, V::default());
        }
        slot.used = uses;
        (&mut slot.value, known.is_some())
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.buckets.capacity() * size_of::<[Slot<V>; BUCKET_SLOTS]>()) as u64
    }
}

const BUCKET_SLOTS: usize = 8;

#[cfg(test)]
mod tests {
    use edgeward_types::mix64;

    use super::*;

    /// Method: one bucket. The ninth hash takes the slot of the first, which was used longest ago.
    #[test]
    fn a_full_bucket_forgets_the_value_that_was_used_longest_ago() {
        let mut table = RecentTable::<u64>::new(0);
        for hash in 0..8 {
            *table.entry(hash).0 = hash + 10;
        }
        assert_eq!(table.entry(0), (&mut 10, true));
        assert_eq!(table.entry(8), (&mut 0, false));
        assert_eq!(table.entry(0), (&mut 10, true));
        assert_eq!(table.entry(1), (&mut 0, false));
    }

    #[test]
    fn a_table_takes_its_memory_and_no_more() {
        let mut table = RecentTable::<[u64; 4]>::new(1 << 16);
        (0..100_000).for_each(|n| _ = table.entry(mix64(n)));
        let bytes = table.memory_bytes();
        assert!((60_000..=1 << 16).contains(&bytes), "{bytes}");
    }
}
