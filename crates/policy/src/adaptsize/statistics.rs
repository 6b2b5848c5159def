//! What the tuner remembers of each object: its size, how often the window asked for it, and its smoothed past.
//!
//! Objects stay in the order in which they were first seen, and nothing downstream looks at a
//! key's bits. So two drivers that hash keys differently (the server a URL, the simulator a dense
//! id) feed the model the same numbers in the same order and get the same `c`, bit for bit.

use std::num::NonZeroU32;

use edgeward_types::{KeyHash, mix64};

/// One object the tuner remembers. 32 bytes; the index adds at most 8.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub(super) key: KeyHash,
    /// As last charged; an object that changed is remembered by its newest size.
    pub(super) size_bytes: u64,
    /// Smoothed requests per window over the windows before this one; 0 for a newcomer.
    pub(super) past: f32,
    /// Requests in the window under way.
    pub(super) count: u32,
    /// Where the sampled caches keep this object, if it belongs to their sample.
    pub(super) sample: Option<SampleSlot>,
    /// Bin of the estimate this window's count will be judged against; [`NO_BIN`] for a newcomer.
    pub(super) bin: u16,
    /// Whether the cache held it when last asked.
    pub(super) resident: bool,
}

impl Object {
    /// Exponential smoothing (paper, section 4.2): `weight` of the past, the rest of the window just ended.
    pub(super) fn smooth(&mut self, weight: f64) {
        self.past = ((1.0 - weight) * f64::from(self.count) + weight * f64::from(self.past)) as f32;
    }
}

/// A place in the arrays of the sampled caches, counted from one so that `Option` costs nothing.
pub(super) type SampleSlot = NonZeroU32;

const _: () = assert!(
    size_of::<Object>() == 32,
    "docs/explanation/adaptsize.md promises at most 40 bytes with the index"
);

/// The objects of the window and of the past, with an index from key to place.
#[derive(Clone, Debug)]
pub(super) struct Statistics {
    objects: Vec<Object>,
    /// Open addressing, linear probing, a power of two of slots at most half full. `EMPTY` or a place in `objects`.
    index: Vec<u32>,
    objects_max: usize,
}

impl Statistics {
    /// Room for `objects_max` objects; memory is taken as it is needed.
    pub(super) fn new(objects_max: usize) -> Self {
        assert!(objects_max < EMPTY as usize, "places are 32 bits wide");
        Self {
            objects: Vec::new(),
            index: vec![EMPTY; INDEX_SLOTS_MIN],
            objects_max,
        }
    }

    /// The object of `key`, remembered anew if need be. Nothing when the table is full and the key is not in it.
    pub(super) fn touch(&mut self, key: KeyHash, size_bytes: u64) -> Option<&mut Object> {
        let mask = self.index.len() - 1;
        let mut slot = mix64(key.0) as usize & mask;
        loop {
            match self.index[slot] {
                EMPTY => break,
                place if self.objects[place as usize].key == key => {
                    let object = &mut self.objects[place as usize];
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

    /// Keeps the objects `keep` says to keep, in their order, and gives back memory no longer needed.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Object) -> bool) {
        self.objects.retain(keep);
        // A quarter is slack enough for the next window; beyond that a past peak would be held for ever.
        if self.objects.capacity() > 4 * self.objects.len() {
            self.objects.shrink_to(2 * self.objects.len());
        }
        self.rebuild_index();
    }

    /// Begins a window: counts return to zero, and nobody is a newcomer any more.
    pub(super) fn begin_window(&mut self, bin: impl Fn(f64) -> u16) {
        for object in &mut self.objects {
            object.count = 0;
            object.bin = bin(f64::from(object.past));
        }
    }

    /// Bytes held, for the memory budget.
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
        for (place, object) in self.objects.iter().enumerate() {
            let mut slot = mix64(object.key.0) as usize & mask;
            while self.index[slot] != EMPTY {
                slot = (slot + 1) & mask;
            }
            self.index[slot] = place as u32;
        }
    }
}

/// `Object::bin` of an object that has no past.
pub(super) const NO_BIN: u16 = u16::MAX;

const EMPTY: u32 = u32::MAX;
const INDEX_SLOTS_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list that is searched from the front.
    #[test]
    fn objects_are_found_again_in_the_order_first_seen() {
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
    fn a_full_table_knows_its_objects_and_refuses_others() {
        let mut statistics = Statistics::new(2);
        assert!(statistics.touch(KeyHash(1), 10).is_some());
        assert!(!statistics.is_full());
        assert!(statistics.touch(KeyHash(2), 10).is_some());
        assert!(statistics.is_full());
        assert!(statistics.touch(KeyHash(3), 10).is_none());
        assert!(statistics.touch(KeyHash(1), 10).is_some());
        assert_eq!(statistics.len(), 2);
    }

    /// 0.7, 0.21, 0.063: below the 0.1 at which the published code forgets.
    #[test]
    fn the_past_of_one_request_fades_by_three_tenths_a_window() {
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
