//! How far requests for an object lie apart, and what an LRU cache of any size makes of that.
//!
//! The *reuse distance* of a request is the bytes of the distinct objects requested since the
//! object's last request, its own included. An LRU cache of `C` bytes hits exactly the requests
//! whose distance is at most `C` (Mattson et al., 1970), so one pass gives the hit ratio at every
//! size. Objects larger than the cache would not be kept; their distance is beyond it anyway.
//!
//! In a sample distances are too short by its rate. Since popular objects are few, a sample holds
//! more or fewer of their requests than its share; as in SHARDS (section 3.3 of the paper, see
//! [`crate::Sample`]) what is missing or too much is put right at the shortest distance, where the
//! requests for popular objects lie.

use hashbrown::HashMap;

use crate::Sampled;

/// Hit ratios of an LRU cache by its size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReuseCurve {
    /// Sizes in steps of a quarter of a doubling, smallest first, up to where nothing is gained.
    pub points: Vec<ReusePoint>,
}

/// What an LRU cache of one size would do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReusePoint {
    /// Its size.
    pub cache_bytes: u64,
    /// Hits per request, those of a cold start included.
    pub object_hit_ratio: f64,
    /// Bytes hit per byte requested.
    pub byte_hit_ratio: f64,
}

/// What is asked for within a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkingSet {
    /// When the stretch begins, in seconds since 1970.
    pub from_secs: u64,
    /// Distinct objects.
    pub objects: f64,
    /// Their bytes.
    pub bytes: f64,
    /// Objects among them that were not asked for before.
    pub new_objects: f64,
    /// And their bytes.
    pub new_bytes: f64,
}

impl ReuseCurve {
    /// The curve of a sample; without points if it holds nothing.
    pub fn of(sampled: &Sampled) -> Self {
        if sampled.records.is_empty() {
            return Self::default();
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut stack = Stack::new(sampled.records.len());
        let (mut bytes, mut last): (f64, HashMap<u64, usize>) = (0.0, HashMap::new());
        for (at, record) in sampled.records.iter().enumerate() {
            bytes += record.size as f64;
            if let Some(before) = last.insert(record.key, at) {
                let distance = stack.above(before) + record.size;
                let step = step_of(distance as f64 / sampled.rate);
                if steps.len() <= step {
                    steps.resize(step + 1, Step::default());
                }
                steps[step].hits += 1.0;
                steps[step].bytes += record.size as f64;
                stack.take(before, record.size);
            }
            stack.put(at, record.size);
        }
        let sampled_requests = sampled.records.len() as f64;
        let requests = sampled.requests as f64 * sampled.rate;
        let missing = requests - sampled_requests;
        // The mean object stands for the requests that are put right.
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
                object_hit_ratio: (hits / requests).clamp(0.0, 1.0),
                byte_hit_ratio: (hit_bytes / whole_bytes).clamp(0.0, 1.0),
            });
        }
        Self { points }
    }

    /// The hit ratios at a size: those of the largest point that is not larger. Nothing below the
    /// first.
    pub fn at(&self, cache_bytes: u64) -> Option<&ReusePoint> {
        let after = self
            .points
            .partition_point(|point| point.cache_bytes <= cache_bytes);
        self.points[..after].last()
    }
}

#[derive(Clone, Copy, Default)]
struct Step {
    hits: f64,
    bytes: f64,
}

/// The step that a distance belongs to: the first whose size is not below it.
fn step_of(distance: f64) -> usize {
    (distance.max(1.0).log2() * STEPS_PER_DOUBLING - 1e-9).ceil() as usize
}

fn size_of_step(step: usize) -> u64 {
    // Distances are whole bytes, so a cache of this size hits what the step says and no more.
    (step as f64 / STEPS_PER_DOUBLING).exp2() as u64
}

const STEPS_PER_DOUBLING: f64 = 4.0;

/// Objects in the order of their last requests, as a tree of sums (Fenwick, 1994): the bytes above
/// one are found in as many steps as the number of requests has bits.
struct Stack {
    sums: Vec<u64>,
    whole: u64,
}

impl Stack {
    fn new(places: usize) -> Self {
        Self {
            sums: vec![0; places + 1],
            whole: 0,
        }
    }

    fn put(&mut self, at: usize, size: u64) {
        self.whole += size;
        let mut node = at + 1;
        while node < self.sums.len() {
            self.sums[node] += size;
            node += node & node.wrapping_neg();
        }
    }

    fn take(&mut self, at: usize, size: u64) {
        self.whole -= size;
        let mut node = at + 1;
        while node < self.sums.len() {
            self.sums[node] -= size;
            node += node & node.wrapping_neg();
        }
    }

    /// The bytes of what was requested after the request at this place.
    fn above(&self, at: usize) -> u64 {
        let mut below = 0;
        let mut node = at + 1;
        while node > 0 {
            below += self.sums[node];
            node &= node - 1;
        }
        self.whole - below
    }
}

impl WorkingSet {
    /// What was asked for in each stretch of so many seconds, as far as a sample tells. Stretches
    /// without a request are not there.
    pub fn by(seconds: u64, sampled: &Sampled) -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::new();
        // The stretch of each object's last request, counted from 1.
        let mut last: HashMap<u64, u64> = HashMap::new();
        for record in &sampled.records {
            let stretch = record.time.as_secs() / seconds.max(1);
            let from_secs = stretch * seconds.max(1);
            if rows.last().is_none_or(|row| row.from_secs != from_secs) {
                rows.push(Self {
                    from_secs,
                    ..Self::default()
                });
            }
            let row = rows.last_mut().expect("one was just pushed");
            let before = last.insert(record.key, stretch);
            if before == Some(stretch) {
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
    use edgeward_types::{Seed, Timestamp};
    use xxhash_rust::xxh3::xxh3_64;

    use crate::{Entry, Sample};

    use super::*;

    fn sampled(keys_and_times: &[(u64, u64)]) -> Sampled {
        let record = |&(key, time): &(u64, u64)| Record {
            time: Timestamp::from_secs(time),
            key,
            size: 1 + key * key % 17,
        };
        Sampled {
            rate: 1.0,
            records: keys_and_times.iter().map(record).collect(),
            requests: keys_and_times.len() as u64,
        }
    }

    /// Hits of an LRU cache that is a list, most recent first.
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
        /// Method: against an LRU cache of each size of the curve. All objects fit it, for one that
        /// does not would pass by a cache but pushes others down the stack.
        #[test]
        fn the_curve_is_what_lru_caches_of_all_sizes_hit(
            keys in prop::collection::vec((0u64..30, Just(0u64)), 1..300)
        ) {
            let sampled = sampled(&keys);
            let whole: u64 = sampled.records.iter().map(|record| record.size).sum();
            let curve = ReuseCurve::of(&sampled);
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

    /// Method: 150,000 requests of made-up web traffic, once with room for all and once for a third;
    /// hit ratios of requests at every size, and how far apart they are at the worst. Over seeds
    /// the worst is 2 to 5 points here and up to 13 with room for a sixteenth; a million requests,
    /// as `logs` keeps, are seven times this.
    #[test]
    fn a_sample_s_curve_is_near_that_of_all_requests() {
        let workload = Preset::Web.workload().scaled_to(150_000);
        let mut samples = [Sample::new(150_000), Sample::new(150_000 / 3)];
        for record in Generator::new(workload, Seed(5)).expect("a preset is sound") {
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
        let (exact, sampled) = (ReuseCurve::of(&all), ReuseCurve::of(&few));
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
        assert!(worst < 0.07, "{worst} at the worst");
    }

    #[test]
    fn nothing_requested_twice_has_no_curve() {
        assert_eq!(ReuseCurve::of(&Sampled::default()).points, []);
        assert_eq!(ReuseCurve::of(&sampled(&[(1, 0), (2, 0)])).points, []);
        let curve = ReuseCurve::of(&sampled(&[(1, 0), (1, 0)]));
        assert_eq!(curve.at(1), None);
        assert!(
            curve
                .at(2)
                .is_some_and(|point| point.object_hit_ratio == 0.5)
        );
    }

    #[test]
    fn a_working_set_is_what_is_asked_for_within_a_stretch() {
        let requests = [(1, 10), (1, 20), (2, 30), (1, 3700), (3, 3800), (2, 10_900)];
        let rows = WorkingSet::by(3600, &sampled(&requests));
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
