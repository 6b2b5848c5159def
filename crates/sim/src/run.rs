//! One policy at one capacity, fed with requests.

use edgeward_policy::{
    Admission, AnyTier, AnyTouch, Evicted, Object, PolicySpec, Slot, Verdict, adaptsize::Tuner,
};
use edgeward_trace::Record;
use edgeward_types::{KeyHash, Seed};
use hashbrown::HashTable;
use serde::Serialize;

use crate::facts::{ratio, spread};

/// What to run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The policy.
    pub policy: PolicySpec,
    /// The budget.
    pub capacity_bytes: u64,
    /// Requests at the start that fill the cache and are not counted.
    pub warmup_requests: u64,
    /// Charged for each object beside its size. 0 as in the literature; the server's figure, which
    /// its `/status` tells, to predict the server.
    pub object_overhead_bytes: u64,
    /// Where the policy's draws come from.
    pub seed: Seed,
    /// AdaptSize's Δ; none for the paper's.
    pub window_requests: Option<u32>,
    /// Requests an interval of the series over time.
    pub interval_requests: u64,
}

/// A simulated cache and its counts.
#[derive(Debug)]
pub struct Run {
    config: RunConfig,
    index: HashTable<Resident>,
    tier: AnyTier,
    touch: AnyTouch,
    tuner: Option<Tuner>,
    evicted: Vec<Evicted>,
    seen_requests: u64,
    counted: Counts,
    interval: Counts,
    series: Vec<Interval>,
    tuned: Vec<Tuned>,
}

impl Run {
    /// An empty cache.
    pub fn new(config: RunConfig) -> Self {
        let tier = config.policy.tier(config.capacity_bytes, config.seed);
        Self {
            index: HashTable::new(),
            touch: tier.touch(),
            tier,
            tuner: config
                .policy
                .tuner(config.capacity_bytes, config.window_requests),
            evicted: Vec::new(),
            seen_requests: 0,
            counted: Counts::default(),
            interval: Counts::default(),
            series: Vec::new(),
            tuned: Vec::new(),
            config,
        }
    }

    /// The next requests, in order.
    pub fn feed(&mut self, records: &[Record]) {
        for record in records {
            let hit = self.request(KeyHash(record.key), record.size);
            self.count(record.size, hit);
        }
    }

    /// What came of it so far.
    pub fn report(&self) -> RunReport {
        let Counts {
            requests,
            hits,
            bytes,
            hit_bytes,
        } = self.counted;
        let residents = self.tier.residents();
        let index_bytes = self.index.allocation_size();
        RunReport {
            policy: self.config.policy.to_string(),
            capacity_bytes: self.config.capacity_bytes,
            requests,
            hits,
            object_hit_ratio: ratio(hits, requests),
            byte_hit_ratio: ratio(hit_bytes, bytes),
            requests_per_second: None,
            bytes_per_object: (self.tier.bookkeeping_bytes() + index_bytes) as f64
                / residents.max(1) as f64,
            used_bytes: self.tier.used_bytes(),
            residents: residents as u64,
            digest: format!("{:016x}", self.tier.digest()),
            series: self
                .series
                .iter()
                .copied()
                .chain((self.interval.requests > 0).then(|| self.interval_so_far()))
                .collect(),
            tuned: self.tuned.clone(),
        }
    }

    /// Whether the cache holds it now.
    pub(crate) fn holds(&self, key: KeyHash) -> bool {
        self.index
            .find(spread(key.0), |there| there.key == key)
            .is_some()
    }

    /// Bytes charged now.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.tier.used_bytes()
    }

    /// Hits counted so far.
    pub(crate) fn hits(&self) -> u64 {
        self.counted.hits
    }

    /// One request: whether it hit. Offers and records in the server's order.
    fn request(&mut self, key: KeyHash, size_bytes: u64) -> bool {
        let charge_bytes = size_bytes.saturating_add(self.config.object_overhead_bytes);
        let resident = self.index.find(spread(key.0), |there| there.key == key);
        let hit = if let Some(resident) = resident {
            self.touch.hit(resident.slot);
            true
        } else {
            self.miss(&Object {
                key,
                size_bytes: charge_bytes,
            });
            false
        };
        if let Some(tuner) = &mut self.tuner
            && tuner.record(key, charge_bytes, hit)
        {
            let index = &self.index;
            let resident = |key: KeyHash| {
                index
                    .find(spread(key.0), |there| there.key == key)
                    .is_some()
            };
            let tuning = tuner.step(&resident);
            self.tier
                .set_admission(Admission::Exponential { c: tuning.c });
            self.tuned.push(Tuned {
                requests_end: self.seen_requests + 1,
                c_bytes: tuning.c.is_finite().then_some(tuning.c),
                predicted_ohr: tuning.predicted_ohr,
                measured_ohr: tuning.measured_ohr,
                model_error: tuning.model_error,
            });
        }
        hit
    }

    fn miss(&mut self, object: &Object) {
        self.evicted.clear();
        let verdict = self.tier.offer(object, &mut self.evicted);
        for gone in &self.evicted {
            let key = gone.object.key;
            if let Ok(entry) = self
                .index
                .find_entry(spread(key.0), |there| there.key == key)
            {
                entry.remove();
            }
        }
        if let Verdict::Admit(slot) = verdict {
            let key = object.key;
            self.index
                .insert_unique(spread(key.0), Resident { key, slot }, |there| {
                    spread(there.key.0)
                });
        }
    }

    fn count(&mut self, size_bytes: u64, hit: bool) {
        self.seen_requests += 1;
        self.interval.add(size_bytes, hit);
        if self.seen_requests > self.config.warmup_requests {
            self.counted.add(size_bytes, hit);
        }
        if self.interval.requests >= self.config.interval_requests {
            self.series.push(self.interval_so_far());
            self.interval = Counts::default();
        }
    }

    fn interval_so_far(&self) -> Interval {
        Interval {
            requests_end: self.seen_requests,
            object_hit_ratio: ratio(self.interval.hits, self.interval.requests),
            byte_hit_ratio: ratio(self.interval.hit_bytes, self.interval.bytes),
        }
    }
}

/// What one run came to. The JSON of `edgeward simulate` holds these keys.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The policy's name.
    pub policy: String,
    /// The budget.
    pub capacity_bytes: u64,
    /// Requests counted: those after the warm-up.
    pub requests: u64,
    /// Of those, hits.
    pub hits: u64,
    /// Hits per request.
    pub object_hit_ratio: f64,
    /// Bytes hit per byte requested.
    pub byte_hit_ratio: f64,
    /// Simulated requests per second of one core; whoever holds a clock fills it in.
    pub requests_per_second: Option<f64>,
    /// Bookkeeping per resident: tier and index, without the value.
    pub bytes_per_object: f64,
    /// Bytes charged at the end.
    pub used_bytes: u64,
    /// Objects resident at the end.
    pub residents: u64,
    /// A fingerprint of all decisions, 16 hexadecimal digits.
    pub digest: String,
    /// Hit ratios over time, the warm-up included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Interval>,
    /// What the tuner chose, window by window.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<Tuned>,
}

/// Hit ratios of one stretch of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The number of its last request, counted from 1.
    pub requests_end: u64,
    /// Hits per request.
    pub object_hit_ratio: f64,
    /// Bytes hit per byte requested.
    pub byte_hit_ratio: f64,
}

/// One step of the tuner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// The number of the window's last request.
    pub requests_end: u64,
    /// The parameter chosen, bytes; none means that everything is admitted.
    pub c_bytes: Option<f64>,
    /// The hit ratio its model expects with it.
    pub predicted_ohr: f64,
    /// The hit ratio of the window just ended.
    pub measured_ohr: f64,
    /// What the step before predicted for that window minus what was measured in it.
    pub model_error: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    hits: u64,
    bytes: u64,
    hit_bytes: u64,
}

impl Counts {
    fn add(&mut self, size_bytes: u64, hit: bool) {
        self.requests += 1;
        self.bytes += size_bytes;
        if hit {
            self.hits += 1;
            self.hit_bytes += size_bytes;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    key: KeyHash,
    slot: Slot,
}

#[cfg(test)]
mod tests {
    use edgeward_types::{ByteSize, Timestamp};

    use super::*;

    fn run(policy: PolicySpec, capacity_bytes: u64, warmup_requests: u64) -> Run {
        Run::new(RunConfig {
            policy,
            capacity_bytes,
            warmup_requests,
            object_overhead_bytes: 0,
            seed: Seed(1),
            window_requests: Some(1000),
            interval_requests: 4,
        })
    }

    fn records(requests: &[(u64, u64)]) -> Vec<Record> {
        let record = |&(key, size)| Record {
            time: Timestamp::ZERO,
            key,
            size,
        };
        requests.iter().map(record).collect()
    }

    /// An example small enough to be done by hand.
    #[test]
    fn lru_of_two_objects_hits_as_by_hand() {
        let mut lru = run(PolicySpec::Lru, 20, 0);
        // miss miss hit miss(evicts 2) hit miss(evicts 3: 1 was hit after 3 entered)
        lru.feed(&records(&[
            (1, 10),
            (2, 10),
            (1, 10),
            (3, 10),
            (1, 10),
            (2, 10),
        ]));
        let report = lru.report();
        assert_eq!((report.requests, report.hits), (6, 2));
        assert_eq!(report.residents, 2);
        assert_eq!(report.series.len(), 2, "four requests, then two");
    }

    #[test]
    fn the_warm_up_fills_the_cache_and_is_not_counted() {
        let mut lru = run(PolicySpec::Lru, 20, 2);
        lru.feed(&records(&[(1, 10), (2, 10), (1, 10), (2, 10)]));
        let report = lru.report();
        assert_eq!((report.requests, report.hits), (2, 2));
    }

    #[test]
    fn the_overhead_takes_room() {
        let mut config = run(PolicySpec::Lru, 20, 0).config;
        config.object_overhead_bytes = 1;
        let mut lru = Run::new(config);
        lru.feed(&records(&[(1, 10), (2, 10), (1, 10), (2, 10)]));
        assert_eq!(lru.report().hits, 0, "two objects of 11 do not fit in 20");
    }

    /// No policy hits more often than the cache without bounds, and batches change nothing.
    #[test]
    fn no_policy_beats_the_infinite_cache_and_batches_change_nothing() {
        let mut rng = edgeward_policy::rng::Rng::new(Seed(5), 0);
        let requests: Vec<(u64, u64)> = (0..20_000)
            .map(|_| {
                // A crude power law over 2000 objects.
                let key = (2000.0 * rng.unit().powi(3)) as u64;
                (key, 1 + spread(key) % 5000)
            })
            .collect();
        let records = records(&requests);
        let hits_of = |policy: PolicySpec, batch: usize| {
            let mut run = run(policy, 200_000, 0);
            records.chunks(batch).for_each(|batch| run.feed(batch));
            let report = run.report();
            assert!(report.used_bytes <= report.capacity_bytes || policy == PolicySpec::Infinite);
            (report.hits, report.digest)
        };
        let (most, _) = hits_of(PolicySpec::Infinite, 512);
        for policy in PolicySpec::examples() {
            let (hits, digest) = hits_of(policy, 512);
            assert!(hits <= most && hits > 0, "{policy}: {hits} of {most}");
            assert_eq!((hits, digest), hits_of(policy, 7), "{policy}");
        }
        let (all, _) = hits_of(PolicySpec::Lru, 512);
        let (threshold, _) = hits_of(PolicySpec::Threshold(ByteSize(5001)), 512);
        assert_eq!(all, threshold, "a threshold above all sizes is none");
    }
}
