//! The hit ratios that other sizes and policies of memory would have for the live requests.
//!
//! For each policy and size a small cache follows a sample of the objects, with the tier of the server. Its capacity is
//! the part of the real capacity that the sample has of all objects (Waldspurger et al., "Efficient MRC Construction
//! with SHARDS", FAST 2015; "Cache Modeling and Optimization using Miniature Simulations", ATC 2017). Ours differs in
//! two ways:
//!
//! - Large objects are more frequent in the sample, and smaller in the caches ([`KeySample`]). The benefit of a hit is
//!   smaller too, so that policies rank the object as if it had its real size.
//! - Only misses are estimated. The requests are counted exactly, for all objects. A few objects have most hits, and a
//!   sample may have too many or too few of these objects, but misses are spread over many objects.
//!
//! If the live cache has one of the simulated policies and no disk, its misses are known. The estimates of all policies
//! and sizes are then corrected by the ratio of these misses to their estimate ([`Calibration`]), because the errors of
//! all caches have the same causes: which objects are in the sample, and details that the caches leave out.
//!
//! The sample shrinks if the caches need too much memory or get too many requests. It never grows.

use std::time::Duration;

use edgeward_policy::{KeySample, PolicySpec};
use edgeward_types::Timestamp;

pub use crate::estimate::{Calibration, LOST_MAX};
use crate::estimate::{calibration, estimate, is_incomplete};
pub use crate::mini::Request;
use crate::mini::{Answer, Mini};
use crate::window::{Cell, Window};

/// The settings of a [`WhatIf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhatIfConfig {
    /// The capacity of memory.
    pub capacity_bytes: u64,
    /// The bound of the memory of all caches.
    pub memory_max_bytes: u64,
    /// The most requests of the sample in a second. The sample is halved after a second with more. If the caches have
    /// few objects, it is halved after a second with four times as many.
    pub samples_per_second_max: u64,
}

/// Simulated caches that follow a sample of the requests.
#[derive(Debug)]
pub struct WhatIf {
    config: WhatIfConfig,
    sample: KeySample,
    caches: Vec<Mini>,
    window: Window,
    /// Requests of the sample since the start.
    samples: u64,
    /// True if the sample was halved although the caches have few objects.
    lacks_objects: bool,
    /// The start of the current second, and the requests of the sample in it.
    second: (Timestamp, u64),
    last: Totals,
}

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Requests that the cache answered.
    pub hits: u64,
    /// Bytes of all responses.
    pub bytes: u64,
    /// Bytes of the hits.
    pub hit_bytes: u64,
}

impl Counts {
    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            hits: self.hits + other.hits,
            bytes: self.bytes + other.bytes,
            hit_bytes: self.hit_bytes + other.hit_bytes,
        }
    }

    fn minus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            hits: self.hits.saturating_sub(other.hits),
            bytes: self.bytes.saturating_sub(other.bytes),
            hit_bytes: self.hit_bytes.saturating_sub(other.hit_bytes),
        }
    }
}

/// The exact counts of requests that have ended, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests whose objects are known.
    pub of_objects: Counts,
    /// All other requests. They are predicted to be answered as they were.
    pub others: Counts,
    /// Requests of the sample that were not passed to [`WhatIf::request`].
    pub lost: u64,
}

impl Totals {
    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self {
            of_objects: self.of_objects.minus(&other.of_objects),
            others: self.others.minus(&other.others),
            lost: self.lost.saturating_sub(other.lost),
        }
    }
}

/// The prediction for one policy and size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The policy.
    pub policy: PolicySpec,
    /// The capacity as a multiple of the present one, such as `0.5`.
    pub size: &'static str,
    /// The capacity of memory.
    pub capacity_bytes: u64,
    /// Hits per request.
    pub hit_ratio: f64,
    /// The standard error of the hit ratio that follows from the size of the sample.
    pub hit_ratio_error: f64,
    /// Bytes of hits per byte of all responses.
    pub byte_hit_ratio: f64,
    /// Bytes of bodies that the origin would send for objects, per second.
    pub origin_bytes_per_second: f64,
    /// True if the simulated cache was never full, and the window has the first requests, or the cache grows so much
    /// that it would be full within a week. The hit ratio is then a lower bound.
    pub is_filling: bool,
}

/// The results of the last hour.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The start of the window.
    pub since: Timestamp,
    /// All live requests of the window.
    pub all: Counts,
    /// Requests of the sample in the window.
    pub samples: u64,
    /// Requests of the sample that were lost in the window.
    pub lost: u64,
    /// True if the sample has few objects, because these have many requests. The predictions are then uncertain beyond
    /// their standard errors.
    pub is_uncertain: bool,
    /// The correction of the predictions.
    pub calibration: Calibration,
    /// The predictions, ordered by policy and size.
    pub points: Vec<Point>,
}

impl Report {
    /// Returns true if more than [`LOST_MAX`] of the sample is lost. The predictions are then too high.
    pub fn is_incomplete(&self) -> bool {
        is_incomplete(self.samples, self.lost)
    }
}

impl WhatIf {
    /// Returns empty caches.
    pub fn new(config: WhatIfConfig) -> Self {
        let sample = first_sample(&config);
        let caches: Vec<Mini> = POLICIES
            .iter()
            .flat_map(|policy| SIZES.iter().map(move |(size, _)| (policy, size)))
            .map(|(policy, size)| {
                let capacity_bytes = (config.capacity_bytes as f64 * size) as u64;
                Mini::new(*policy, capacity_bytes, &sample)
            })
            .collect();
        Self {
            window: Window::new(caches.len()),
            config,
            sample,
            caches,
            samples: 0,
            lacks_objects: false,
            second: (Timestamp::ZERO, 0),
            last: Totals::default(),
        }
    }

    /// Returns the sample whose requests the caches need from now on.
    pub fn sample(&self) -> KeySample {
        self.sample
    }

    /// Returns the number of requests of the sample since the start.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Follows a request. A request outside the sample is ignored.
    pub fn request(&mut self, request: &Request) {
        if !self.sample.takes(request.key, request.charge_bytes) {
            return; // the sample has shrunk since the request
        }
        self.samples += 1;
        let probability = self.sample.probability(request.charge_bytes);
        let scale = self.sample.share() / probability;
        let cell = self.window.cell(request.at);
        cell.add_sample();
        for (index, cache) in self.caches.iter_mut().enumerate() {
            let answer = cache.request(request, scale);
            cell.set_fill(index, cache.fill());
            let origin_bytes = match answer {
                Answer::Hit => continue,
                Answer::Confirmed => 0,
                Answer::Miss => request.length,
            };
            let weight = 1.0 / probability;
            cell.add_miss(index, request.key, weight, request.sent_bytes, origin_bytes);
        }
        self.limit(request.at);
    }

    /// Adds the counts since the start.
    pub fn count(&mut self, now: Timestamp, totals: &Totals) {
        if *totals == Totals::default() {
            return; // the window begins with the first request
        }
        self.window.cell(now).add(&totals.minus(&self.last));
        self.last = *totals;
    }

    /// Returns the predictions for the requests of the last hour. `None` before the first request. `present` is the
    /// policy of the live cache, if it had this policy during all of the window, and no disk.
    pub fn report(&self, now: Timestamp, present: Option<PolicySpec>) -> Option<Report> {
        let sum = self.window.sum()?;
        let calibration = self.calibration(&sum, present);
        let seconds = now.as_millis().saturating_sub(sum.start().as_millis()) as f64 / 1000.0;
        let sizes = SIZES.iter().cycle();
        let points = self.caches.iter().zip(sum.misses()).zip(sizes).enumerate();
        let points = points.map(|(index, ((cache, misses), (_, size)))| {
            let estimate = estimate(misses, &sum, &calibration, seconds);
            Point {
                policy: cache.policy(),
                size,
                capacity_bytes: cache.capacity_bytes(),
                hit_ratio: estimate.hit_ratio,
                hit_ratio_error: estimate.hit_ratio_error,
                byte_hit_ratio: estimate.byte_hit_ratio,
                origin_bytes_per_second: estimate.origin_bytes_per_second,
                is_filling: !cache.has_filled() && self.window.is_filling(index),
            }
        });
        Some(Report {
            since: sum.start(),
            all: sum.of_objects().plus(sum.others()),
            samples: sum.samples(),
            lost: sum.lost(),
            is_uncertain: self.lacks_objects && !self.has_many_residents(),
            calibration,
            points: points.collect(),
        })
    }

    fn calibration(&self, sum: &Cell, present: Option<PolicySpec>) -> Calibration {
        let caches = self.caches.iter().zip(sum.misses());
        let mut present_caches = caches.filter(|(cache, _)| {
            present == Some(cache.policy()) && cache.capacity_bytes() == self.config.capacity_bytes
        });
        let Some((_, misses)) = present_caches.next() else {
            return Calibration::NONE;
        };
        calibration(sum, misses)
    }

    /// Returns the bytes of memory that all caches take.
    pub fn memory_bytes(&self) -> u64 {
        let caches: u64 = self.caches.iter().map(Mini::memory_bytes).sum();
        caches + self.window.memory_bytes()
    }

    /// Halves the sample if it is too large.
    fn limit(&mut self, now: Timestamp) {
        let (start, requests) = &mut self.second;
        if now.since(*start) >= SECOND {
            (*start, *requests) = (now, 0);
        }
        *requests += 1;
        let (requests, max) = (*requests, self.config.samples_per_second_max);
        // If a few objects have all requests, the predictions are poor without some of them. The bound is then higher.
        let smaller = if requests > max.saturating_mul(FEW_OBJECTS_FACTOR) {
            self.lacks_objects |= !self.has_many_residents();
            Some(KeySample {
                large_log2: self.sample.large_log2, // so that half of the large objects leave, too
                ..self.sample.half()
            })
        } else if requests > max && self.has_many_residents() {
            Some(self.smaller_sample())
        } else {
            None
        };
        if let Some(smaller) = smaller {
            self.second = (now, 0);
            self.shrink(smaller);
        }
        if self.samples.is_multiple_of(CHECK_INTERVAL)
            && self.memory_bytes() > self.config.memory_max_bytes / 10 * 9
        {
            self.shrink(self.sample.half());
        }
    }

    fn has_many_residents(&self) -> bool {
        self.caches.iter().all(Mini::has_many_residents)
    }

    /// Returns a sample with half of the small objects, and also with half of the large objects unless these would
    /// take too much of the smallest cache.
    fn smaller_sample(&self) -> KeySample {
        let half = self.sample.half();
        let smallest = self.config.capacity_bytes as f64 * SIZES[0].0 * half.share();
        let keeps_size = 2_f64.powi(self.sample.large_log2 as i32) <= smallest / LARGE_PART_MIN;
        KeySample {
            large_log2: if keeps_size {
                self.sample.large_log2
            } else {
                half.large_log2
            },
            ..half
        }
    }

    fn shrink(&mut self, sample: KeySample) {
        self.sample = sample;
        for cache in &mut self.caches {
            cache.shrink(&self.sample);
        }
    }
}

/// Returns the largest sample that the memory can follow if objects have [`OBJECT_BYTES`] on average. Smaller ones
/// halve the sample later.
fn first_sample(config: &WhatIfConfig) -> KeySample {
    let smallest = config.capacity_bytes as f64 * SIZES[0].0;
    let objects = config.memory_max_bytes as f64 / CACHE_OBJECT_BYTES / SIZES_SUM;
    let all_objects = (config.capacity_bytes as f64 / OBJECT_BYTES).max(1.0);
    let share = (objects / all_objects).min(1.0);
    KeySample {
        below: (share * 2_f64.powi(64)) as u64, // saturates
        // An object takes at most this part of the smallest cache.
        large_log2: ((smallest * share / LARGE_PART).max(1.0) as u64).ilog2(),
    }
}

/// The policies, in the order of the predictions.
const POLICIES: [PolicySpec; 3] = [PolicySpec::LRU, PolicySpec::GDSF, PolicySpec::DENSITY];

/// The capacities as multiples of the present one, and their texts.
pub(crate) const SIZES: [(f64, &str); 5] =
    [(0.5, "0.5"), (1.0, "1"), (2.0, "2"), (4.0, "4"), (8.0, "8")];

/// The sum of the sizes, for each policy.
pub(crate) const SIZES_SUM: f64 = 15.5;

/// The mean charge of objects for the first sample: typical of downloads. Smaller objects halve the sample while they
/// fill the caches.
const OBJECT_BYTES: f64 = 262_144.0;

/// The memory of an object in the caches of all policies with one size.
const CACHE_OBJECT_BYTES: f64 = 400.0;

/// An object of the sample takes at most this part of the smallest cache, unless the sample has all objects of its
/// size.
const LARGE_PART: f64 = 32.0;

/// The same after the sample was halved several times.
const LARGE_PART_MIN: f64 = 8.0;

/// While the caches have few objects, the sample is halved after a second with so many times the most requests.
const FEW_OBJECTS_FACTOR: u64 = 4;

const SECOND: Duration = Duration::from_secs(1);

/// The requests of the sample between two checks of the memory. In this time the caches cannot grow by a tenth of the
/// least bound.
const CHECK_INTERVAL: u64 = 64;

#[cfg(test)]
mod tests {
    use edgeward_sim::{Run, RunConfig};
    use edgeward_trace::Record;
    use edgeward_types::{KeyHash, Seed, SplitMix64, mix64};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn config(capacity_bytes: u64) -> WhatIfConfig {
        WhatIfConfig {
            capacity_bytes,
            memory_max_bytes: 8 * MIB,
            samples_per_second_max: u64::MAX,
        }
    }

    fn request(at_ms: u64, key: u64, charge_bytes: u64) -> Request {
        Request {
            at: Timestamp::from_millis(at_ms),
            key: KeyHash(mix64(key + 1)),
            charge_bytes,
            length: charge_bytes,
            sent_bytes: charge_bytes,
            lifetime_ms: u64::MAX,
            stale_while_revalidate_ms: 0,
            has_validator: true,
        }
    }

    /// Passes a request to the caches as the edge does, and counts it.
    fn follow(what_if: &mut WhatIf, counts: &mut Counts, request: &Request) {
        if what_if.sample().takes(request.key, request.charge_bytes) {
            what_if.request(request);
        }
        counts.requests += 1;
        counts.bytes += request.sent_bytes;
    }

    fn of_objects(counts: &Counts) -> Totals {
        Totals {
            of_objects: *counts,
            ..Totals::default()
        }
    }

    fn report(what_if: &mut WhatIf, counts: &Counts, at_ms: u64) -> Report {
        let now = Timestamp::from_millis(at_ms);
        what_if.count(now, &of_objects(counts));
        what_if.report(now, None).expect("there were requests")
    }

    /// Method: keys of skewed popularity, with sizes of 1 to 256 KiB. A full simulation of each cache is the oracle.
    /// The sample shrinks during the run.
    #[test]
    fn a_prediction_is_within_two_points_of_a_full_cache() {
        let mut random = SplitMix64(44);
        let capacity_bytes = 256 * MIB;
        let records: Vec<Record> = (0..150_000_u64)
            .map(|_| {
                let unit = random.draw() as f64 / 2_f64.powi(64);
                let key = (40_000.0 * unit.powi(6)) as u64;
                Record {
                    time: Timestamp::ZERO,
                    key,
                    size: (1 << 10) << (mix64(key) % 9),
                }
            })
            .collect();
        let mut what_if = WhatIf::new(config(capacity_bytes));
        let first = what_if.sample();
        let mut counts = Counts::default();
        for (index, record) in records.iter().enumerate() {
            let request = request(index as u64, record.key, record.size);
            follow(&mut what_if, &mut counts, &request);
        }
        assert!(what_if.sample().below < first.below, "{first:?}");
        let report = report(&mut what_if, &counts, 150_000);
        assert_eq!(report.points.len(), 15);
        for point in report.points {
            let mut run = Run::new(RunConfig {
                policy: point.policy,
                capacity_bytes: point.capacity_bytes,
                warmup_requests: 0,
                object_overhead_bytes: 0,
                seed: Seed(1),
                window_requests: None,
                interval_requests: u64::MAX,
            });
            run.feed(&records);
            let expected = run.report().object_hit_ratio;
            let error = (point.hit_ratio - expected).abs();
            assert!(error < 0.02, "{point:?}, {expected}");
            assert!(point.hit_ratio_error < 0.02, "{point:?}");
        }
    }

    /// Method: ten million distinct keys, of small and of large objects, at a steady rate.
    #[test]
    fn ten_million_distinct_keys_stay_within_the_memory() {
        for (charge_bytes, capacity_bytes) in [(1 << 10, 4096 * MIB), (100 << 10, 65536 * MIB)] {
            let config = config(capacity_bytes);
            let mut what_if = WhatIf::new(config);
            let mut counts = Counts::default();
            for key in 0..5_000_000 {
                let samples = what_if.samples();
                follow(
                    &mut what_if,
                    &mut counts,
                    &request(key / 10, key, charge_bytes),
                );
                if what_if.samples() > samples && samples.is_multiple_of(16) {
                    let memory_bytes = what_if.memory_bytes();
                    assert!(
                        memory_bytes <= config.memory_max_bytes,
                        "{memory_bytes} at {key}"
                    );
                }
            }
            assert!(what_if.samples() > 1000, "{}", what_if.samples());
            let report = report(&mut what_if, &counts, 500_000);
            assert!(
                report.points.iter().all(|point| point.hit_ratio < 0.01),
                "{report:?}"
            );
        }
    }

    /// Method: an hour with distinct keys, then hits on one object in ten.
    #[test]
    fn the_window_forgets_the_requests_of_an_hour_ago() {
        let mut what_if = WhatIf::new(config(64 * MIB));
        let mut counts = Counts::default();
        let minute = |minute: u64| minute * 60_000;
        for key in 0..60_u64 {
            follow(&mut what_if, &mut counts, &request(minute(key), key, 1000));
            assert_eq!(
                report(&mut what_if, &counts, minute(key)).points[1].hit_ratio,
                0.0
            );
        }
        for at in 60..130_u64 {
            follow(
                &mut what_if,
                &mut counts,
                &request(minute(at), at % 10, 1000),
            );
            let report = report(&mut what_if, &counts, minute(at));
            assert!(report.all.requests <= 61, "{report:?}");
        }
        let report = report(&mut what_if, &counts, minute(130));
        assert_eq!(report.points[1].hit_ratio, 1.0, "{report:?}");
        // The caches were never full, and have all objects.
        assert!(report.points.iter().all(|point| !point.is_filling));
        assert!(report.since >= Timestamp::from_millis(minute(70)));
    }

    /// Method: distinct keys up to the capacity of each size, which has room for 64 objects with the overhead.
    #[test]
    fn a_prediction_is_a_lower_bound_until_its_cache_was_full() {
        let mut what_if = WhatIf::new(config(64 * MIB));
        let mut counts = Counts::default();
        let object = 256 << 10;
        for key in 0..3000 {
            follow(&mut what_if, &mut counts, &request(key, key, object));
            let report = report(&mut what_if, &counts, key);
            for point in report.points {
                let arrived = (key + 1) * object;
                let is_filling = arrived <= point.capacity_bytes;
                // The bookkeeping of the policies takes less than 2 % of the capacity.
                if arrived.abs_diff(point.capacity_bytes) > point.capacity_bytes / 50 + object {
                    assert_eq!(point.is_filling, is_filling, "{key}: {point:?}");
                }
            }
        }
    }

    /// Method: a new object each minute for three hours, which would fill the caches within a day or a week, then only
    /// old ones. The least size was full.
    #[test]
    fn a_prediction_is_a_lower_bound_while_its_cache_grows() {
        let mut what_if = WhatIf::new(config(64 * MIB));
        let mut counts = Counts::default();
        let mut known_at = |minutes: std::ops::Range<u64>, keys: u64| {
            let last = minutes.end - 1;
            for minute in minutes {
                let request = request(60_000 * minute, minute % keys, 256 << 10);
                follow(&mut what_if, &mut counts, &request);
            }
            let points = report(&mut what_if, &counts, 60_000 * last).points;
            let known = points.iter().filter(|point| !point.is_filling);
            known.map(|point| point.size).collect::<Vec<_>>()
        };
        assert_eq!(known_at(0..180, u64::MAX), ["0.5"; 3]);
        assert_eq!(known_at(180..241, 100).len(), 15);
    }

    /// Method: one object whose lifetime is a minute, and which may be used for ten seconds more while it is validated.
    #[test]
    fn a_stale_object_is_a_miss_unless_it_may_be_used_meanwhile() {
        let mut what_if = WhatIf::new(config(64 * MIB));
        let mut counts = Counts::default();
        let mut hits_at = |seconds: u64| {
            let mut request = request(1000 * seconds, 1, 1000);
            (request.lifetime_ms, request.stale_while_revalidate_ms) = (60_000, 10_000);
            follow(&mut what_if, &mut counts, &request);
            let report = report(&mut what_if, &counts, 1000 * seconds);
            (report.points[1].hit_ratio * counts.requests as f64).round() as u64
        };
        let hits = [0, 59, 60, 119, 129, 189, 199, 259].map(&mut hits_at);
        // The lifetime begins again at 60, 129 and 189. It ends at 249, and 259 is too late.
        assert_eq!(hits, [0, 1, 2, 3, 4, 5, 6, 6]);
    }

    /// Method: the live cache has 10 % more misses than its simulation, then three times as many.
    #[test]
    fn the_misses_of_the_live_cache_correct_all_predictions() {
        for (misses, factor) in [(1.1, 1.1), (3.0, 1.25)] {
            let mut what_if = WhatIf::new(config(64 * MIB));
            let mut counts = Counts::default();
            for at in 0..5_000 {
                follow(&mut what_if, &mut counts, &request(at, at % 500, 1000));
            }
            let misses = (500.0 * misses) as u64;
            counts.hits = counts.requests - misses;
            counts.hit_bytes = 1000 * counts.hits;
            let now = Timestamp::from_millis(5_000);
            what_if.count(now, &of_objects(&counts));
            let with = |present| what_if.report(now, present).expect("requests").points;
            for (plain, corrected) in with(None).iter().zip(with(Some(PolicySpec::GDSF))) {
                let expected = (1.0 - plain.hit_ratio) * factor;
                assert!(
                    (1.0 - corrected.hit_ratio - expected).abs() < 1e-9,
                    "{corrected:?}"
                );
                let expected = (1.0 - plain.byte_hit_ratio) * factor;
                assert!(
                    (1.0 - corrected.byte_hit_ratio - expected).abs() < 1e-9,
                    "{corrected:?}"
                );
            }
        }
    }

    /// Requests of objects that are not known are predicted to be answered as they were.
    #[test]
    fn other_requests_keep_their_answers() {
        let mut what_if = WhatIf::new(config(64 * MIB));
        let at = Timestamp::from_secs(1);
        let all = Counts {
            requests: 100,
            hits: 40,
            bytes: 1000,
            hit_bytes: 100,
        };
        let totals = Totals {
            others: all,
            ..Totals::default()
        };
        what_if.count(at, &totals);
        let report = what_if.report(at, None).expect("requests");
        assert!(report.points.iter().all(|point| point.hit_ratio == 0.4));
        assert!(
            report
                .points
                .iter()
                .all(|point| point.byte_hit_ratio == 0.1)
        );
    }

    /// Method: between two passes, ten requests with an object end, and 0, 5, 0 and 5 of the others.
    #[test]
    fn each_request_is_counted_once() {
        let mut what_if = WhatIf::new(config(64 * MIB));
        let mut totals = Totals::default();
        let counts = |requests, hits| Counts {
            requests,
            hits,
            ..Counts::default()
        };
        for (second, others) in [0, 5, 0, 5].into_iter().enumerate() {
            totals.of_objects = totals.of_objects.plus(&counts(10, 4));
            totals.others = totals.others.plus(&counts(others, others));
            what_if.count(Timestamp::from_secs(second as u64), &totals);
        }
        let report = what_if.report(Timestamp::from_secs(4), None);
        assert_eq!(report.expect("requests").all, counts(50, 26));
    }

    /// Method: one object that is stale at each request. If the origin can confirm it, its body is sent once.
    #[test]
    fn a_confirmed_object_costs_the_origin_no_body() {
        for (has_validator, bodies) in [(true, 1.0), (false, 10.0)] {
            let mut what_if = WhatIf::new(config(64 * MIB));
            let mut counts = Counts::default();
            for minute in 0..10 {
                let request = Request {
                    lifetime_ms: 1000,
                    has_validator,
                    ..request(60_000 * minute, 1, 1000)
                };
                follow(&mut what_if, &mut counts, &request);
            }
            for point in report(&mut what_if, &counts, 540_000).points {
                let expected = bodies * 1000.0 / 540.0;
                assert!(
                    (point.origin_bytes_per_second - expected).abs() < 1e-9,
                    "{point:?}"
                );
                assert_eq!((point.hit_ratio, point.byte_hit_ratio), (0.0, 0.0));
            }
        }
    }

    /// Method: the live cache has 10 % more misses than its simulation, with 1 % of the sample lost, and then more.
    #[test]
    fn an_incomplete_sample_corrects_nothing() {
        for (lost, is_incomplete) in [(50, false), (60, true)] {
            let mut what_if = WhatIf::new(config(64 * MIB));
            let mut counts = Counts::default();
            for at in 0..5_000 {
                follow(&mut what_if, &mut counts, &request(at, at % 500, 1000));
            }
            counts.hits = counts.requests - 550;
            let now = Timestamp::from_millis(5_000);
            let totals = Totals {
                lost,
                ..of_objects(&counts)
            };
            what_if.count(now, &totals);
            let report = what_if.report(now, Some(PolicySpec::GDSF));
            let report = report.expect("requests");
            assert_eq!((report.lost, report.is_incomplete()), (lost, is_incomplete));
            assert_eq!(report.calibration == Calibration::NONE, is_incomplete);
        }
    }

    /// Method: ten objects have all requests, in one second and then in many. Large objects are among them.
    #[test]
    fn few_objects_with_too_many_requests_halve_the_sample() {
        let limits = WhatIfConfig {
            samples_per_second_max: 1000,
            ..config(256 * MIB)
        };
        for charge_bytes in [1000, 8 * MIB] {
            let mut what_if = WhatIf::new(limits);
            let first = what_if.sample();
            let mut counts = Counts::default();
            let mut second = |what_if: &mut WhatIf, at: u64, requests: u64| {
                let samples = what_if.samples();
                for key in 0..requests {
                    let request = request(1000 * at + 999, key % 10, charge_bytes);
                    follow(what_if, &mut counts, &request);
                }
                what_if.samples() - samples
            };
            assert_eq!(second(&mut what_if, 1, 4000), 4000);
            assert_eq!(what_if.sample(), first);
            second(&mut what_if, 2, 4001);
            assert_eq!(what_if.sample().below, first.below / 2);
            for at in 3..100 {
                second(&mut what_if, at, 50_000);
            }
            let samples = second(&mut what_if, 100, 50_000);
            assert!(samples <= 4000, "{samples} samples of {charge_bytes} bytes");
            assert!(report(&mut what_if, &counts, 100_999).is_uncertain);
        }
    }

    /// Method: more requests in a second than the bound, each of another key, then a second within the bound.
    #[test]
    fn a_second_with_too_many_requests_halves_the_sample() {
        let limits = WhatIfConfig {
            samples_per_second_max: 10_000,
            memory_max_bytes: 64 * MIB,
            ..config(64 * MIB)
        };
        for (requests, halved) in [(10_000, false), (10_001, true)] {
            let mut what_if = WhatIf::new(limits);
            let first = what_if.sample();
            assert_eq!(first.share(), 1.0);
            let mut counts = Counts::default();
            for key in 0..requests {
                follow(&mut what_if, &mut counts, &request(999, key, 1000));
            }
            let share = if halved { 0.5 } else { 1.0 };
            assert!((what_if.sample().share() - share).abs() < 1e-9);
            assert!(!report(&mut what_if, &counts, 999).is_uncertain);
        }
    }
}
