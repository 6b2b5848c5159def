//! Reuse distances, and the hit ratios of LRU caches of all sizes.
//!
//! The *reuse distance* of a request is the total size of the distinct objects requested since the last request
//! for the same object, including the object itself. An LRU cache of `C` bytes hits exactly the requests with a
//! distance of at most `C` (Mattson et al., 1970). One pass therefore gives the hit ratio at every size. A
//! request for an object that is larger than the cache is never a hit, because its distance includes the object.
//!
//! A distance in a sample is about the true distance times the sampling rate, so it is divided by this rate. A few
//! popular objects get many of the requests, and chance decides how many of these objects are sampled. The number of
//! sampled requests therefore differs from the expected number, which is the sampling rate times the number of all
//! requests. Like in SHARDS (section 3.3 of the paper, see [`crate::Sample`]), the difference is added to the hits at
//! the shortest distance, because requests for popular objects have short distances.

use hashbrown::HashMap;

use crate::CompleteSample;

/// Hit ratios of an LRU cache by its size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReuseCurve {
    /// The points of the curve, the smallest cache first. There are four points per doubling of the size, up to
    /// the size above which the hit ratios do not increase.
    pub points: Vec<ReusePoint>,
}

/// The hit ratios of an LRU cache of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReusePoint {
    /// The size of the cache in bytes.
    pub cache_bytes: u64,
    /// The hits divided by the requests, including those of the cold start.
    pub object_hit_ratio: f64,
    /// The bytes of hits divided by the bytes of all requests.
    pub byte_hit_ratio: f64,
}

/// The distinct objects requested within one interval of time. The figures are estimated from a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkingSet {
    /// The start of the interval, in seconds since 1970.
    pub from_secs: u64,
    /// The number of distinct objects.
    pub objects: f64,
    /// The total size of these objects in bytes.
    pub bytes: f64,
    /// The number of objects without an earlier request.
    pub new_objects: f64,
    /// The total size of these new objects in bytes.
    pub new_bytes: f64,
}

impl ReuseCurve {
    /// Computes the curve of a sample. The curve of an empty sample has no points.
    pub fn from_sample(sampled: &CompleteSample) -> Self {
        if sampled.records.is_empty() {
            return Self::default();
        }
        let mut steps: Vec<DistanceStep> = Vec::new();
        let mut stack = RecencyStack::new(sampled.records.len());
        let (mut bytes, mut last): (f64, HashMap<u64, usize>) = (0.0, HashMap::new());
        for (at, record) in sampled.records.iter().enumerate() {
            bytes += record.size as f64;
            if let Some(before) = last.insert(record.key, at) {
                let distance = stack.bytes_above(before) + record.size;
                let step = step_of(distance as f64 / sampled.rate);
                if steps.len() <= step {
                    steps.resize(step + 1, DistanceStep::default());
                }
                steps[step].hits += 1.0;
                steps[step].bytes += record.size as f64;
                stack.remove(before, record.size);
            }
            stack.insert(at, record.size);
        }
        let sampled_requests = sampled.records.len() as f64;
        let expected_requests = sampled.requests as f64 * sampled.rate;
        let missing = expected_requests - sampled_requests;
        // `missing` is negative if the sample has more requests than expected. The missing requests are assumed to
        // have the mean size of the sampled requests.
        let missing_bytes = missing * bytes / sampled_requests;
        let (mut hits, mut hit_bytes) = (missing, missing_bytes);
        let mut points = Vec::new();
        let whole_bytes = bytes + missing_bytes;
        for (step, row) in steps.iter().enumerate() {
            hits += row.hits;
            hit_bytes += row.bytes;
            if points.is_empty() && row.hits == 0.0 {
                continue;
            }
            points.push(ReusePoint {
                cache_bytes: size_of_step(step),
                object_hit_ratio: (hits / expected_requests).clamp(0.0, 1.0),
                byte_hit_ratio: (hit_bytes / whole_bytes).clamp(0.0, 1.0),
            });
        }
        Self { points }
    }

    /// Returns the point of the largest size up to `cache_bytes`, or `None` below the first point.
    pub fn at(&self, cache_bytes: u64) -> Option<&ReusePoint> {
        let after = self
            .points
            .partition_point(|point| point.cache_bytes <= cache_bytes);
        self.points[..after].last()
    }
}

/// The number of requests whose distance belongs to one step of the curve, and their bytes.
#[derive(Clone, Copy, Default)]
struct DistanceStep {
    hits: f64,
    bytes: f64,
}

/// Returns the number of the first step whose cache size is at least the distance.
fn step_of(distance: f64) -> usize {
    (distance.max(1.0).log2() * STEPS_PER_DOUBLING - 1e-9).ceil() as usize
}

fn size_of_step(step: usize) -> u64 {
    // Distances are whole bytes, so rounding the size down does not change the hits.
    (step as f64 / STEPS_PER_DOUBLING).exp2() as u64
}

const STEPS_PER_DOUBLING: f64 = 4.0;

/// The objects in the order of their last requests, as a Fenwick tree of sums of sizes (Fenwick, 1994). The
/// objects above an object were requested after it. Their total size is computed in O(log n) steps.
struct RecencyStack {
    sums: Vec<u64>,
    total: u64,
}

impl RecencyStack {
    fn new(positions: usize) -> Self {
        Self {
            sums: vec![0; positions + 1],
            total: 0,
        }
    }

    fn insert(&mut self, at: usize, size: u64) {
        self.total += size;
        let mut node = at + 1;
        while node < self.sums.len() {
            self.sums[node] += size;
            node += node & node.wrapping_neg();
        }
    }

    fn remove(&mut self, at: usize, size: u64) {
        self.total -= size;
        let mut node = at + 1;
        while node < self.sums.len() {
            self.sums[node] -= size;
            node += node & node.wrapping_neg();
        }
    }

    /// Returns the total size of the objects whose last request is after position `at`.
    fn bytes_above(&self, at: usize) -> u64 {
        let mut below = 0;
        let mut node = at + 1;
        while node > 0 {
            below += self.sums[node];
            node &= node - 1;
        }
        self.total - below
    }
}

impl WorkingSet {
    /// Computes the working set of each interval of this length from a sample. Intervals without requests are
    /// omitted.
    pub fn per_interval(seconds: u64, sampled: &CompleteSample) -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::new();
        // The interval of each object's last request.
        let mut last: HashMap<u64, u64> = HashMap::new();
        for record in &sampled.records {
            let interval = record.time.as_secs() / seconds.max(1);
            let from_secs = interval * seconds.max(1);
            if rows.last().is_none_or(|row| row.from_secs != from_secs) {
                rows.push(Self {
                    from_secs,
                    ..Self::default()
                });
            }
            let row = rows.last_mut().expect("a row was pushed above");
            let before = last.insert(record.key, interval);
            if before == Some(interval) {
                continue;
            }
            let (objects, bytes) = (1.0 / sampled.rate, record.size as f64 / sampled.rate);
            row.objects += objects;
            row.bytes += bytes;
            if before.is_none() {
                row.new_objects += objects;
                row.new_bytes += bytes;
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use edgeward_trace::Record;
    use edgeward_trace::generate::{Generator, Preset};
    use edgeward_types::xxh3::xxh3_64;
    use edgeward_types::{Seed, Timestamp};

    use crate::{Entry, Sample};

    use super::*;

    fn sampled(keys_and_times: &[(u64, u64)]) -> CompleteSample {
        let record = |&(key, time): &(u64, u64)| Record {
            time: Timestamp::from_secs(time),
            key,
            size: 1 + key * key % 17,
        };
        CompleteSample {
            rate: 1.0,
            records: keys_and_times.iter().map(record).collect(),
            requests: keys_and_times.len() as u64,
            sized_requests: keys_and_times.len() as u64,
        }
    }

    /// Returns the hits, and the bytes of hits, of an LRU cache that is implemented as a list; the most recent
    /// object is first.
    fn lru_hits(records: &[Record], capacity: u64) -> (u64, u64) {
        let (mut list, mut hits, mut bytes): (Vec<Record>, u64, u64) = (Vec::new(), 0, 0);
        for record in records {
            if let Some(at) = list.iter().position(|other| other.key == record.key) {
                list.remove(at);
                hits += 1;
                bytes += record.size;
            }
            if record.size <= capacity {
                list.insert(0, *record);
            }
            while list.iter().map(|other| other.size).sum::<u64>() > capacity {
                list.pop();
            }
        }
        (hits, bytes)
    }

    proptest! {
        /// Method: compare with an LRU cache of each size of the curve from 17 bytes, the largest size of an object.
        /// An object that does not fit would bypass the cache, but it would increase the distances of others.
        #[test]
        fn the_curve_equals_the_hits_of_lru_caches_of_all_sizes(
            keys in prop::collection::vec((0u64..30, Just(0u64)), 1..300)
        ) {
            let sampled = sampled(&keys);
            let whole: u64 = sampled.records.iter().map(|record| record.size).sum();
            let curve = ReuseCurve::from_sample(&sampled);
            let rises = curve.points.is_sorted_by(|a, b| {
                a.cache_bytes <= b.cache_bytes && a.object_hit_ratio <= b.object_hit_ratio
            });
            prop_assert!(rises);
            for point in curve.points.iter().filter(|point| point.cache_bytes >= 17) {
                let (hits, bytes) = lru_hits(&sampled.records, point.cache_bytes);
                prop_assert!((point.object_hit_ratio - hits as f64 / keys.len() as f64).abs() < 1e-9);
                prop_assert!((point.byte_hit_ratio - bytes as f64 / whole as f64).abs() < 1e-9);
            }
            let (most, _) = lru_hits(&sampled.records, u64::MAX);
            let last = curve.points.last().map_or(0.0, |point| point.object_hit_ratio);
            prop_assert!((last - most as f64 / keys.len() as f64).abs() < 1e-9);
        }
    }

    /// Method: generate 150,000 requests of synthetic web traffic. Compare, at every cache size, a sample that
    /// has space for all requests with a sample that has space for a third. With different seeds the largest
    /// difference is 2 to 5 percentage points; for a sample with space for 1/16 it is up to 13. In the product,
    /// the crate `logs` keeps a million requests.
    #[test]
    fn the_curve_of_a_sample_is_close_to_that_of_all_requests() {
        let workload = Preset::Web.workload().scaled_to(150_000);
        let mut samples = [Sample::new(150_000), Sample::new(150_000 / 3)];
        for record in Generator::new(workload, Seed(5)).expect("a preset is consistent") {
            let fingerprint = xxh3_64(&record.key.to_le_bytes());
            let entry = Entry {
                time: Some(record.time),
                method: b"GET",
                status: 200,
                bytes: Some(record.size),
                ..Entry::default()
            };
            samples
                .iter_mut()
                .for_each(|sample| sample.add(&entry, fingerprint));
        }
        let [all, few] = samples.map(Sample::finish);
        assert_eq!(all.rate, 1.0);
        assert!((0.1..0.6).contains(&few.rate), "{}", few.rate);
        let (exact, sampled) = (ReuseCurve::from_sample(&all), ReuseCurve::from_sample(&few));
        let ratio =
            |curve: &ReuseCurve, bytes| curve.at(bytes).map_or(0.0, |point| point.object_hit_ratio);
        let mut worst: f64 = 0.0;
        for point in exact
            .points
            .iter()
            .filter(|point| point.object_hit_ratio > 0.1)
        {
            let difference = ratio(&sampled, point.cache_bytes) - point.object_hit_ratio;
            worst = worst.max(difference.abs());
        }
        assert!(worst < 0.07, "{worst} is the largest difference");
    }

    #[test]
    fn without_a_repeated_request_the_curve_is_empty() {
        assert_eq!(
            ReuseCurve::from_sample(&CompleteSample::default()).points,
            []
        );
        assert_eq!(
            ReuseCurve::from_sample(&sampled(&[(1, 0), (2, 0)])).points,
            []
        );
        let curve = ReuseCurve::from_sample(&sampled(&[(1, 0), (1, 0)]));
        assert_eq!(curve.at(1), None);
        assert!(
            curve
                .at(2)
                .is_some_and(|point| point.object_hit_ratio == 0.5)
        );
    }

    #[test]
    fn a_working_set_has_the_objects_requested_within_an_interval() {
        let requests = [(1, 10), (1, 20), (2, 30), (1, 3700), (3, 3800), (2, 10_900)];
        let rows = WorkingSet::per_interval(3600, &sampled(&requests));
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.from_secs,
                    row.objects,
                    row.bytes,
                    row.new_objects,
                    row.new_bytes,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [
                (0, 2.0, 7.0, 2.0, 7.0),
                (3600, 2.0, 12.0, 1.0, 10.0),
                (10_800, 1.0, 5.0, 0.0, 0.0)
            ]
        );
    }
}
