//! Hyperbolic caching: of 64 random objects, evicts the one with the fewest requests per byte and time in the cache.
//!
//! The priority of an object is `n / (t s)`: its requests, divided by the time since it entered the cache and by its
//! size. Time is counted in requests. Each request for another object lowers the priority, at a different rate for each
//! object, so no queue can keep the order. An eviction therefore compares random objects only.
//!
//! The priority of a new object would be far too high, because `t` is 1. Its initial priority is therefore a tenth of
//! this value, plus nine tenths of the priority of the last victim. The initial `n` is computed from this priority.
//!
//! Source: Blankstein, Sen and Freedman, "Hyperbolic Caching: Flexible Caching for Web Applications", USENIX ATC 2017,
//! with the size-aware priority and the weight of 0.1 of its published code. Expiry and classes of costs are left out.
//!
//! Cost: O(1), with 64 random reads per eviction. Memory per object: 24 bytes for the order.

use edgeward_types::Seed;

use super::links::Index;
use super::order::{HitLog, Hits, ListOrder};
use super::residents::Residents;
use crate::object::Object;
use crate::rng::Rng;

/// Evicts one of 64 random objects: the one with the fewest requests per byte and time.
#[derive(Debug)]
pub struct Hyperbolic {
    residents: Residents,
    rng: Rng,
    states: Vec<State>,
    /// The number of requests so far.
    now: u64,
    /// The priority of the last victim, or 0 before the first eviction.
    victim_priority: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// `1 / s`.
    per_byte: f32,
    /// `n`: the initial value, plus one for each hit.
    requests: f32,
    entered_at: u64,
}

const _: () = assert!(size_of::<State>() == 16);

impl ListOrder for Hyperbolic {
    const HITS: Hits = Hits::InOrder;

    fn new(_capacity_bytes: u64, seed: Seed) -> Self {
        Self {
            residents: Residents::default(),
            rng: Rng::new(seed, DRAWS_STREAM),
            states: Vec::new(),
            now: 0,
            victim_priority: 0.0,
        }
    }

    fn offered(&mut self, _object: &Object) {
        self.now += 1;
    }

    fn enter(&mut self, index: Index, object: &Object) {
        let at = index as usize;
        if at >= self.states.len() {
            self.states.resize(at + 1, State::default());
        }
        let per_byte = 1.0 / object.size_bytes.max(1) as f64;
        let requests = match self.victim_priority > 0.0 {
            true => NEW_WEIGHT + (1.0 - NEW_WEIGHT) * self.victim_priority / per_byte,
            false => 1.0,
        };
        self.states[at] = State {
            per_byte: per_byte as f32,
            requests: requests as f32,
            entered_at: self.now,
        };
        self.residents.insert(index);
    }

    fn hit(&mut self, index: Index) {
        self.now += 1;
        self.states[index as usize].requests += 1.0;
    }

    fn victim(&mut self, _incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        let mut rng = self.rng.clone();
        let sample = self.residents.sample(SAMPLES, &mut rng);
        let victim = sample.min_by(|&a, &b| self.priority(a).total_cmp(&self.priority(b)));
        self.rng = rng;
        victim
    }

    fn evict(&mut self, index: Index, _object: &Object) {
        self.victim_priority = self.priority(index);
        self.remove(index);
    }

    fn remove(&mut self, index: Index) {
        self.residents.remove(index);
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.states.len() * size_of::<State>() + self.residents.bookkeeping_bytes()
    }
}

impl Hyperbolic {
    fn priority(&self, index: Index) -> f64 {
        let state = &self.states[index as usize];
        let time = (self.now - state.entered_at + 1) as f64;
        f64::from(state.requests) * f64::from(state.per_byte) / time
    }
}

/// The number of objects that an eviction compares.
const SAMPLES: usize = 64;

/// The weight of a new object's own priority. The priority of the last victim has the remaining weight.
const NEW_WEIGHT: f64 = 0.1;

/// The number of the random stream for the draws. The admission rule uses stream 0.
const DRAWS_STREAM: u64 = 1;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Admission;
    use crate::lists::ListTier;
    use crate::test_driver::{Driver, size_of_key};

    /// `(key, n, time of entry)` of each object.
    type Table = Vec<(u64, f64, u64)>;

    proptest! {
        /// With fewer objects than samples, the victims are the objects with the lowest priorities, and no more than
        /// needed.
        #[test]
        fn the_victim_has_the_lowest_priority(
            keys in prop::collection::vec(0u64..60, 0..400),
            capacity in 40u64..600,
        ) {
            let tier = ListTier::<Hyperbolic>::new(capacity, Admission::Always, Seed(1));
            let mut ours = Driver::new(tier);
            let mut table = Table::new();
            let mut victim_priority = 0.0;
            for (now, &key) in keys.iter().enumerate() {
                let (now, size) = (now as u64 + 1, size_of_key(key));
                let known = table.iter_mut().find(|entry| entry.0 == key);
                prop_assert_eq!(ours.request(key, size), known.is_some());
                if let Some(entry) = known {
                    entry.1 += 1.0;
                    continue;
                }
                let priority = |entry: &(u64, f64, u64)| {
                    entry.1 / (size_of_key(entry.0) as f64 * (now - entry.2 + 1) as f64)
                };
                let is_resident = |entry: &(u64, f64, u64)| ours.index.contains_key(&entry.0);
                let bytes = |entries: &Table| entries.iter().map(|entry| size_of_key(entry.0)).sum::<u64>();
                let (stays, victims): (Table, Table) = table.iter().partition(|entry| is_resident(entry));
                prop_assert!(bytes(&stays) + size <= capacity);
                // Priorities that differ by rounding only count as equal, and the order of equal ones is open.
                let highest = victims.iter().map(priority).fold(0.0, f64::max);
                let lowest = stays.iter().map(priority).fold(f64::INFINITY, f64::min);
                prop_assert!(highest <= lowest * (1.0 + 1e-5), "another victim for key {}", key);
                if !victims.is_empty() {
                    let is_last = |entry: &&(u64, f64, u64)| priority(entry) >= highest * (1.0 - 1e-5);
                    let is_needed = |entry: &(u64, f64, u64)| {
                        bytes(&stays) + size_of_key(entry.0) + size > capacity
                    };
                    let mut last = victims.iter().filter(is_last);
                    prop_assert!(last.any(is_needed), "one victim more than needed for key {}", key);
                    victim_priority = highest;
                }
                table = stays;
                let initial = match victim_priority > 0.0 {
                    true => 0.1 + 0.9 * victim_priority * size as f64,
                    false => 1.0,
                };
                table.push((key, initial, now));
            }
        }
    }
}
