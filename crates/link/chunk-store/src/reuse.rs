//! Estimates how many new chunks the store had before, and how large a store would have kept them.
//!
//! A store overwrites its oldest containers. A chunk that is stored again was therefore evicted if at least as many
//! containers as the store has were begun since. A store with more containers than that would have kept the chunk.
//!
//! Only a sample of the chunks is recorded: those whose id has a number of zero bits. Ids are hashes, so the sample is
//! uniform, and each recorded chunk counts for all chunks that the sample omits (Waldspurger et al., "Efficient MRC
//! Construction with SHARDS", FAST 2015). The record is bounded and covers eight times the chunks of the store.

use std::collections::{HashMap, VecDeque};

use edgeward_dedup::id::ChunkId;

/// The sizes of stores for which returned chunks are counted, as multiples of the size of this store.
pub const STORE_MULTIPLES: [u32; 3] = [2, 4, 8];

/// The bytes of the chunks that were stored, with those that the store had before. Estimates from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReuseCounters {
    /// The bytes of chunks that were stored for the first time, or again after a longer time than the record covers.
    pub first_bytes: u64,
    /// The bytes of chunks that were evicted before they were stored again, for each of [`STORE_MULTIPLES`]: those that
    /// a store of this size would have kept, and the next smaller one would not.
    pub returned_bytes: [u64; STORE_MULTIPLES.len()],
}

/// The fate of a recorded chunk until it is stored again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was not evicted: it was corrupt, or only its hash was stored before.
    Kept,
    /// It was evicted. A store of the multiple with this index in [`STORE_MULTIPLES`] would have kept it.
    Evicted(usize),
    /// It was evicted, and the largest of these stores would not have kept it.
    Forgotten,
}

/// A record of the sampled chunks, each with the container in which it was last stored.
#[derive(Debug)]
pub(crate) struct ReuseSample {
    /// The number of containers of the store.
    containers: u32,
    /// A chunk is sampled if these bits of its id are zero.
    mask: u64,
    containers_by_id: HashMap<ChunkId, u32>,
    /// The recorded chunks in the order in which they were stored. A chunk that was stored again is in the queue twice.
    queue: VecDeque<(ChunkId, u32)>,
    /// The highest number of recorded chunks.
    sampled_max: usize,
    counters: ReuseCounters,
}

impl ReuseSample {
    /// Creates a record for a store of this many containers and about this many chunks.
    pub(crate) fn new(containers: u32, chunks: u64, sampled_max: usize) -> Self {
        let longest = u64::from(STORE_MULTIPLES[STORE_MULTIPLES.len() - 1]);
        let per_sampled = (chunks.saturating_mul(longest)).div_ceil(sampled_max.max(1) as u64);
        Self {
            containers,
            mask: per_sampled.max(1).next_power_of_two() - 1,
            containers_by_id: HashMap::new(),
            queue: VecDeque::new(),
            sampled_max,
            counters: ReuseCounters::default(),
        }
    }

    /// Records that a chunk of `length` bytes was stored in the container with this number.
    pub(crate) fn record(&mut self, id: &ChunkId, length: u64, container: u32) {
        if !self.is_sampled(id) {
            return;
        }
        let bytes = length * (self.mask + 1);
        match self.containers_by_id.insert(*id, container) {
            None => self.counters.first_bytes += bytes,
            Some(before) => match self.fate(before, container) {
                Fate::Kept => {}
                Fate::Evicted(nth) => self.counters.returned_bytes[nth] += bytes,
                Fate::Forgotten => self.counters.first_bytes += bytes,
            },
        }
        self.queue.push_back((*id, container));
        while self.queue.len() > self.sampled_max {
            let oldest = self.queue.pop_front();
            let (id, container) = oldest.expect("the queue is not empty");
            if self.containers_by_id.get(&id) == Some(&container) {
                self.containers_by_id.remove(&id);
            }
        }
    }

    /// Returns an estimate of the bytes of the chunks like this one that were stored before and evicted, if the chunk
    /// is stored in this container. Most chunks are not sampled and return 0; a sampled chunk counts for them.
    pub(crate) fn evicted_bytes(&self, id: &ChunkId, length: u64, container: u32) -> u64 {
        let before = self
            .containers_by_id
            .get(id)
            .filter(|_| self.is_sampled(id));
        match before.map(|before| self.fate(*before, container)) {
            Some(Fate::Evicted(_)) => length * (self.mask + 1),
            _ => 0,
        }
    }

    fn is_sampled(&self, id: &ChunkId) -> bool {
        let bits = u64::from_le_bytes(*id.0.first_chunk().expect("the id has sixteen bytes"));
        bits & self.mask == 0
    }

    /// Returns the fate of a chunk of the container `before` until it is stored again in `container`.
    fn fate(&self, before: u32, container: u32) -> Fate {
        // The open container takes the position of the oldest one, so a store keeps one container less than it has
        // positions.
        let needed = u64::from(container.saturating_sub(before)) + 2;
        if needed <= u64::from(self.containers) {
            return Fate::Kept;
        }
        let fits = |multiple: &u32| u64::from(self.containers) * u64::from(*multiple) >= needed;
        let nth = STORE_MULTIPLES.iter().position(fits);
        nth.map_or(Fate::Forgotten, Fate::Evicted)
    }

    /// Forgets all chunks, because the numbers of containers begin again.
    pub(crate) fn clear(&mut self) {
        self.containers_by_id.clear();
        self.queue.clear();
    }

    pub(crate) fn counters(&self) -> ReuseCounters {
        self.counters
    }
}

/// The highest number of recorded chunks of a store. They take about 1.3 MiB.
pub(crate) const SAMPLED_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    use edgeward_types::SplitMix64;

    fn id(number: u64) -> ChunkId {
        ChunkId(edgeward_types::xxh3::xxh3_128(&number.to_le_bytes()).to_le_bytes())
    }

    /// Stores `rounds` times the same chunks, ten in each container, and returns the counters.
    fn cycle(
        containers: u32,
        cycle_containers: u32,
        rounds: u32,
        sampled_max: usize,
    ) -> ReuseCounters {
        let chunks = u64::from(containers) * 10;
        let mut sample = ReuseSample::new(containers, chunks, sampled_max);
        for container in 0..cycle_containers * rounds {
            for chunk in 0..10 {
                let number = u64::from(container % cycle_containers) * 10 + chunk;
                sample.record(&id(number), 100, container);
            }
        }
        sample.counters()
    }

    /// A working set that is a little larger than the store needs twice the store, and so on. Both sides of each
    /// boundary: a store of `n` positions keeps `n - 1` containers beside the open one.
    #[test]
    fn returned_chunks_are_counted_by_the_store_that_would_have_kept_them() {
        let returned = |cycle_containers| {
            let counters = cycle(100, cycle_containers, 3, usize::MAX);
            let once = u64::from(cycle_containers) * 1000;
            let all = counters.returned_bytes.iter().sum::<u64>() + counters.first_bytes;
            // A chunk that the store still had would not be stored again, so it is not counted.
            let expected = if cycle_containers < 99 {
                once
            } else {
                3 * once
            };
            assert_eq!(all, expected);
            counters.returned_bytes.map(|bytes| bytes / once)
        };
        assert_eq!(returned(98), [0, 0, 0]);
        assert_eq!(returned(99), [2, 0, 0]);
        assert_eq!(returned(198), [2, 0, 0]);
        assert_eq!(returned(199), [0, 2, 0]);
        assert_eq!(returned(398), [0, 2, 0]);
        assert_eq!(returned(399), [0, 0, 2]);
        assert_eq!(returned(798), [0, 0, 2]);
        assert_eq!(returned(799), [0, 0, 0]);
    }

    /// A sample of one in 16 chunks estimates the bytes within a tenth, and has at most the permitted number of chunks.
    #[test]
    fn a_sample_estimates_the_bytes() {
        let (containers, sampled_max) = (1000, 5000);
        let exact = cycle(containers, 1500, 3, usize::MAX);
        let estimate = cycle(containers, 1500, 3, sampled_max);
        assert_ne!(exact, estimate);
        for (exact, estimate) in [
            (exact.first_bytes, estimate.first_bytes),
            (exact.returned_bytes[0], estimate.returned_bytes[0]),
        ] {
            assert!(
                exact.abs_diff(estimate) * 10 < exact,
                "{exact} and {estimate}"
            );
        }
    }

    #[test]
    fn the_record_is_bounded() {
        let mut sample = ReuseSample::new(10, 1, 100);
        let mut random = SplitMix64(7);
        for container in 0..10_000 {
            sample.record(&id(random.draw() % 500), 100, container);
            assert!(sample.containers_by_id.len() <= 100 && sample.queue.len() <= 100);
        }
        sample.clear();
        assert!(sample.containers_by_id.is_empty() && sample.queue.is_empty());
    }
}
