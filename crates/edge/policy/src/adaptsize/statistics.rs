//! The objects that the tuner of AdaptSize knows: their sizes, their requests in this window, and their smoothed
//! requests in past windows. A window is the sequence of requests from one step of the tuner to the next.
//!
//! Objects are in order of their first request, and no later computation depends on the bits of a key. Two
//! callers that hash keys differently (the server a URL, the simulator a dense id) therefore give the model the
//! same numbers in the same order and get exactly the same parameter `c` of AdaptSize.

use std::num::NonZeroU32;

use edgeward_types::{KeyHash, mix64};

/// One object of the table. It has 32 bytes; the index adds 8 to 16.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) key: KeyHash,
    /// The charge in bytes at the last request.
    pub(super) size_bytes: u64,
    /// Smoothed requests per window before this window; 0 for a new object.
    pub(super) past: f32,
    /// Requests in this window.
    pub(super) count: u32,
    /// The slot of this object in the small simulated caches, which have only a sample of the objects.
    pub(super) sample: Option<SampleSlot>,
    /// The bin of `past` at the start of this window: objects with similar `past` have one bin. The calibration learns
    /// how many requests follow on average in each bin. [`NO_BIN`] for a new object.
    pub(super) bin: u16,
    /// True if the cache had the object at the last step of the tuner. Only [`Mode::Horizon`](super::Mode::Horizon)
    /// sets it: this mode predicts the next window from the current content of the cache.
    pub(super) resident: bool,
}

impl Object {
    /// Exponential smoothing (AdaptSize paper, section 4.2): `past` has the weight `weight`, and the count of the
    /// window that ends has the weight `1 - weight`.
    pub(super) fn smooth(&mut self, weight: f64) {
        self.past = ((1.0 - weight) * f64::from(self.count) + weight * f64::from(self.past)) as f32;
    }
}

/// A slot in the arrays of the sampled caches, from 1, so that `Option` takes no extra space.
pub(super) type SampleSlot = NonZeroU32;

const _: () = assert!(
    size_of::<Object>() == 32,
    "docs/explanation/adaptsize.md states 32 bytes per object"
);

/// The objects of this window and of the past, with an index from key to position.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    objects: Vec<Object>,
    /// A hash table with linear probing. Its length is a power of two, and it is at most half full. A slot is
    /// `EMPTY` or a position in `objects`.
    index: Vec<u32>,
    objects_max: usize,
}

impl Statistics {
    /// Makes a table for `objects_max` objects. Memory is allocated as needed.
    pub(super) fn new(objects_max: usize) -> Self {
        assert!(objects_max < EMPTY as usize, "positions are 32 bits wide");
        Self {
            objects: Vec::new(),
            index: vec![EMPTY; INDEX_SLOTS_MIN],
            objects_max,
        }
    }

    /// Counts a request of `key` and returns its object, adding a new one if necessary. Returns `None` if the
    /// table is full and the key is not in it.
    pub(super) fn touch(&mut self, key: KeyHash, size_bytes: u64) -> Option<&mut Object> {
        let mask = self.index.len() - 1;
        let mut slot = mix64(key.0) as usize & mask;
        loop {
            match self.index[slot] {
                EMPTY => break,
                position if self.objects[position as usize].key == key => {
                    let object = &mut self.objects[position as usize];
                    object.size_bytes = size_bytes;
                    object.count = object.count.saturating_add(1);
                    return Some(object);
                }
                _ => slot = (slot + 1) & mask,
            }
        }
        if self.is_full() {
            return None;
        }
        self.index[slot] = self.objects.len() as u32;
        self.objects.push(Object {
            key,
            size_bytes,
            past: 0.0,
            count: 1,
            sample: None,
            bin: NO_BIN,
            resident: false,
        });
        if self.objects.len() * 2 > self.index.len() {
            self.rebuild_index();
        }
        self.objects.last_mut()
    }

    pub(super) fn is_full(&self) -> bool {
        self.objects.len() >= self.objects_max
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn objects(&self) -> &[Object] {
        &self.objects
    }

    pub(super) fn objects_mut(&mut self) -> &mut [Object] {
        &mut self.objects
    }

    /// Keeps the objects for which `keep` returns true, in order, and releases unused memory.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Object) -> bool) {
        self.objects.retain(keep);
        // A vector that is a quarter full has enough slack for the next window. More slack would keep the
        // memory of a past peak.
        if self.objects.capacity() > 4 * self.objects.len() {
            self.objects.shrink_to(2 * self.objects.len());
        }
        self.rebuild_index();
    }

    /// Starts a window: sets all counts to zero. No object is new any more. `bin` returns the bin of a smoothed count.
    pub(super) fn begin_window(&mut self, bin: impl Fn(f64) -> u16) {
        for object in &mut self.objects {
            object.count = 0;
            object.bin = bin(f64::from(object.past));
        }
    }

    /// Bytes of memory, for the memory budget.
    pub(super) fn memory_bytes(&self) -> usize {
        self.objects.capacity() * size_of::<Object>() + self.index.capacity() * size_of::<u32>()
    }

    fn rebuild_index(&mut self) {
        let slots = (self.objects.len() * 2 + 1)
            .next_power_of_two()
            .max(INDEX_SLOTS_MIN);
        self.index.clear();
        self.index.resize(slots, EMPTY);
        if self.index.capacity() > 4 * slots {
            self.index.shrink_to(slots);
        }
        let mask = slots - 1;
        for (position, object) in self.objects.iter().enumerate() {
            let mut slot = mix64(object.key.0) as usize & mask;
            while self.index[slot] != EMPTY {
                slot = (slot + 1) & mask;
            }
            self.index[slot] = position as u32;
        }
    }
}

/// `Object::bin` of a new object: one that was not known at the start of the window.
pub(super) const NO_BIN: u16 = u16::MAX;

const EMPTY: u32 = u32::MAX;
const INDEX_SLOTS_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Method: comparison with a list that is searched from the front.
    #[test]
    fn objects_are_listed_in_the_order_of_their_first_requests() {
        let mut statistics = Statistics::new(10_000);
        let mut list: Vec<(u64, u64, u32)> = Vec::new();
        let mut state = 1_u64;
        for at in 0..20_000_u64 {
            state = mix64(state.wrapping_add(at));
            let (key, size) = (state % 1_500, state >> 40);
            statistics.touch(KeyHash(key), size);
            match list.iter_mut().find(|entry| entry.0 == key) {
                Some(entry) => (entry.1, entry.2) = (size, entry.2 + 1),
                None => list.push((key, size, 1)),
            }
            if at % 5_000 == 4_999 {
                statistics.retain(|object| object.key.0 % 3 != 0);
                list.retain(|entry| entry.0 % 3 != 0);
            }
        }
        let seen: Vec<_> = statistics
            .objects()
            .iter()
            .map(|object| (object.key.0, object.size_bytes, object.count))
            .collect();
        assert_eq!(seen, list);
    }

    #[test]
    fn a_full_table_counts_its_objects_and_rejects_others() {
        let mut statistics = Statistics::new(2);
        assert!(statistics.touch(KeyHash(1), 10).is_some());
        assert!(!statistics.is_full());
        assert!(statistics.touch(KeyHash(2), 10).is_some());
        assert!(statistics.is_full());
        assert!(statistics.touch(KeyHash(3), 10).is_none());
        assert!(statistics.touch(KeyHash(1), 10).is_some());
        assert_eq!(statistics.len(), 2);
    }

    /// 0.7, 0.21, 0.063: the last value is below the 0.1 at which the published code forgets an object.
    #[test]
    fn each_later_window_multiplies_the_past_by_three_tenths() {
        let mut statistics = Statistics::new(10);
        statistics.touch(KeyHash(1), 10);
        for expected in [0.7, 0.21, 0.063] {
            let object = &mut statistics.objects_mut()[0];
            object.smooth(0.3);
            assert!((object.past - expected).abs() < 1e-6, "{}", object.past);
            statistics.begin_window(|_| 0);
        }
    }
}
