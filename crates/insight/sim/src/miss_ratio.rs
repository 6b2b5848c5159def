//! Miss-ratio curves: the miss ratios of caches of many sizes.
//!
//! [`LruCurve`] computes the curve of LRU in one pass. The *stack distance* of a request is the charge of the distinct
//! objects requested since the last request for the same object, including the object itself. An LRU cache hits
//! exactly the requests whose distance is at most its capacity. Source: Mattson, Gecsei, Slutz, Traiger, "Evaluation
//! Techniques for Storage Hierarchies", IBM Systems Journal 1970. A cache never stores an object that is larger than
//! its capacity, but the object counts in the distances of others. The curve is therefore exact only at capacities that
//! are at least the largest charge. Cost: O(log n) per request for `n` objects. Memory: 36 to 68 bytes per object.
//!
//! A [`Sampler`] selects a share of the objects by a hash of their keys. A cache of this share of the capacity has
//! nearly the same miss ratio for the requests of these objects. Source for LRU: Waldspurger, Park, Garthwaite, Ahmad,
//! "Efficient MRC Construction with SHARDS", FAST 2015. Source for simulations of any policy: Waldspurger, Saemundsson,
//! Ahmad, Park, "Cache Modeling and Optimization using Miniature Simulations", USENIX ATC 2017.

use edgeward_types::mix64;
use serde::Serialize;

use crate::objects::{ObjectNumber, Request};
use crate::run::RunReport;

/// A point of a miss-ratio curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The size of the cache in bytes.
    pub capacity_bytes: u64,
    /// Misses per request.
    pub object_miss_ratio: f64,
    /// Bytes missed per byte requested.
    pub byte_miss_ratio: f64,
}

/// Returns up to `points` sizes from `from` to `to` bytes, in ascending order. Neighbours have the same ratio, except
/// for rounding; duplicates are removed.
pub fn curve_capacities(from: u64, to: u64, points: usize) -> Vec<u64> {
    let (first, last) = (from.max(1).min(to) as f64, to.max(1) as f64);
    let steps = points.saturating_sub(1).max(1) as f64;
    let mut capacities: Vec<u64> = (0..points)
        .map(|at| (first * (last / first).powf(at as f64 / steps)).round() as u64)
        .collect();
    capacities.dedup();
    capacities
}

/// Selects a share of the objects by a hash of their keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    rate: f64,
}

impl Sampler {
    /// Selects all objects.
    pub const ALL: Self = Self { rate: 1.0 };

    /// Selects the share `rate` of the objects. A rate above 1 selects all.
    ///
    /// # Panics
    ///
    /// Panics if the rate is not above 0.
    pub fn new(rate: f64) -> Self {
        assert!(rate > 0.0, "a sample has objects");
        Self {
            rate: rate.min(1.0),
        }
    }

    /// The share of the objects that is selected.
    pub const fn rate(self) -> f64 {
        self.rate
    }

    /// Returns true if the object is selected.
    #[inline]
    pub fn selects(self, key: u64) -> bool {
        // The constant makes the choice independent of other hashes of the key.
        let hash = mix64(mix64(key).wrapping_add(0x5bd1_e995_9e37_79b9));
        (hash >> 11) as f64 * 2f64.powi(-53) < self.rate
    }

    /// Returns `value` multiplied by the rate and rounded, at least 1.
    pub fn scale(self, value: u64) -> u64 {
        ((value as f64 * self.rate).round() as u64).max(1)
    }

    /// Returns the point of the curve at `capacity_bytes`. `run` is the report of a cache of
    /// [`scale(capacity_bytes)`](Self::scale) that processed the sampled requests. `requests` is the number of all
    /// requests after the warm-up, sampled or not.
    pub fn point(self, capacity_bytes: u64, run: &RunReport, requests: u64) -> CurvePoint {
        let hit_bytes = run.byte_hit_ratio;
        self.adjusted(
            capacity_bytes,
            run.hits as f64,
            hit_bytes,
            run.requests,
            requests,
        )
    }

    /// Returns the point of the curve at `capacity_bytes`, corrected for the random number of sampled requests.
    ///
    /// A few popular objects get many requests, so the number of sampled requests may differ from its expected value:
    /// the rate times the number of all requests. As in SHARDS, section 3.3, the difference is added to the hits,
    /// because popular objects are hit in caches of nearly all sizes. `hit_share_of_bytes` is the byte hit ratio of the
    /// sample.
    fn adjusted(
        self,
        capacity_bytes: u64,
        hits: f64,
        hit_share_of_bytes: f64,
        sampled_requests: u64,
        requests: u64,
    ) -> CurvePoint {
        let sampled = (sampled_requests as f64).max(1.0);
        let expected = (requests as f64 * self.rate).max(1.0);
        // The difference as a share of the sampled requests. The added hits are assumed to have the mean size.
        let difference = (expected - sampled) / sampled;
        let hit_ratio = (hits / sampled + difference) / (1.0 + difference);
        let byte_hit_ratio = (hit_share_of_bytes + difference) / (1.0 + difference);
        CurvePoint {
            capacity_bytes,
            object_miss_ratio: 1.0 - hit_ratio.clamp(0.0, 1.0),
            byte_miss_ratio: 1.0 - byte_hit_ratio.clamp(0.0, 1.0),
        }
    }
}

/// Computes the miss-ratio curve of LRU in one pass over the requests.
#[derive(Debug)]
pub struct LruCurve {
    capacities_bytes: Vec<u64>,
    sampler: Sampler,
    metadata_bytes: u64,
    /// The number of sampled requests in the warm-up.
    warmup_requests: u64,
    /// For each capacity, the hits that a cache of the next smaller capacity does not have.
    hits: Vec<Hits>,
    seen_requests: u64,
    /// The sampled requests after the warm-up, hits and misses.
    counted: Hits,
    stack: RecencyStack,
}

/// A number of requests and the bytes of their objects.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    requests: u64,
    bytes: u64,
}

impl LruCurve {
    /// Makes a curve without requests. The capacities must be in ascending order. Each object is charged
    /// `metadata_bytes` in addition to its body. `warmup_requests` is a number of requests of the whole trace, sampled
    /// or not.
    pub fn new(
        capacities_bytes: Vec<u64>,
        sampler: Sampler,
        metadata_bytes: u64,
        warmup_requests: u64,
    ) -> Self {
        Self {
            hits: vec![Hits::default(); capacities_bytes.len()],
            capacities_bytes,
            sampler,
            metadata_bytes,
            warmup_requests: (warmup_requests as f64 * sampler.rate).round() as u64,
            seen_requests: 0,
            counted: Hits::default(),
            stack: RecencyStack::default(),
        }
    }

    /// Processes the next requests for objects of the sample, in order.
    pub fn feed_requests(&mut self, requests: &[Request]) {
        for request in requests {
            let charge_bytes = request.size.saturating_add(self.metadata_bytes);
            let distance = self.stack.request(request.object, charge_bytes);
            self.seen_requests += 1;
            if self.seen_requests <= self.warmup_requests {
                continue;
            }
            self.counted.requests += 1;
            self.counted.bytes += request.size;
            let Some(distance) = distance else { continue };
            let distance = distance as f64 / self.sampler.rate;
            let smallest = self
                .capacities_bytes
                .partition_point(|&capacity| (capacity as f64) < distance);
            if let Some(hits) = self.hits.get_mut(smallest) {
                hits.requests += 1;
                hits.bytes += request.size;
            }
        }
    }

    /// Returns one point per capacity. `requests` is the number of all requests after the warm-up, sampled or not.
    pub fn points(&self, requests: u64) -> Vec<CurvePoint> {
        let (mut hits, mut hit_bytes) = (0, 0);
        let bytes = self.counted.bytes.max(1) as f64;
        let point = |(&capacity_bytes, more): (&u64, &Hits)| {
            hits += more.requests;
            hit_bytes += more.bytes;
            self.sampler.adjusted(
                capacity_bytes,
                hits as f64,
                hit_bytes as f64 / bytes,
                self.counted.requests,
                requests,
            )
        };
        self.capacities_bytes
            .iter()
            .zip(&self.hits)
            .map(point)
            .collect()
    }
}

/// The objects in the order of their last requests, as a Fenwick tree of sums of charges (Fenwick, 1994).
///
/// Each request takes a new position at the end. When all positions are used, the objects move to the first positions,
/// and the tree gets twice as many positions as objects. These moves take amortised O(1) per request.
#[derive(Debug, Default)]
struct RecencyStack {
    /// The position of each object's last request, by its number; [`NONE`] for an object without a request.
    positions: Vec<u32>,
    /// The object and its charge at each position; a charge of `None` if the object was requested again.
    objects: Vec<(ObjectNumber, Option<u64>)>,
    /// Node `n` has the sum of the charges at the positions `n - lowest set bit of n` to `n - 1`.
    sums: Vec<u64>,
    total: u64,
    live_objects: usize,
}

impl RecencyStack {
    /// Puts the object on top of the stack. Returns the sum of its charge and the charges of all objects that were
    /// above it, or `None` at its first request.
    fn request(&mut self, object: ObjectNumber, charge_bytes: u64) -> Option<u64> {
        if self.objects.len() + 1 >= self.sums.len() {
            self.compact();
        }
        if object.index() >= self.positions.len() {
            self.positions.resize(object.index() + 1, NONE);
        }
        let before = self.positions[object.index()];
        let distance = (before != NONE).then(|| {
            let before = before as usize;
            let above = self.total - self.sum_to(before);
            let old = self.objects[before].1.take().unwrap_or(0);
            self.add(before, old.wrapping_neg());
            self.live_objects -= 1;
            above + charge_bytes
        });
        let position = self.objects.len();
        self.positions[object.index()] = position as u32;
        self.objects.push((object, Some(charge_bytes)));
        self.add(position, charge_bytes);
        self.live_objects += 1;
        distance
    }

    /// Adds `charge_bytes` to the charge at a position. Two's complement represents a negative number.
    fn add(&mut self, position: usize, charge_bytes: u64) {
        self.total = self.total.wrapping_add(charge_bytes);
        let mut node = position + 1;
        while node < self.sums.len() {
            self.sums[node] = self.sums[node].wrapping_add(charge_bytes);
            node += node & node.wrapping_neg();
        }
    }

    /// Returns the sum of the charges from the first position to this one, inclusive.
    fn sum_to(&self, position: usize) -> u64 {
        let (mut sum, mut node) = (0u64, position + 1);
        while node > 0 {
            sum = sum.wrapping_add(self.sums[node]);
            node &= node - 1;
        }
        sum
    }

    /// Moves the objects to the first positions, in their order, and builds a tree with free positions.
    fn compact(&mut self) {
        self.objects.retain(|(_, charge)| charge.is_some());
        let positions = (2 * self.live_objects).max(POSITIONS_MIN);
        assert!(positions < NONE as usize, "2^31 objects exceed the memory");
        self.sums.clear();
        self.sums.resize(positions + 1, 0);
        // Each node first gets the charge of its last position, then passes its sum to its parent.
        for (position, &(object, charge)) in self.objects.iter().enumerate() {
            self.positions[object.index()] = position as u32;
            self.sums[position + 1] = charge.unwrap_or(0);
        }
        for node in 1..self.sums.len() {
            let parent = node + (node & node.wrapping_neg());
            if parent < self.sums.len() {
                self.sums[parent] = self.sums[parent].wrapping_add(self.sums[node]);
            }
        }
    }
}

/// The position of an object without a request.
const NONE: u32 = u32::MAX;

const POSITIONS_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use edgeward_policy::PolicySpec;
    use edgeward_trace::generate::{Generator, Preset};
    use edgeward_types::Seed;
    use proptest::prelude::*;

    use super::*;
    use crate::{Run, RunConfig, Traffic};

    fn run(policy: PolicySpec, capacity_bytes: u64, warmup_requests: u64) -> Run {
        Run::new(RunConfig {
            policy,
            capacity_bytes,
            warmup_requests,
            object_overhead_bytes: 0,
            seed: Seed(1),
            window_requests: None,
            interval_requests: u64::MAX,
        })
    }

    fn misses(requests: &[Request], run: Run) -> CurvePoint {
        let mut run = run;
        run.feed_requests(requests);
        let report = run.report();
        CurvePoint {
            capacity_bytes: report.capacity_bytes,
            object_miss_ratio: 1.0 - report.object_hit_ratio,
            byte_miss_ratio: 1.0 - report.byte_hit_ratio,
        }
    }

    fn numbered(records: impl IntoIterator<Item = edgeward_trace::Record>) -> Vec<Request> {
        let mut traffic = Traffic::default();
        records
            .into_iter()
            .map(|record| traffic.count(&record))
            .collect()
    }

    proptest! {
        /// The curve equals direct simulations of LRU, with metadata and warm-up, at capacities into which every
        /// object fits.
        #[test]
        fn the_curve_of_all_objects_equals_simulations(
            keys in prop::collection::vec(0u64..60, 1..500),
            metadata_bytes in 0u64..5,
            warmup in 0u64..100,
        ) {
            let requests = numbered(keys.iter().map(|&key| edgeward_trace::Record {
                time: edgeward_types::Timestamp::ZERO,
                key,
                size: 1 + key * key % 17,
            }));
            let capacities = curve_capacities(22, 700, 9);
            let mut curve = LruCurve::new(capacities, Sampler::ALL, metadata_bytes, warmup);
            requests.chunks(7).for_each(|batch| curve.feed_requests(batch));
            let counted = (requests.len() as u64).saturating_sub(warmup);
            prop_assume!(counted > 0);
            for point in curve.points(counted) {
                let lru = run(PolicySpec::LRU, point.capacity_bytes, warmup);
                let expected = misses(&requests, lru.with_metadata_bytes(metadata_bytes));
                prop_assert!((point.object_miss_ratio - expected.object_miss_ratio).abs() < 1e-9);
                prop_assert!((point.byte_miss_ratio - expected.byte_miss_ratio).abs() < 1e-9);
            }
        }
    }

    /// With a quarter of the objects, the mean error is below five percentage points. This holds for LRU by distances,
    /// and for LRU and GDSF in small caches.
    ///
    /// Method: 60,000 requests of generated web traffic, four sizes. The sample has about 15,000 requests. It has a
    /// larger error than a larger sample, because chance decides if the most popular objects are sampled.
    #[test]
    fn sampled_curves_are_close_to_simulations() {
        let workload = Preset::Web.workload().scaled_to(60_000);
        let all = numbered(Generator::new(workload, Seed(5)).expect("a preset is consistent"));
        let sampler = Sampler::new(0.25);
        let sample: Vec<Request> = all
            .iter()
            .filter(|request| sampler.selects(request.key))
            .copied()
            .collect();
        let requests = all.len() as u64;
        let capacities = curve_capacities(4 << 20, 256 << 20, 4);
        let mut curve = LruCurve::new(capacities.clone(), sampler, 0, 0);
        curve.feed_requests(&sample);
        let mut errors = vec![("distances", PolicySpec::LRU, curve.points(requests))];
        for policy in [PolicySpec::LRU, PolicySpec::GDSF] {
            let small = |&capacity: &u64| {
                let mut small = run(policy, sampler.scale(capacity), 0);
                small.feed_requests(&sample);
                sampler.point(capacity, &small.report(), requests)
            };
            errors.push((
                "small caches",
                policy,
                capacities.iter().map(small).collect(),
            ));
        }
        for (method, policy, points) in errors {
            let error = |point: &CurvePoint| {
                let exact = misses(&all, run(policy, point.capacity_bytes, 0));
                (point.object_miss_ratio - exact.object_miss_ratio).abs()
            };
            let mean = points.iter().map(error).sum::<f64>() / points.len() as f64;
            assert!(mean < 0.05, "{policy} by {method}: mean error {mean}");
        }
    }

    #[test]
    fn a_sample_has_about_its_share_of_the_objects() {
        for rate in [0.001, 0.1, 0.5] {
            let sampler = Sampler::new(rate);
            let selected = (0..100_000).filter(|&key| sampler.selects(key)).count() as f64;
            assert!(
                (selected / 100_000.0 / rate - 1.0).abs() < 0.3,
                "{rate}: {selected}"
            );
        }
        assert!((0..1000).all(|key| Sampler::ALL.selects(key)));
    }

    #[test]
    fn capacities_have_equal_ratios_and_the_given_ends() {
        assert_eq!(curve_capacities(10, 1000, 3), [10, 100, 1000]);
        assert_eq!(curve_capacities(1, 4, 9), [1, 2, 3, 4]);
        assert_eq!(curve_capacities(7, 7, 5), [7]);
    }
}
