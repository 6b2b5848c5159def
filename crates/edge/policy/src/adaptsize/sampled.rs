//! Small exact LRU caches over a sample of the objects, each with its own parameter `c`: an object of `s` bytes is
//! admitted with probability `e^(-s/c)`.
//!
//! The model of AdaptSize, a Markov chain, assumes independent requests. Real traffic has temporal locality: an
//! object is often requested again soon, and LRU without admission has more hits than the model predicts. A
//! tuner that used the model alone was therefore worse than plain LRU on such traffic. These caches measure
//! real hits: the sample has one object in `2^k`, and each cache has `2^-k` of the capacity (Waldspurger et
//! al., "Cache modeling and optimization using miniature simulations", ATC'17).
//!
//! An object is sampled by a random draw at its first request and not by its key, so that the server and the
//! simulator, which hash keys differently, sample the same objects. All caches share each admission draw, so
//! they differ in `c` alone.

use edgeward_types::Seed;

use crate::rng::Rng;

use super::statistics::SampleSlot;

/// The sampled caches and their shared state.
#[derive(Clone, Debug)]
pub(super) struct SampledCaches {
    /// The capacity of each sampled cache: the capacity of the real cache divided by `one_in`.
    capacity_bytes: u64,
    /// The sample has one in `one_in` objects; a power of two.
    one_in: u64,
    caches: Vec<SampledCache>,
    /// The charged size of the object in each slot. A free slot is 0 and listed in `free`.
    sizes: Vec<u64>,
    free: Vec<u32>,
    /// Per slot, the number of its last request in this window, from 1; 0 without a request. A window begins at each
    /// call of [`Self::take_gaps`].
    last_request: Vec<u32>,
    /// The gaps in this window, with the slots of their objects. A gap is the number of requests from one request for
    /// an object to the next request for it.
    gaps: Vec<(SampleSlot, u32)>,
    /// The requests for sampled objects since the last call of [`Self::take_hits`].
    requests: u64,
    rng: Rng,
}

/// One cache: a list from the most to the least recently used object, linked through the slots.
#[derive(Clone, Debug)]
struct SampledCache {
    c: f64,
    links: Vec<Links>,
    newest: u32,
    oldest: u32,
    used_bytes: u64,
    hits: u64,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

impl SampledCaches {
    pub(super) fn new(capacity_bytes: u64, one_in: u64, cs: &[f64], seed: Seed) -> Self {
        assert!(
            one_in.is_power_of_two(),
            "the share of sampled objects is 2^-k"
        );
        Self {
            capacity_bytes: (capacity_bytes / one_in).clamp(1, CAPACITY_BYTES_MAX),
            one_in,
            caches: cs.iter().map(|&c| SampledCache::new(c)).collect(),
            sizes: Vec::new(),
            free: Vec::new(),
            last_request: Vec::new(),
            gaps: Vec::new(),
            requests: 0,
            rng: Rng::new(seed, 0),
        }
    }

    /// Decides if a new object is added to the sample, and returns its slot.
    pub(super) fn try_sample(&mut self) -> Option<SampleSlot> {
        if self.rng.bits() & (self.one_in - 1) != 0 {
            return None;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.sizes.push(0);
            self.last_request.push(0);
            for cache in &mut self.caches {
                cache.links.push(ABSENT);
            }
            self.sizes.len() as u32 - 1
        });
        SampleSlot::new(slot + 1)
    }

    /// Records a request for a sampled object: request number `position` of the window, from 1.
    pub(super) fn request(&mut self, sample: SampleSlot, size_bytes: u64, position: u32) {
        let slot = sample.get() - 1;
        let before = std::mem::replace(&mut self.last_request[slot as usize], position);
        if before > 0 && self.gaps.len() < GAPS_MAX {
            self.gaps.push((sample, position.saturating_sub(before)));
        }
        self.requests += 1;
        // All objects larger than the cache are treated alike: they are never admitted.
        let size_bytes = size_bytes.min(self.capacity_bytes + 1);
        // Admit if a random u from 0 to 1 is below e^(-s/c), that is, if s < -c ln u: one logarithm serves all caches.
        let exponential = -(1.0 - self.rng.unit()).ln();
        let size_before = std::mem::replace(&mut self.sizes[slot as usize], size_bytes);
        for cache in &mut self.caches {
            if cache.holds(slot) {
                cache.hits += 1;
                cache.used_bytes = cache.used_bytes - size_before + size_bytes;
                cache.unlink(slot);
                cache.push(slot);
            } else if size_bytes <= self.capacity_bytes
                && (size_bytes as f64) <= cache.c * exponential
            {
                cache.used_bytes += size_bytes;
                cache.push(slot);
            } else {
                continue;
            }
            while cache.used_bytes > self.capacity_bytes {
                let victim = cache.oldest;
                cache.unlink(victim);
                cache.used_bytes -= self.sizes[victim as usize];
            }
        }
    }

    /// Returns true if any cache has the object.
    pub(super) fn holds(&self, slot: SampleSlot) -> bool {
        self.caches.iter().any(|cache| cache.holds(slot.get() - 1))
    }

    /// Removes an object from the sample.
    pub(super) fn remove(&mut self, slot: SampleSlot) {
        let slot = slot.get() - 1;
        for cache in &mut self.caches {
            if cache.holds(slot) {
                cache.unlink(slot);
                cache.used_bytes -= self.sizes[slot as usize];
            }
        }
        self.sizes[slot as usize] = 0;
        self.last_request[slot as usize] = 0;
        self.free.push(slot);
    }

    /// Returns the `c` of each cache, in order.
    pub(super) fn cs(&self) -> impl Iterator<Item = f64> {
        self.caches.iter().map(|cache| cache.c)
    }

    /// Returns the gaps since the last call, in the order of the requests that ended them. Starts a new window
    /// for the gaps.
    pub(super) fn take_gaps(&mut self) -> Vec<(SampleSlot, u32)> {
        self.last_request.fill(0);
        std::mem::take(&mut self.gaps)
    }

    /// The number of slots, including free ones.
    pub(super) fn slots(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the requests, and the hits of each cache, since the last call.
    pub(super) fn take_hits(&mut self) -> (u64, Vec<u64>) {
        let hits = self
            .caches
            .iter_mut()
            .map(|cache| std::mem::take(&mut cache.hits));
        (std::mem::take(&mut self.requests), hits.collect())
    }

    /// Bytes of memory, for the memory budget.
    pub(super) fn memory_bytes(&self) -> usize {
        self.sizes.capacity() * size_of::<u64>()
            + (self.free.capacity() + self.last_request.capacity()) * size_of::<u32>()
            + self.gaps.capacity() * size_of::<(SampleSlot, u32)>()
            + self
                .caches
                .iter()
                .map(|cache| cache.links.capacity() * size_of::<Links>())
                .sum::<usize>()
    }
}

impl SampledCache {
    fn new(c: f64) -> Self {
        Self {
            c,
            links: Vec::new(),
            newest: END,
            oldest: END,
            used_bytes: 0,
            hits: 0,
        }
    }

    fn holds(&self, slot: u32) -> bool {
        self.links[slot as usize].newer != NOWHERE
    }

    fn push(&mut self, slot: u32) {
        let older = std::mem::replace(&mut self.newest, slot);
        self.links[slot as usize] = Links { newer: END, older };
        match older {
            END => self.oldest = slot,
            older => self.links[older as usize].newer = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Links { newer, older } = std::mem::replace(&mut self.links[slot as usize], ABSENT);
        match newer {
            END => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        match older {
            END => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
    }
}

/// The maximum number of stored gaps, which take 8 MiB. A window of 250 000 requests stays below it.
const GAPS_MAX: usize = 1 << 20;
/// An exbibyte: sums of two sizes stay far below the limit of a u64.
const CAPACITY_BYTES_MAX: u64 = 1 << 60;
/// The link at either end of a list.
const END: u32 = u32::MAX;
/// The link of a slot that is in no list.
const NOWHERE: u32 = u32::MAX - 1;
const ABSENT: Links = Links {
    newer: NOWHERE,
    older: NOWHERE,
};

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Method: one cache that admits all objects and one that admits none, compared with lists in order of use.
    /// Sizes change.
    #[test]
    fn the_caches_equal_lists_in_order_of_use() {
        const CAPACITY: u64 = 10_000;
        // With c = 1e-9 no object is admitted, with infinity every object, so chance has no influence.
        let mut caches = SampledCaches::new(CAPACITY, 1, &[1e-9, f64::INFINITY], Seed(3));
        let slots: Vec<SampleSlot> = (0..60)
            .map(|_| {
                caches
                    .try_sample()
                    .expect("every object belongs to the sample")
            })
            .collect();
        let mut list: VecDeque<(usize, u64)> = VecDeque::new();
        let mut hits = 0;
        let mut state = 7_u64;
        for at in 0..20_000_u32 {
            state = edgeward_types::mix64(state.wrapping_add(u64::from(at)));
            let (object, size) = ((state % 60) as usize, 1 + (state >> 32) % 900);
            caches.request(slots[object], size, at + 1);
            if let Some(position) = list.iter().position(|&(listed, _)| listed == object) {
                hits += 1;
                list.remove(position);
            }
            list.push_back((object, size));
            while list.iter().map(|&(_, size)| size).sum::<u64>() > CAPACITY {
                list.pop_front();
            }
            for (object, &slot) in slots.iter().enumerate() {
                let in_list = list.iter().any(|&(listed, _)| listed == object);
                assert_eq!(caches.holds(slot), in_list, "request {at}, object {object}");
            }
        }
        assert_eq!(caches.take_hits(), (20_000, vec![0, hits]));
        assert_eq!(caches.take_hits(), (0, vec![0, 0]));
    }

    #[test]
    fn the_slot_of_a_removed_object_is_reused() {
        let mut caches = SampledCaches::new(1000, 1, &[f64::INFINITY], Seed(3));
        let first = caches.try_sample().expect("the object is sampled");
        caches.request(first, 100, 1);
        caches.remove(first);
        assert!(!caches.holds(first));
        assert_eq!(caches.try_sample(), Some(first));
        assert_eq!(caches.slots(), 1);
        caches.request(first, 100, 2);
        assert_eq!(
            caches.take_gaps(),
            [],
            "a gap needs two requests of one object"
        );
    }

    #[test]
    fn one_object_in_eight_is_sampled() {
        let mut caches = SampledCaches::new(1 << 30, 8, &[f64::INFINITY], Seed(3));
        let sampled = (0..80_000)
            .filter(|_| caches.try_sample().is_some())
            .count();
        // 10 000 are expected, with a standard deviation of 94. The limit is five standard deviations.
        assert!(sampled.abs_diff(10_000) < 470, "{sampled}");
    }

    #[test]
    fn gaps_are_counted_within_a_window_only() {
        let mut caches = SampledCaches::new(1000, 1, &[f64::INFINITY], Seed(3));
        let slot = caches.try_sample().expect("the object is sampled");
        caches.request(slot, 10, 3);
        caches.request(slot, 10, 8);
        assert_eq!(caches.take_gaps(), [(slot, 5)]);
        caches.request(slot, 10, 2);
        assert_eq!(caches.take_gaps(), []);
    }
}
