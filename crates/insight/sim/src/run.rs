//! The simulation of one policy at one capacity.

use edgeward_policy::{Object, Objective, PolicySpec};
use edgeward_trace::{NO_TTL, Record};
use edgeward_types::{KeyHash, Seed, Timestamp};
use serde::Serialize;

use crate::cost::OriginCost;
use crate::disk::{Disk, DiskConfig, DiskReport, DiskTotals};
use crate::expiry::Expiry;
use crate::facts::ratio;
use crate::fetches::{FetchReport, Fetches};
use crate::missed::{MissedBucket, MissedSizes};
use crate::objects::{ObjectNumbers, Request};
use crate::ram::Ram;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The policy of the memory tier.
    pub policy: PolicySpec,
    /// The capacity of the memory tier in bytes.
    pub capacity_bytes: u64,
    /// Requests of the warm-up, which fill the cache and are not counted.
    pub warmup_requests: u64,
    /// Bytes charged per object in addition to its body. With 0, the charge is the size of the body, as in the
    /// literature. With any other value, the body is also rounded up as the server's allocator does (see
    /// [`edgeward_types::charge_bytes`]), and large bookkeeping of a policy reduces the capacity.
    pub object_overhead_bytes: u64,
    /// The seed of the policy's random draws.
    pub seed: Seed,
    /// The number of requests between two steps of AdaptSize's tuner (Δ in the paper). `None` means the paper's value,
    /// 250,000.
    pub window_requests: Option<u32>,
    /// Requests per interval of the time series.
    pub interval_requests: u64,
}

/// A simulated cache with its counts.
#[derive(Debug)]
pub struct Run {
    config: RunConfig,
    /// The numbers of the objects, if [`feed`](Self::feed) numbers them.
    numbers: ObjectNumbers,
    ram: Ram,
    disk: Option<Disk>,
    /// `None` if fetches take no time.
    fetches: Option<Fetches>,
    /// `None` if no request had a lifetime so far.
    expiry: Option<Box<Expiry>>,
    seen_requests: u64,
    /// The counts since the end of the warm-up.
    counted: Counts,
    /// The sizes of the requests since the end of the warm-up that memory could not answer.
    missed: MissedSizes,
    /// The totals of the disk at the end of the warm-up.
    disk_before: DiskTotals,
    /// The counts of the current interval of the time series.
    interval: Counts,
    /// The time of the interval's last request so far.
    interval_end: Timestamp,
    /// The totals of the disk at the start of the interval.
    interval_disk: DiskTotals,
    series: Vec<Interval>,
    tuned: Vec<Tuned>,
}

impl Run {
    /// Makes an empty cache with memory only.
    pub fn new(config: RunConfig) -> Self {
        Self {
            numbers: ObjectNumbers::default(),
            ram: Ram::new(
                config.policy,
                config.capacity_bytes,
                config.object_overhead_bytes,
                config.window_requests,
                config.seed,
            ),
            disk: None,
            fetches: None,
            expiry: None,
            seen_requests: 0,
            counted: Counts::default(),
            missed: MissedSizes::default(),
            disk_before: DiskTotals::default(),
            interval: Counts::default(),
            interval_end: Timestamp::ZERO,
            interval_disk: DiskTotals::default(),
            series: Vec::new(),
            tuned: Vec::new(),
            config,
        }
    }

    /// Makes an empty cache with memory and disk.
    pub fn with_disk(config: RunConfig, disk: DiskConfig) -> Self {
        Self {
            disk: Some(Disk::new(disk)),
            ..Self::new(config)
        }
    }

    /// Charges each object `bytes` in addition to its body and to [`RunConfig::object_overhead_bytes`], without
    /// rounding the body.
    #[must_use]
    pub fn with_metadata_bytes(mut self, bytes: u64) -> Self {
        self.ram.set_metadata_bytes(bytes);
        self
    }

    /// Makes the policy maximise this objective, with this model of the cost of fetches. Policies that ignore
    /// objectives make the same decisions with each of them.
    #[must_use]
    pub fn with_objective(mut self, objective: Objective, origin_cost: OriginCost) -> Self {
        self.ram.set_objective(objective, origin_cost);
        self
    }

    /// Makes each fetch from the origin take this time. Requests for an object that is being fetched are delayed hits.
    /// A run with a disk ignores this setting.
    #[must_use]
    pub fn with_fetch_latency_ms(mut self, latency_ms: u64) -> Self {
        self.fetches = Some(Fetches::new(latency_ms));
        self
    }

    /// Processes the next requests, in order. The run numbers their objects itself.
    ///
    /// A caller with several runs numbers the objects once, with [`Traffic::count`](crate::Traffic::count), and calls
    /// [`feed_requests`](Self::feed_requests). A run must get all its requests by only one of the two functions.
    pub fn feed(&mut self, records: &[Record]) {
        let numbers = &mut self.numbers;
        let numbered = |record| Request::new(record, numbers.number(record.key, record.size));
        let requests: Vec<Request> = records.iter().map(numbered).collect();
        self.feed_requests(&requests);
    }

    /// Processes the next requests, in order. One [`Traffic`](crate::Traffic) must have numbered all objects of the
    /// run.
    pub fn feed_requests(&mut self, requests: &[Request]) {
        let mut rest = requests;
        while !rest.is_empty() {
            let (part, later) = rest.split_at(self.requests_to_boundary(rest.len()));
            let mut counts = Counts::default();
            // No part has requests on both sides of the end of the warm-up.
            let is_counted = self.seen_requests >= self.config.warmup_requests;
            for request in part {
                let served_from = self.request(request);
                counts.add(request.size, served_from);
                if served_from != ServedFrom::Ram && is_counted {
                    self.missed.add(request.size);
                }
            }
            self.count(&counts, part);
            rest = later;
        }
    }

    /// Returns the report so far.
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
        let follows_objective = self.config.policy.weighs_benefits();
        RunReport {
            policy: self.config.policy.to_string(),
            capacity_bytes: self.config.capacity_bytes,
            seed: self.config.seed.0,
            requests,
            hits,
            object_hit_ratio: ratio(hits, requests),
            byte_hit_ratio: ratio(hit_bytes, bytes),
            origin_cost_saved_ratio: self.counted.origin_cost_saved_ratio(self.ram.origin_cost()),
            objective: follows_objective.then(|| self.ram.objective().to_string()),
            requests_per_second: None,
            bytes_per_object: self.ram.bookkeeping_bytes() as f64 / residents.max(1) as f64,
            used_bytes: tier.used_bytes(),
            residents: residents as u64,
            digest: format!("{:016x}", tier.digest()),
            missed_sizes: self.missed.report(),
            disk: self
                .disk
                .as_ref()
                .map(|disk| disk.report(&self.counted, disk.totals().since(&self.disk_before))),
            fetches: self
                .fetches
                .as_ref()
                .map(|fetches| fetches.report(requests)),
            series: self
                .series
                .iter()
                .copied()
                .chain((self.interval.requests > 0).then(|| self.interval_so_far()))
                .collect(),
            tuned: self.tuned.clone(),
        }
    }

    /// Returns true if the object is in memory. The run must get its requests by [`feed`](Self::feed).
    pub(crate) fn holds(&self, key: KeyHash) -> bool {
        let number = self.numbers.find(key.0);
        number.is_some_and(|number| self.ram.holds(number))
    }

    /// Returns the current charge of the memory tier in bytes.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.ram.tier().used_bytes()
    }

    /// Returns the bytes that the memory tier charges for an object.
    pub(crate) fn charge(&self, request: &Request) -> u64 {
        self.ram.charge(request.size)
    }

    /// Returns the number of hits since the end of the warm-up.
    pub(crate) fn hits(&self) -> u64 {
        self.counted.hits
    }

    /// Returns true if the object is in memory, and records the hit. A miss changes nothing.
    pub(crate) fn hit_copy(&mut self, request: &Request) -> bool {
        self.ram.hit(request.object)
    }

    /// Offers memory a copy of an object that another node owns. A hit on the copy is worth `worth` times a hit on an
    /// object of the node.
    pub(crate) fn offer_copy(&mut self, request: &Request, worth: f64) {
        self.ram.offer_worth(request, worth);
    }

    /// Processes one request and returns where its object was found. The tiers and the tuner are called in the same
    /// order as in the server.
    #[inline]
    pub(crate) fn request(&mut self, request: &Request) -> ServedFrom {
        self.seen_requests += 1;
        if let Some(fetches) = &mut self.fetches {
            fetches.advance_to(request.time.as_millis());
            while let Some(fetched) = fetches.next_ended() {
                // A fetch that validated a stale object finds the object in the tier.
                if !self.ram.holds(fetched.object) {
                    self.ram.offer(&fetched);
                }
            }
        }
        let expiry = self.expiry.as_ref();
        let is_fresh = expiry.is_none_or(|expiry| expiry.is_fresh(request));
        let found_in = if self.ram.hit(request.object) {
            self.request_in_ram(request, is_fresh)
        } else {
            self.request_below_ram(request)
        };
        let served_from = if is_fresh {
            found_in
        } else {
            ServedFrom::Origin
        };
        let expires = request.ttl_seconds != NO_TTL || self.expiry.is_some();
        if served_from == ServedFrom::Origin && expires {
            let fetches = self.fetches.as_ref();
            let fetch_end_ms = fetches.and_then(|fetches| fetches.end_ms(request.object));
            let expiry = self.expiry.get_or_insert_default();
            expiry.start(request, fetch_end_ms);
        }
        if self.ram.is_tuned() {
            self.tune(request, served_from == ServedFrom::Ram);
        }
        served_from
    }

    /// Processes a request whose object is in memory. If fetches take time, a request for a stale object waits for the
    /// fetch that validates it, as a miss does.
    fn request_in_ram(&mut self, request: &Request, is_fresh: bool) -> ServedFrom {
        match &mut self.fetches {
            Some(fetches)
                if self.disk.is_none()
                    && (!is_fresh || fetches.end_ms(request.object).is_some()) =>
            {
                let counted = self.seen_requests > self.config.warmup_requests;
                fetches.request(request, counted);
                ServedFrom::Origin
            }
            _ => ServedFrom::Ram,
        }
    }

    /// Processes a request that memory could not answer: reads the object from disk or origin and stores it by
    /// the rules.
    fn request_below_ram(&mut self, request: &Request) -> ServedFrom {
        let Some(disk) = &mut self.disk else {
            match &mut self.fetches {
                None => _ = self.ram.offer(request),
                Some(fetches) => {
                    let counted = self.seen_requests > self.config.warmup_requests;
                    fetches.request(request, counted);
                }
            }
            return ServedFrom::Origin;
        };
        let object = Object {
            key: KeyHash(request.key),
            size_bytes: request.size,
        };
        let (served_from, placement) = disk.request(&object);
        if placement.offer_to_ram {
            for evicted in self.ram.offer(request) {
                disk.evicted_from_ram(evicted);
            }
        }
        // The disk write is last, as in the server: the record is complete when the body has ended.
        if served_from == ServedFrom::Origin {
            disk.store(&object, placement.disk);
        }
        served_from
    }

    fn tune(&mut self, request: &Request, in_ram: bool) {
        if let Some(tuning) = self.ram.record(request, in_ram) {
            self.tuned.push(Tuned {
                requests_end: self.seen_requests,
                c_bytes: tuning.c.is_finite().then_some(tuning.c),
                predicted_ohr: tuning.predicted_ohr,
                measured_ohr: tuning.measured_ohr,
                model_error: tuning.model_error,
            });
        }
    }

    /// Returns how many of the next `requests` requests lie before the end of the interval and of the warm-up,
    /// whichever is first.
    fn requests_to_boundary(&self, requests: usize) -> usize {
        let interval = self
            .config
            .interval_requests
            .saturating_sub(self.interval.requests)
            .max(1);
        let warmup = match self
            .config
            .warmup_requests
            .saturating_sub(self.seen_requests)
        {
            0 => u64::MAX,
            left => left,
        };
        usize::try_from(interval.min(warmup)).map_or(requests, |boundary| boundary.min(requests))
    }

    /// Adds the counts of `requests`. They lie in one interval, and either all in the warm-up or all after it.
    fn count(&mut self, counts: &Counts, requests: &[Request]) {
        self.interval.add_all(counts);
        if let Some(last) = requests.last() {
            self.interval_end = last.time;
        }
        if self.seen_requests > self.config.warmup_requests {
            self.counted.add_all(counts);
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
        let counts = &self.interval;
        Interval {
            tiers: self.disk.as_ref().map(|disk| {
                let done = disk.totals().since(&self.interval_disk);
                TierInterval {
                    time_end_seconds: self.interval_end.as_millis() as f64 / 1000.0,
                    ram_object_hit_ratio: ratio(counts.hits - counts.disk_hits, counts.requests),
                    disk_object_hit_ratio: ratio(counts.disk_hits, counts.requests),
                    origin_bytes: counts.bytes - counts.hit_bytes,
                    disk_written_bytes: done.written_bytes,
                    disk_read_bytes: done.read_bytes,
                }
            }),
            ..counts.interval(self.seen_requests)
        }
    }
}

/// The place where a request found its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedFrom {
    Ram,
    Disk,
    Origin,
}

/// The result of a run. The JSON of `edgeward simulate` has these keys.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The policy's name.
    pub policy: String,
    /// The capacity of the memory tier in bytes.
    pub capacity_bytes: u64,
    /// The seed of the policy's random draws.
    pub seed: u64,
    /// Counted requests, without the warm-up.
    pub requests: u64,
    /// Hits among the counted requests.
    pub hits: u64,
    /// Hits per request.
    pub object_hit_ratio: f64,
    /// Bytes hit per byte requested.
    pub byte_hit_ratio: f64,
    /// The share of the cost of all fetches that hits save; see [`OriginCost`]. Without a cache, each request is a
    /// fetch.
    pub origin_cost_saved_ratio: f64,
    /// The objective of the policy. [`None`] for policies that ignore objectives.
    pub objective: Option<String>,
    /// Simulated requests per second of one core. The caller fills this in, because a run reads no clock.
    pub requests_per_second: Option<f64>,
    /// Bytes of bookkeeping per resident object: tier and index, without bodies.
    pub bytes_per_object: f64,
    /// Charged bytes at the end.
    pub used_bytes: u64,
    /// Resident objects at the end.
    pub residents: u64,
    /// A digest of all decisions, 16 hexadecimal digits.
    pub digest: String,
    /// The counted requests that the memory tier did not answer, by the size of their object. With a disk tier, these
    /// requests reach the disk.
    pub missed_sizes: Vec<MissedBucket>,
    /// The disk tier, if any. The hits and ratios above then include both tiers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskReport>,
    /// Delayed hits, if fetches take time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetches: Option<FetchReport>,
    /// Hit ratios over time, including the warm-up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Interval>,
    /// The results of the tuner, window by window.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tuned: Vec<Tuned>,
}

/// Hit ratios of one interval of requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The number of the interval's last request; the first request of the trace has the number 1.
    pub requests_end: u64,
    /// Hits per request.
    pub object_hit_ratio: f64,
    /// Bytes hit per byte requested.
    pub byte_hit_ratio: f64,
    /// The figures of each tier, if the run has a disk.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub tiers: Option<TierInterval>,
}

/// The figures of both tiers for one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TierInterval {
    /// The time of the interval's last request, on the trace's clock.
    pub time_end_seconds: f64,
    /// Hits in RAM per request.
    pub ram_object_hit_ratio: f64,
    /// Hits on disk per request.
    pub disk_object_hit_ratio: f64,
    /// Bytes fetched from the origin.
    pub origin_bytes: u64,
    /// Bytes written to disk.
    pub disk_written_bytes: u64,
    /// Bytes read from disk.
    pub disk_read_bytes: u64,
}

/// One step of AdaptSize's tuner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tuned {
    /// The number of the window's last request.
    pub requests_end: u64,
    /// The chosen parameter `c` of AdaptSize in bytes; `None` admits every object.
    pub c_bytes: Option<f64>,
    /// The object hit ratio that is predicted for the next window with this `c`.
    pub predicted_ohr: f64,
    /// The object hit ratio of the past window.
    pub measured_ohr: f64,
    /// The hit ratio that the previous step predicted for the past window, minus the measured hit ratio.
    pub model_error: Option<f64>,
}

/// Counts of requests and hits. `hits` includes both tiers.
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
    pub(crate) fn add(&mut self, size_bytes: u64, served_from: ServedFrom) {
        self.requests += 1;
        self.bytes += size_bytes;
        if served_from != ServedFrom::Origin {
            self.hits += 1;
            self.hit_bytes += size_bytes;
        }
        if served_from == ServedFrom::Disk {
            self.disk_hits += 1;
            self.disk_hit_bytes += size_bytes;
        }
    }

    /// Returns the share of the cost of all fetches that hits save.
    pub(crate) fn origin_cost_saved_ratio(&self, origin_cost: OriginCost) -> f64 {
        match origin_cost.seconds(self.requests, self.bytes) {
            0.0 => 0.0,
            seconds => origin_cost.seconds(self.hits, self.hit_bytes) / seconds,
        }
    }

    pub(crate) fn interval(&self, requests_end: u64) -> Interval {
        Interval {
            requests_end,
            object_hit_ratio: ratio(self.hits, self.requests),
            byte_hit_ratio: ratio(self.hit_bytes, self.bytes),
            tiers: None,
        }
    }

    fn add_all(&mut self, other: &Self) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.bytes += other.bytes;
        self.hit_bytes += other.hit_bytes;
        self.disk_hits += other.disk_hits;
        self.disk_hit_bytes += other.disk_hit_bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use edgeward_types::ByteSize;
    use proptest::prelude::*;

    use super::*;
    use crate::Traffic;
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

    /// A small example that can be calculated by hand.
    #[test]
    fn lru_with_room_for_two_objects_has_the_expected_hits() {
        let mut lru = run(PolicySpec::LRU, 20, 0);
        // miss miss hit miss(evicts 2) hit miss(evicts 3: 1 was hit after 3 was admitted)
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
        let mut lru = run(PolicySpec::LRU, 20, 2);
        lru.feed(&records(&[(1, 10), (2, 10), (1, 10), (2, 10)]));
        let report = lru.report();
        assert_eq!((report.requests, report.hits), (2, 2));
    }

    /// Metadata is charged as given; the overhead of a server also rounds the body up.
    #[test]
    fn metadata_is_charged_without_rounding() {
        let requests = records(&[(1, 100), (2, 101), (1, 100), (2, 101)]);
        let hits = |capacity_bytes, metadata_bytes| {
            let mut lru =
                run(PolicySpec::LRU, capacity_bytes, 0).with_metadata_bytes(metadata_bytes);
            lru.feed(&requests);
            (lru.report().hits, lru.report().used_bytes)
        };
        assert_eq!(hits(201 + 2 * 7, 7), (2, 201 + 2 * 7));
        assert_eq!(hits(201 + 2 * 7 - 1, 7).0, 0);
    }

    /// A fetch takes 10 ms and an object is fresh for 2 s from the end of its fetch. A request for the stale object
    /// waits for the whole fetch, and a request during this fetch for the rest of it.
    #[test]
    fn a_request_for_a_stale_object_waits_for_its_fetch() {
        let record = |time_ms| Record {
            time: Timestamp::from_millis(time_ms),
            key: 1,
            size: 1,
        };
        let report = |times_ms: &[u64]| {
            let records: Vec<Record> = times_ms.iter().copied().map(record).collect();
            let mut requests = Vec::new();
            let ttls = vec![2; records.len()];
            Traffic::default().count_all_with_ttls(&records, &ttls, &mut requests);
            let mut lru = run(PolicySpec::LRU, 10, 0).with_fetch_latency_ms(10);
            lru.feed_requests(&requests);
            let report = lru.report();
            let fetches = report.fetches.expect("fetches take time");
            let wait_ms = fetches.mean_wait_ms * times_ms.len() as f64;
            (report.hits, fetches.delayed_hits, wait_ms.round())
        };
        // The last moment at which the object is fresh, and the first one at which it is stale.
        assert_eq!(report(&[0, 2009]), (1, 0, 10.0));
        assert_eq!(report(&[0, 2010]), (0, 0, 20.0));
        assert_eq!(report(&[0, 2010, 2016, 2020]), (1, 1, 24.0));
    }

    /// A fetch takes 10 ms. The second request waits for the rest of it, the third finds the object. After the eviction
    /// of object 1, the next request for it is a miss again.
    #[test]
    fn a_request_during_a_fetch_is_a_delayed_hit() {
        let mut lru = run(PolicySpec::LRU, 10, 0).with_fetch_latency_ms(10);
        let requests: Vec<Record> = [(0, 1), (4, 1), (10, 1), (10, 2), (19, 1), (21, 2), (30, 1)]
            .into_iter()
            .map(|(ms, key)| Record {
                time: Timestamp::from_millis(ms),
                key,
                size: 10,
            })
            .collect();
        lru.feed(&requests);
        let report = lru.report();
        assert_eq!(report.hits, 3, "at 10, 19 and 21 ms");
        let fetches = report.fetches.expect("fetches take time");
        assert_eq!((fetches.fetch_latency_ms, fetches.delayed_hits), (10, 1));
        assert_eq!(fetches.delayed_hit_ratio, 1.0 / 7.0);
        assert_eq!(fetches.mean_wait_ms, (10.0 + 6.0 + 10.0 + 10.0) / 7.0);
    }

    proptest! {
        /// In a cache that evicts no object, the requests for an object within the latency after its first request are
        /// delayed, and all later ones are hits. With a latency of 0 no request is delayed.
        #[test]
        fn only_requests_within_the_latency_of_the_first_are_delayed(
            requests in prop::collection::vec((0u64..8, 0u64..6), 1..200),
            latency_ms in 0u64..12,
        ) {
            let mut time = 0;
            let mut first: HashMap<u64, u64> = HashMap::new();
            let (mut delayed, mut hits) = (0, 0);
            let mut records = Vec::new();
            for (key, gap) in requests {
                time += gap;
                records.push(Record { time: Timestamp::from_millis(time), key, size: 1 });
                match first.get(&key) {
                    None => _ = first.insert(key, time),
                    Some(first) if time < first + latency_ms => delayed += 1,
                    Some(_) => hits += 1,
                }
            }
            let mut run = run(PolicySpec::INFINITE, 1, 0).with_fetch_latency_ms(latency_ms);
            run.feed(&records);
            let report = run.report();
            prop_assert_eq!(report.hits, hits);
            prop_assert_eq!(report.fetches.map(|fetches| fetches.delayed_hits), Some(delayed));
        }
    }

    /// Each objective saves the most by its own measure.
    ///
    /// Sizes are from 1 KB to 1 MB, so that latency and bandwidth both matter for the origin cost.
    #[test]
    fn density_saves_the_most_by_the_measure_of_its_objective() {
        let mut rng = edgeward_policy::rng::Rng::new(Seed(7), 0);
        let requests: Vec<(u64, u64)> = (0..60_000)
            .map(|_| {
                let key = (3000.0 * rng.unit().powi(3)) as u64;
                (key, 1000 << (spread(key) % 11))
            })
            .collect();
        let records = records(&requests);
        let origin_cost = OriginCost {
            latency_ms: 100,
            bytes_per_second: 1_000_000,
        };
        let objectives = [Objective::Requests, Objective::Bytes, Objective::OriginCost];
        let savings = objectives.map(|objective| {
            let mut run =
                run(PolicySpec::DENSITY, 20_000_000, 0).with_objective(objective, origin_cost);
            run.feed(&records);
            let report = run.report();
            [
                report.object_hit_ratio,
                report.byte_hit_ratio,
                report.origin_cost_saved_ratio,
            ]
        });
        for measure in 0..3 {
            for other in (0..3).filter(|&other| other != measure) {
                let (own, others) = (savings[measure][measure], savings[other][measure]);
                let objective = objectives[measure];
                assert!(own > others + 0.01, "{objective}: {own} against {others}");
            }
        }
    }

    /// The saved cost of a hit is its latency and the time of its bytes.
    #[test]
    fn the_saved_origin_cost_is_a_share_of_the_cost_of_all_requests() {
        let origin_cost = OriginCost {
            latency_ms: 1000,
            bytes_per_second: 10,
        };
        let mut lru = run(PolicySpec::LRU, 50, 0).with_objective(Objective::Bytes, origin_cost);
        // Two misses of 2 s and 5 s, then a hit of 2 s.
        lru.feed(&records(&[(1, 10), (2, 40), (1, 10)]));
        let report = lru.report();
        assert_eq!(report.origin_cost_saved_ratio, 2.0 / 9.0);
        assert_eq!(report.objective, None, "lru ignores the objective");
    }

    #[test]
    fn the_overhead_is_charged() {
        let mut config = run(PolicySpec::LRU, 20, 0).config;
        config.object_overhead_bytes = 1;
        let mut lru = Run::new(config);
        lru.feed(&records(&[(1, 10), (2, 10), (1, 10), (2, 10)]));
        assert_eq!(
            lru.report().hits,
            0,
            "a body of 10 bytes takes 17, so two objects of 18 do not fit in 20"
        );
    }

    /// No policy has more hits than an unlimited cache, and the batch size has no effect.
    #[test]
    fn no_policy_beats_the_infinite_cache_and_batches_change_nothing() {
        let mut rng = edgeward_policy::rng::Rng::new(Seed(5), 0);
        let requests: Vec<(u64, u64)> = (0..20_000)
            .map(|_| {
                // A simple power law over 2000 objects.
                let key = (2000.0 * rng.unit().powi(3)) as u64;
                (key, 1 + spread(key) % 5000)
            })
            .collect();
        let records = records(&requests);
        let hits_of = |policy: PolicySpec, batch: usize| {
            let mut run = run(policy, 200_000, 0);
            records.chunks(batch).for_each(|batch| run.feed(batch));
            let report = run.report();
            assert!(report.used_bytes <= report.capacity_bytes || policy == PolicySpec::INFINITE);
            (report.hits, report.digest)
        };
        let (most, _) = hits_of(PolicySpec::INFINITE, 512);
        for policy in PolicySpec::examples() {
            let (hits, digest) = hits_of(policy, 512);
            assert!(hits <= most && hits > 0, "{policy}: {hits} of {most}");
            assert_eq!((hits, digest), hits_of(policy, 7), "{policy}");
        }
        let (all, _) = hits_of(PolicySpec::LRU, 512);
        let (threshold, _) = hits_of(
            PolicySpec::admitting(edgeward_policy::AdmissionSpec::Threshold(ByteSize(5001))),
            512,
        );
        assert_eq!(all, threshold, "a threshold above all sizes has no effect");
    }
}
