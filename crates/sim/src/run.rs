//! One policy at one capacity, fed with requests.

use edgeward_policy::{Object, PolicySpec};
use edgeward_trace::Record;
use edgeward_types::{KeyHash, Seed, Timestamp};
use serde::Serialize;

use crate::disk::{Disk, DiskConfig, DiskReport, DiskTotals};
use crate::facts::ratio;
use crate::ram::Ram;

/// What to run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The policy.
    pub policy: PolicySpec,
    /// The budget.
    pub capacity_bytes: u64,
    /// Requests at the start that fill the cache and are not counted.
    pub warmup_requests: u64,
    /// Charged for each object beside its body. With 0 an object costs its size, as in the literature. With the server's figure
    /// the body is rounded up as the server's allocator does; see [`edgeward_types::charge_bytes`].
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
    ram: Ram,
    disk: Option<Disk>,
    seen_requests: u64,
    counted: Counts,
    /// What the disk had done when counting began.
    disk_before: DiskTotals,
    interval: Counts,
    /// When the interval's last request was made, and what the disk had done when it began.
    interval_end: Timestamp,
    interval_disk: DiskTotals,
    series: Vec<Interval>,
    tuned: Vec<Tuned>,
}

impl Run {
    /// An empty cache: RAM alone.
    pub fn new(config: RunConfig) -> Self {
        Self {
            ram: Ram::new(
                config.policy,
                config.capacity_bytes,
                config.object_overhead_bytes,
                config.window_requests,
                config.seed,
            ),
            disk: None,
            seen_requests: 0,
            counted: Counts::default(),
            disk_before: DiskTotals::default(),
            interval: Counts::default(),
            interval_end: Timestamp::ZERO,
            interval_disk: DiskTotals::default(),
            series: Vec::new(),
            tuned: Vec::new(),
            config,
        }
    }

    /// An empty cache with a disk under its RAM.
    pub fn with_disk(config: RunConfig, disk: DiskConfig) -> Self {
        Self {
            disk: Some(Disk::new(disk)),
            ..Self::new(config)
        }
    }

    /// The next requests, in order.
    pub fn feed(&mut self, records: &[Record]) {
        for record in records {
            let found = self.request(KeyHash(record.key), record.size);
            self.count(record, found);
        }
    }

    /// What came of it so far.
    pub fn report(&self) -> RunReport {
        let Counts {
            requests,
            hits,
            bytes,
            hit_bytes,
            ..
        } = self.counted;
        let tier = self.ram.tier();
        let residents = tier.residents();
        RunReport {
            policy: self.config.policy.to_string(),
            capacity_bytes: self.config.capacity_bytes,
            requests,
            hits,
            object_hit_ratio: ratio(hits, requests),
            byte_hit_ratio: ratio(hit_bytes, bytes),
            requests_per_second: None,
            bytes_per_object: self.ram.bookkeeping_bytes() as f64 / residents.max(1) as f64,
            used_bytes: tier.used_bytes(),
            residents: residents as u64,
            digest: format!("{:016x}", tier.digest()),
            disk: self
                .disk
                .as_ref()
                .map(|disk| disk.report(&self.counted, disk.totals().since(&self.disk_before))),
            series: self
                .series
                .iter()
                .copied()
                .chain((self.interval.requests > 0).then(|| self.interval_so_far()))
                .collect(),
            tuned: self.tuned.clone(),
        }
    }

    /// Whether RAM holds it now.
    pub(crate) fn holds(&self, key: KeyHash) -> bool {
        self.ram.holds(key)
    }

    /// Bytes charged to RAM now.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.ram.tier().used_bytes()
    }

    /// Hits counted so far.
    pub(crate) fn hits(&self) -> u64 {
        self.counted.hits
    }

    /// One request: where its object was. Offers and records in the server's order.
    fn request(&mut self, key: KeyHash, size_bytes: u64) -> Found {
        let found = if self.ram.hit(key) {
            Found::Ram
        } else {
            self.beyond_ram(&Object { key, size_bytes })
        };
        let in_ram = found == Found::Ram;
        if let Some(tuning) = self.ram.record(key, size_bytes, in_ram) {
            self.tuned.push(Tuned {
                requests_end: self.seen_requests + 1,
                c_bytes: tuning.c.is_finite().then_some(tuning.c),
                predicted_ohr: tuning.predicted_ohr,
                measured_ohr: tuning.measured_ohr,
                model_error: tuning.model_error,
            });
        }
        found
    }

    /// What RAM does not have: from disk or origin, and to where the rules say.
    fn beyond_ram(&mut self, object: &Object) -> Found {
        let Some(disk) = &mut self.disk else {
            self.ram.offer(object.key, object.size_bytes);
            return Found::Nowhere;
        };
        let (found, placement) = disk.request(object);
        if placement.offer_to_ram {
            for evicted in self.ram.offer(object.key, object.size_bytes) {
                disk.evicted_from_ram(evicted);
            }
        }
        // Last, as in the server: the record is whole when the body has come to its end.
        if found == Found::Nowhere {
            disk.place(object, placement.disk);
        }
        found
    }

    fn count(&mut self, record: &Record, found: Found) {
        self.seen_requests += 1;
        self.interval.add(record.size, found);
        self.interval_end = record.time;
        if self.seen_requests > self.config.warmup_requests {
            self.counted.add(record.size, found);
        } else if self.seen_requests == self.config.warmup_requests
            && let Some(disk) = &self.disk
        {
            self.disk_before = disk.totals();
        }
        if self.interval.requests >= self.config.interval_requests {
            self.series.push(self.interval_so_far());
            self.interval = Counts::default();
            if let Some(disk) = &self.disk {
                self.interval_disk = disk.totals();
            }
        }
    }

    fn interval_so_far(&self) -> Interval {
        let Counts {
            requests,
            hits,
            bytes,
            hit_bytes,
            disk_hits,
            ..
        } = self.interval;
        Interval {
            requests_end: self.seen_requests,
            object_hit_ratio: ratio(hits, requests),
            byte_hit_ratio: ratio(hit_bytes, bytes),
            tiers: self.disk.as_ref().map(|disk| {
                let done = disk.totals().since(&self.interval_disk);
                TierInterval {
                    time_end_seconds: self.interval_end.as_millis() as f64 / 1000.0,
                    ram_object_hit_ratio: ratio(hits - disk_hits, requests),
                    disk_object_hit_ratio: ratio(disk_hits, requests),
                    origin_bytes: bytes - hit_bytes,
                    disk_written_bytes: done.written_bytes,
                    disk_read_bytes: done.read_bytes,
                }
            }),
        }
    }
}

/// Where a request found its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Ram,
    Disk,
    Nowhere,
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
    /// The disk under it, if there is one. The hits and ratios above are then those of both tiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskReport>,
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
    /// What each tier did, if there is a disk.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub tiers: Option<TierInterval>,
}

/// One stretch of requests to a cache with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TierInterval {
    /// When its last request was made, on the trace's clock.
    pub time_end_seconds: f64,
    /// Hits in RAM per request.
    pub ram_object_hit_ratio: f64,
    /// Hits on disk per request.
    pub disk_object_hit_ratio: f64,
    /// Bytes the origin sent.
    pub origin_bytes: u64,
    /// Bytes written to disk.
    pub disk_written_bytes: u64,
    /// Bytes read from disk.
    pub disk_read_bytes: u64,
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

/// Requests and what answered them. `hits` are those of both tiers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: u64,
    pub(crate) hits: u64,
    pub(crate) bytes: u64,
    pub(crate) hit_bytes: u64,
    pub(crate) disk_hits: u64,
    pub(crate) disk_hit_bytes: u64,
}

impl Counts {
    fn add(&mut self, size_bytes: u64, found: Found) {
        self.requests += 1;
        self.bytes += size_bytes;
        if found != Found::Nowhere {
            self.hits += 1;
            self.hit_bytes += size_bytes;
        }
        if found == Found::Disk {
            self.disk_hits += 1;
            self.disk_hit_bytes += size_bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use edgeward_types::ByteSize;

    use super::*;
    use crate::facts::spread;

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
        assert_eq!(lru.report().hits, 0, "two objects of 18 do not fit in 20");
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
