//! A size threshold tuned by hill climbing with two shadow caches.
//!
//! One shadow has a smaller threshold than the cache, the other a larger one. After each window of requests the
//! threshold moves one step towards the shadow that had more hits.
//!
//! Source: the comparison `HillClimb` of Berger, Sitaraman, Harchol-Balter, "AdaptSize", NSDI 2017; the idea of shadow
//! caches is from Cliffhanger (Cidon, Eisenman, Alizadeh, Katti, NSDI 2016). The AdaptSize paper states no step, window
//! or first threshold; the constants below are our choice.
//!
//! A shadow is a tier with the same eviction rule and without bodies. It receives the requests for a sample of the
//! keys. If the sample has 1/n of the keys, the shadow has 1/n of the capacity. The sample is chosen by a hash of the
//! key, so equal traffic with other keys gives other samples.
//!
//! The search is local: it can stay at a maximum of the hit ratio that is not the highest. If both shadows have equally
//! many hits, for example because no size lies between their thresholds, the threshold rises.
//!
//! Cost: a hit or miss costs one write to the ring of its worker. The tuner's thread simulates two requests for each
//! sampled request. Memory: each shadow has the entries and the index of a tier, about 80 bytes per object of its
//! sample. The sample has all objects in caches below 32 MiB, a quarter at 64 MiB, and 1/64 from 1 GiB on.

use edgeward_types::{KeyHash, Seed, mix64};
use hashbrown::HashMap;

use super::rule::Admission;
use super::tuner::{AdmissionTuner, TunerStep};
use crate::eviction::EvictionSpec;
use crate::object::{Evicted, Object, Verdict};
use crate::objective::Benefit;
use crate::slots::Slot;
use crate::tier::{AnyTier, HitRecorder};

/// Sets a threshold by hill climbing.
#[derive(Debug)]
pub struct HillClimbing {
    /// The threshold of the cache, as a number of steps from 1 byte.
    position: u32,
    /// The position of the capacity.
    position_max: u32,
    smaller: Shadow,
    larger: Shadow,
    /// One of `sample_one_in` keys is sampled. A power of two.
    sample_one_in: u64,
    window_requests: u32,
    /// Requests since the last step.
    requests: u32,
}

impl HillClimbing {
    /// Makes a tuner for a cache of this capacity and eviction rule.
    pub fn new(eviction: EvictionSpec, capacity_bytes: u64, window_requests: Option<u32>) -> Self {
        let capacity_bytes = capacity_bytes.max(1);
        let sample_one_in =
            prev_power_of_two(capacity_bytes / SHADOW_BYTES_MIN).clamp(1, SAMPLE_ONE_IN_MAX);
        let shadow = || Shadow::new(eviction, capacity_bytes / sample_one_in);
        let position_max = (capacity_bytes as f64).log2().ceil() as u32 * STEPS_PER_OCTAVE;
        let mut tuner = Self {
            position: (START_BYTES.ilog2() * STEPS_PER_OCTAVE).min(position_max),
            position_max,
            smaller: shadow(),
            larger: shadow(),
            sample_one_in,
            window_requests: window_requests.unwrap_or(WINDOW_REQUESTS).max(1),
            requests: 0,
        };
        tuner.set_shadows();
        tuner
    }

    /// Returns the threshold before the first step, in bytes.
    pub(super) fn initial_c(capacity_bytes: u64) -> f64 {
        threshold(START_BYTES.ilog2() * STEPS_PER_OCTAVE).min(capacity_bytes as f64)
    }

    /// Sets the thresholds of the shadows on both sides of the position.
    fn set_shadows(&mut self) {
        let below = self.position.saturating_sub(SHADOW_STEPS);
        self.smaller.tier.set_c(threshold(below));
        self.larger
            .tier
            .set_c(threshold(self.position + SHADOW_STEPS));
    }
}

impl AdmissionTuner for HillClimbing {
    fn record(&mut self, key: KeyHash, size_bytes: u64, _hit: bool) -> bool {
        if mix64(key.0 ^ SALT) & (self.sample_one_in - 1) == 0 {
            let object = Object { key, size_bytes };
            self.smaller.request(&object);
            self.larger.request(&object);
        }
        self.requests += 1;
        self.requests >= self.window_requests
    }

    fn step(&mut self, _resident: &dyn Fn(KeyHash) -> bool) -> TunerStep {
        self.requests = 0;
        let smaller = std::mem::take(&mut self.smaller.hits);
        let larger = std::mem::take(&mut self.larger.hits);
        // With equally many hits, a larger threshold is preferred: objects are not rejected without a gain.
        self.position = if smaller > larger {
            self.position.saturating_sub(1)
        } else {
            (self.position + 1).min(self.position_max)
        };
        self.set_shadows();
        TunerStep::without_model(threshold(self.position))
    }

    fn memory_bytes(&self) -> usize {
        let shadows = [&self.smaller, &self.larger];
        shadows.map(Shadow::memory_bytes).iter().sum()
    }
}

/// A simulated cache: a tier, the index of its objects, and its hits since the last step.
#[derive(Debug)]
struct Shadow {
    tier: AnyTier,
    hit_recorder: HitRecorder,
    index: HashMap<KeyHash, Slot>,
    evicted: Vec<Evicted>,
    hits: u64,
}

impl Shadow {
    fn new(eviction: EvictionSpec, capacity_bytes: u64) -> Self {
        let admission = Admission::Threshold {
            size_bytes_max: capacity_bytes,
        };
        let tier = eviction.tier(capacity_bytes, admission, Seed(0));
        Self {
            hit_recorder: tier.hit_recorder(),
            tier,
            index: HashMap::new(),
            evicted: Vec::new(),
            hits: 0,
        }
    }

    fn request(&mut self, object: &Object) {
        if let Some(&slot) = self.index.get(&object.key) {
            self.hits += 1;
            self.hit_recorder.hit_alone(slot);
            return;
        }
        if let Verdict::Admit(slot) = self.tier.offer(object, Benefit::ONE, &mut self.evicted) {
            self.index.insert(object.key, slot);
        }
        for evicted in self.evicted.drain(..) {
            self.index.remove(&evicted.object.key);
        }
    }

    fn memory_bytes(&self) -> usize {
        self.tier.bookkeeping_bytes() + self.index.allocation_size()
    }
}

/// Returns the threshold in bytes at a position.
fn threshold(position: u32) -> f64 {
    (f64::from(position) / f64::from(STEPS_PER_OCTAVE)).exp2()
}

fn prev_power_of_two(number: u64) -> u64 {
    number.checked_ilog2().map_or(0, |log2| 1 << log2)
}

/// Requests between two steps. With a sample of 1/64, each shadow receives about 800 of them.
const WINDOW_REQUESTS: u32 = 50_000;

/// A step changes the threshold by a factor of √2.
const STEPS_PER_OCTAVE: u32 = 2;

/// The shadows have half and twice the threshold of the cache.
const SHADOW_STEPS: u32 = 2;

/// The first threshold. Most objects of web pages are smaller; most chunks of downloads are larger.
const START_BYTES: u64 = 128 << 10;

/// The least capacity of a shadow, unless the cache is smaller. A shadow needs space for large objects.
const SHADOW_BYTES_MIN: u64 = 16 << 20;

const SAMPLE_ONE_IN_MAX: u64 = 64;

/// Makes the sample independent of filters that use the hash of a key.
const SALT: u64 = 0x6869_6c6c;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use edgeward_types::SplitMix64;
    use proptest::prelude::*;

    use super::*;

    /// Textbook LRU with a threshold: a list in order of use.
    #[derive(Default)]
    struct TextbookShadow {
        front_to_back: VecDeque<(u64, u64)>,
        hits: u64,
    }

    impl TextbookShadow {
        fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64, threshold: f64) {
            let found = self.front_to_back.iter().position(|entry| entry.0 == key);
            if let Some(entry) = found.and_then(|at| self.front_to_back.remove(at)) {
                self.hits += 1;
                self.front_to_back.push_front(entry);
            } else if size_bytes <= capacity_bytes && size_bytes as f64 <= threshold {
                self.front_to_back.push_front((key, size_bytes));
                while self.front_to_back.iter().map(|entry| entry.1).sum::<u64>() > capacity_bytes {
                    self.front_to_back.pop_back();
                }
            }
        }
    }

    proptest! {
        /// The threshold after each step is that of a search with two textbook LRU caches. They have half and twice
        /// the threshold.
        #[test]
        fn the_threshold_moves_to_the_better_of_two_textbook_caches(
            keys in prop::collection::vec(0u64..60, 0..600),
        ) {
            const CAPACITY: u64 = 4096;
            let mut tuner = HillClimbing::new(EvictionSpec::Lru, CAPACITY, Some(20));
            let mut shadows = [TextbookShadow::default(), TextbookShadow::default()];
            let mut expected = 4096.0f64;
            for key in keys {
                let size = 1 + mix64(key) % 3000;
                for (shadow, factor) in shadows.iter_mut().zip([0.5, 2.0]) {
                    shadow.request(key, size, CAPACITY, (expected * factor).floor());
                }
                if tuner.record(KeyHash(key), size, false) {
                    let [smaller, larger] = shadows.each_mut().map(|s| std::mem::take(&mut s.hits));
                    let factor = if smaller > larger { 0.5f64.sqrt() } else { 2f64.sqrt() };
                    expected = (expected * factor).clamp(1.0, 4096.0);
                    let found = tuner.step(&|_| false).c;
                    prop_assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
                    expected = found;
                }
            }
        }
    }

    /// Small objects are requested again, large objects are not: the threshold falls below the large ones.
    #[test]
    fn large_one_hit_wonders_push_the_threshold_below_their_size() {
        const MIB: u64 = 1 << 20;
        let mut tuner = HillClimbing::new(EvictionSpec::Lru, 16 * MIB, Some(2_000));
        let mut random = SplitMix64(5);
        let mut threshold = HillClimbing::initial_c(16 * MIB);
        for n in 0..40_000 {
            // The 4,000 small objects have 15.6 MiB, so each large object of 128 KiB displaces some of them.
            let (key, size) = match n % 2 {
                0 => (random.draw() % 4_000, 4 << 10),
                _ => (1_000_000 + n, 128 << 10),
            };
            if tuner.record(KeyHash(key), size, false) {
                threshold = tuner.step(&|_| false).c;
            }
        }
        assert!((4096.0..131_072.0).contains(&threshold), "{threshold}");
    }
}
