//! The hit ratios that other sizes of the disk and other admission rules would have for the live requests.
//!
//! The tiers are inclusive, so memory has the same objects with each disk. One small cache stands for memory, and for
//! each size and rule a small disk gets what memory cannot answer. They follow a sample of their own, a part of that of
//! [`what_if`](crate::what_if): a disk has many more objects than memory.

use edgeward_policy::disk_admission::DiskAdmissionSpec;
use edgeward_policy::log::Reinsertion;
use edgeward_policy::{KeySample, PolicySpec};
use edgeward_types::Timestamp;

pub use crate::estimate::Estimate;
use crate::estimate::{Calibration, calibration, estimate};
use crate::mini::{Answer, Mini, Request, after};
use crate::mini_disk::{DiskObject, MiniDisk};
use crate::what_if::{SIZES, SIZES_SUM, Totals};
use crate::window::Window;

/// The settings of a [`DiskWhatIf`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskWhatIfConfig {
    /// The capacity of the disk.
    pub capacity_bytes: u64,
    /// The rule by which it writes objects again.
    pub reinsertion: Reinsertion,
    /// The capacity of memory.
    pub memory_capacity_bytes: u64,
    /// The bound of the memory of all small caches.
    pub memory_max_bytes: u64,
}

/// Simulated disks below the present memory.
#[derive(Debug)]
pub struct DiskWhatIf {
    config: DiskWhatIfConfig,
    policy: PolicySpec,
    sample: KeySample,
    memory: Mini,
    disks: Vec<MiniDisk>,
    window: Window,
    samples: u64,
    last: Totals,
}

/// The prediction for one size and admission rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskPoint {
    /// The admission rule.
    pub admission: DiskAdmissionSpec,
    /// The capacity as a multiple of the present one, such as `0.5`.
    pub size: &'static str,
    /// The capacity of the disk.
    pub capacity_bytes: u64,
    /// The hit ratios and the traffic of origins.
    pub estimate: Estimate,
    /// Bytes that are written to the disk, per second.
    pub disk_bytes_per_second: f64,
    /// True if the hit ratio is a lower bound, see [`Point::is_filling`](crate::what_if::Point::is_filling).
    pub is_filling: bool,
}

impl DiskWhatIf {
    /// Returns empty caches that follow a part of the sample `whole`. `policy` is that of memory.
    pub fn new(config: DiskWhatIfConfig, policy: PolicySpec, whole: KeySample) -> Self {
        let sample = part_of(first_sample(&config), whole);
        let disks = settings(&config).map(|(admission, _, capacity_bytes)| {
            MiniDisk::new(capacity_bytes, admission, config.reinsertion, &sample)
        });
        let disks: Vec<MiniDisk> = disks.collect();
        Self {
            memory: memory(&config, policy, &sample),
            window: Window::new(disks.len()),
            config,
            policy,
            sample,
            disks,
            samples: 0,
            last: Totals::default(),
        }
    }

    /// Follows another policy of memory, and a part of another sample. With another policy, memory begins empty.
    pub fn follow(&mut self, policy: PolicySpec, whole: KeySample) {
        let sample = part_of(self.sample, whole);
        if sample != self.sample {
            self.shrink(sample);
        }
        if policy != self.policy {
            self.policy = policy;
            self.memory = memory(&self.config, policy, &self.sample);
        }
    }

    fn shrink(&mut self, sample: KeySample) {
        self.sample = sample;
        self.memory.shrink(&sample);
        for disk in &mut self.disks {
            disk.shrink(&sample);
        }
    }

    /// Returns the share of small objects that the sample has.
    pub fn sampled_share(&self) -> f64 {
        self.sample.share()
    }

    /// Follows a request. A request outside the sample is ignored.
    pub fn request(&mut self, request: &Request) {
        let charge = request.charge_bytes;
        if !self.sample.takes(request.key, charge) {
            return;
        }
        self.samples += 1;
        let weight = 1.0 / self.sample.probability(charge);
        let scale = self.sample.share() * weight;
        let cell = self.window.cell(request.at);
        cell.add_sample();
        let stale_at = after(request.at, request.lifetime_ms);
        let was_in_memory = self.memory.holds(request.key);
        let from_memory = self.memory.request(request, scale);
        let object = DiskObject {
            key: request.key,
            charge_bytes: charge,
            length: request.length,
            stale_at,
        };
        for (index, disk) in self.disks.iter_mut().enumerate() {
            let mut written = 0;
            let answer = if was_in_memory {
                if from_memory != Answer::Hit {
                    disk.freshen(request.key, stale_at);
                }
                from_memory
            } else if let Some(disk_stale_at) = disk.hit(request.key) {
                let answer = request.answer_of(disk_stale_at);
                if request.at >= disk_stale_at {
                    disk.freshen(request.key, stale_at);
                }
                answer
            } else {
                written += disk.miss(&object);
                Answer::Miss
            };
            for left in self.memory.left() {
                let object = DiskObject {
                    key: left.evicted.object.key,
                    charge_bytes: left.charge_bytes,
                    length: length_of(left.charge_bytes),
                    stale_at: left.stale_at,
                };
                written += disk.evicted_from_memory(&left.evicted, &object);
            }
            cell.set_fill(index, disk.fill());
            // A scaled byte stands for so many of the real disk.
            cell.add_disk_bytes(index, written as f64 / self.sample.share());
            let origin_bytes = match answer {
                Answer::Hit => continue,
                Answer::Confirmed => 0,
                Answer::Miss => request.length,
            };
            cell.add_miss(index, request.key, weight, request.sent_bytes, origin_bytes);
        }
        // The tables of one rule grow at the same time, to twice their size.
        if self.memory_bytes() + self.disks_bytes() / 2 > self.config.memory_max_bytes {
            self.shrink(self.sample.half());
        }
    }

    /// Adds the counts since the start.
    pub fn count(&mut self, now: Timestamp, totals: &Totals) {
        if *totals == Totals::default() {
            return;
        }
        self.window.cell(now).add(&totals.minus(&self.last));
        self.last = *totals;
    }

    /// Returns the predictions for the requests of the last hour, ordered by rule and size, and the number of requests
    /// of the sample. `None` before the first request. If the rule `present` of the live disk is simulated, the
    /// measured misses correct all estimates.
    pub fn report(
        &self,
        now: Timestamp,
        present: Option<DiskAdmissionSpec>,
    ) -> Option<(u64, Vec<DiskPoint>)> {
        let sum = self.window.sum()?;
        let seconds = now.since(sum.start()).as_secs_f64().max(1.0);
        let is_present = |(admission, size, _): (DiskAdmissionSpec, &str, u64)| {
            Some(admission) == present && size == "1"
        };
        let present = settings(&self.config).position(is_present);
        let calibration =
            present.map_or(Calibration::NONE, |at| calibration(&sum, &sum.misses()[at]));
        let settings = settings(&self.config);
        let simulated = sum.misses().iter().zip(sum.disk_bytes()).zip(&self.disks);
        let points = settings.zip(simulated.enumerate());
        let points = points.map(
            |((admission, size, capacity_bytes), (index, ((misses, disk_bytes), disk)))| {
                DiskPoint {
                    admission,
                    size,
                    capacity_bytes,
                    estimate: estimate(misses, &sum, &calibration, seconds),
                    disk_bytes_per_second: disk_bytes / seconds,
                    is_filling: !disk.has_filled() && self.window.is_filling(index),
                }
            },
        );
        Some((sum.samples(), points.collect()))
    }

    /// Returns the bytes of memory that all caches take.
    pub fn memory_bytes(&self) -> u64 {
        self.disks_bytes() + self.memory.memory_bytes() + self.window.memory_bytes()
    }

    fn disks_bytes(&self) -> u64 {
        self.disks.iter().map(MiniDisk::memory_bytes).sum()
    }
}

/// Returns the admission rules, sizes and capacities of the disks.
fn settings(
    config: &DiskWhatIfConfig,
) -> impl Iterator<Item = (DiskAdmissionSpec, &'static str, u64)> {
    let capacity = config.capacity_bytes as f64;
    ADMISSIONS.into_iter().flat_map(move |admission| {
        SIZES
            .iter()
            .map(move |(size, text)| (admission, *text, (capacity * size) as u64))
    })
}

fn memory(config: &DiskWhatIfConfig, policy: PolicySpec, sample: &KeySample) -> Mini {
    let mut memory = Mini::new(policy, config.memory_capacity_bytes, sample);
    memory.keep_evicted();
    memory
}

/// Returns about the length of an object with this charge. The allocator rounds up, by 6 % on average.
fn length_of(charge_bytes: u64) -> u64 {
    (charge_bytes.saturating_sub(OVERHEAD_BYTES) as f64 / 1.06) as u64
}

/// Returns the largest sample that the memory can follow if objects have [`OBJECT_BYTES`] on average.
fn first_sample(config: &DiskWhatIfConfig) -> KeySample {
    let rules = ADMISSIONS.len() as f64;
    let objects = config.memory_max_bytes as f64 / DISK_OBJECT_BYTES / SIZES_SUM / rules;
    let all_objects = (config.capacity_bytes as f64 / OBJECT_BYTES).max(1.0);
    let share = (objects / all_objects).min(1.0);
    let smallest = (config.capacity_bytes as f64 / 2.0 / DISK_LARGE_PART)
        .min(config.memory_capacity_bytes as f64 / MEMORY_LARGE_PART);
    KeySample {
        below: (share * 2_f64.powi(64)) as u64, // saturates
        large_log2: ((smallest * share).max(1.0) as u64).ilog2(),
    }
}

/// Returns the largest part of `sample` that `whole` has.
fn part_of(sample: KeySample, whole: KeySample) -> KeySample {
    let below = sample.below.min(whole.below);
    // Large objects must not be more frequent than in the whole, too: compare the probability of each byte.
    let ratio = (below as f64 / whole.below.max(1) as f64).log2();
    let large_log2 = (f64::from(whole.large_log2) + ratio).ceil().max(0.0) as u32;
    KeySample {
        below,
        large_log2: sample.large_log2.max(large_log2),
    }
}

/// The admission rules, in the order of the predictions.
const ADMISSIONS: [DiskAdmissionSpec; 2] =
    [DiskAdmissionSpec::Always, DiskAdmissionSpec::SecondHit];

/// The mean length of objects for the first sample.
const OBJECT_BYTES: f64 = 262_144.0;

/// The memory of an object in one disk, with the keys that an admission rule remembers.
const DISK_OBJECT_BYTES: f64 = 110.0;

/// An object of the sample takes at most this part of the smallest disk, and of memory.
const DISK_LARGE_PART: f64 = 32.0;
const MEMORY_LARGE_PART: f64 = 8.0;

/// The bytes of structures, key and head in a charge.
const OVERHEAD_BYTES: u64 = 550;

#[cfg(test)]
mod tests {
    use edgeward_policy::HierarchyRules;
    use edgeward_policy::disk_admission::memory_for_disk;
    use edgeward_sim::{DiskConfig, Run, RunConfig};
    use edgeward_trace::Record;
    use edgeward_types::{KeyHash, Seed, SplitMix64, charge_bytes, mix64};

    use super::*;
    use crate::what_if::Counts;

    const MIB: u64 = 1 << 20;

    fn config(memory_max_bytes: u64) -> DiskWhatIfConfig {
        DiskWhatIfConfig {
            capacity_bytes: 256 * MIB,
            reinsertion: Reinsertion::Hit { hits_min: 1 },
            memory_capacity_bytes: 16 * MIB,
            memory_max_bytes,
        }
    }

    const ALL: KeySample = KeySample {
        below: u64::MAX,
        large_log2: 63,
    };

    /// Requests for objects whose popularity falls with their rank, of 10 to 90 KB.
    fn records(requests: u64) -> Vec<Record> {
        let mut random = SplitMix64(11);
        let mut uniform = || (random.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        let record = |_| {
            let key = (40_000_f64.powf(uniform()) * (1.0 + uniform())) as u64;
            Record {
                time: Timestamp::ZERO,
                key,
                size: 10_000 + mix64(key) % 80_000,
            }
        };
        (0..requests).map(record).collect()
    }

    fn request(record: &Record) -> Request {
        Request {
            at: Timestamp::from_secs(1),
            key: KeyHash(mix64(record.key + 1)),
            charge_bytes: charge_bytes(record.size, OVERHEAD_BYTES),
            length: record.size,
            sent_bytes: record.size,
            lifetime_ms: u64::MAX,
            stale_while_revalidate_ms: 0,
            has_validator: true,
        }
    }

    fn predicted(config: DiskWhatIfConfig, records: &[Record]) -> (DiskWhatIf, Vec<DiskPoint>) {
        let mut what_if = DiskWhatIf::new(config, PolicySpec::LRU, ALL);
        let mut totals = Totals::default();
        for record in records {
            totals.of_objects = totals.of_objects.plus(&Counts {
                requests: 1,
                bytes: record.size,
                ..Counts::default()
            });
            what_if.request(&request(record));
        }
        what_if.count(Timestamp::from_secs(1), &totals);
        let report = what_if.report(Timestamp::from_secs(101), None);
        (what_if, report.expect("requests").1)
    }

    /// Returns the hit ratio and the bytes written to disk by a complete simulation.
    fn simulated(point: &DiskPoint, records: &[Record]) -> (f64, f64) {
        let disk = DiskConfig {
            capacity_bytes: point.capacity_bytes,
            admission: point.admission,
            memory: memory_for_disk(point.capacity_bytes),
            eviction: config(0).reinsertion,
            rules: HierarchyRules::default(),
        };
        let run = RunConfig {
            policy: PolicySpec::LRU,
            capacity_bytes: config(0).memory_capacity_bytes,
            warmup_requests: 0,
            object_overhead_bytes: OVERHEAD_BYTES,
            seed: Seed(1),
            window_requests: None,
            interval_requests: u64::MAX,
        };
        let mut run = Run::with_disk(run, disk);
        run.feed(records);
        let report = run.report();
        let disk = report.disk.expect("a disk");
        (report.object_hit_ratio, disk.done.written_bytes as f64)
    }

    /// Method: all sizes and both rules, once with all objects and once with a sample of 4 % of them.
    #[test]
    fn predictions_are_those_of_a_complete_simulation() {
        let records = records(100_000);
        for (memory_max_bytes, hits_max, written_max) in
            [(64 * MIB, 0.005, 0.03), (2 * MIB, 0.02, 0.1)]
        {
            let (what_if, points) = predicted(config(memory_max_bytes), &records);
            assert!(what_if.memory_bytes() <= memory_max_bytes);
            assert_eq!(what_if.sampled_share() == 1.0, memory_max_bytes == 64 * MIB);
            assert_eq!(points.len(), 10);
            for point in &points {
                let (hits, written) = simulated(point, &records);
                let difference = (point.estimate.hit_ratio - hits).abs();
                let written_share = point.disk_bytes_per_second * 100.0 / written;
                assert!(difference <= hits_max, "{hits} {point:?}");
                assert!(
                    (written_share - 1.0).abs() <= written_max,
                    "{written} {point:?}"
                );
            }
            // The first size with the first rule has fewer hits than the last, and the rule of the second request
            // writes less.
            assert!(points[0].estimate.hit_ratio + 0.05 < points[4].estimate.hit_ratio);
            assert!(points[6].disk_bytes_per_second < 0.8 * points[1].disk_bytes_per_second);
        }
    }

    /// Method: a new object each minute for three hours, then always the same one. No object gets a second request, so
    /// the second rule writes none.
    #[test]
    fn a_prediction_is_a_lower_bound_while_its_disk_grows() {
        let mut what_if = DiskWhatIf::new(config(64 * MIB), PolicySpec::LRU, ALL);
        let mut known_at = |minutes: std::ops::Range<u64>, keys: u64| {
            let last = minutes.end - 1;
            for minute in minutes {
                let record = Record {
                    time: Timestamp::ZERO,
                    key: minute % keys,
                    size: 256 << 10,
                };
                what_if.request(&Request {
                    at: Timestamp::from_secs(60 * minute),
                    ..request(&record)
                });
            }
            let report = what_if.report(Timestamp::from_secs(60 * last), None);
            let points = report.expect("requests").1;
            let known = points.iter().filter(|point| !point.is_filling);
            known.map(|point| point.admission).collect::<Vec<_>>()
        };
        assert_eq!(
            known_at(0..180, u64::MAX),
            [DiskAdmissionSpec::SecondHit; 5]
        );
        assert_eq!(known_at(180..241, 1).len(), 10);
    }

    /// Method: objects that are stale at each request, with and without a validator.
    #[test]
    fn a_stale_object_on_disk_is_no_hit() {
        for (has_validator, bodies) in [(true, 2.0), (false, 10.0)] {
            let mut what_if = DiskWhatIf::new(config(64 * MIB), PolicySpec::LRU, ALL);
            let mut totals = Totals::default();
            for minute in 0..10_u64 {
                // Requests for other objects evict the object from memory.
                for other in 0..2000 {
                    let mut other = request(&Record {
                        time: Timestamp::ZERO,
                        key: 1000 + other,
                        size: 20_000,
                    });
                    other.at = Timestamp::from_secs(60 * minute);
                    what_if.request(&other);
                }
                let mut request = request(&Record {
                    time: Timestamp::ZERO,
                    key: 1,
                    size: 1_000_000,
                });
                request.at = Timestamp::from_secs(60 * minute);
                (request.lifetime_ms, request.has_validator) = (1000, has_validator);
                what_if.request(&request);
                totals.of_objects.requests += 2001;
                what_if.count(request.at, &totals);
            }
            let (_, points) = what_if
                .report(Timestamp::from_secs(540), None)
                .expect("requests");
            // With `always`, the object is on disk from its first request. The others are fetched at most twice.
            let bodies_of =
                |point: &DiskPoint| (point.estimate.origin_bytes_per_second * 540.0 / 1e6).round();
            let largest = points.iter().filter(|point| point.size == "8");
            let of_others = 40.0; // 2,000 objects of 20 KB, once
            let found: Vec<f64> = largest.map(|point| bodies_of(point) - of_others).collect();
            assert!(
                found[0] <= bodies && found[0] >= bodies - 1.0,
                "{found:?} {bodies}"
            );
        }
    }

    /// Method: distinct keys only.
    #[test]
    fn many_objects_stay_within_the_memory() {
        for memory_max_bytes in [MIB, 4 * MIB] {
            let mut what_if = DiskWhatIf::new(config(memory_max_bytes), PolicySpec::DENSITY, ALL);
            for key in 0..60_000 {
                let record = Record {
                    time: Timestamp::ZERO,
                    key,
                    size: 1000,
                };
                what_if.request(&request(&record));
                let memory = what_if.memory_bytes();
                assert!(
                    memory <= memory_max_bytes,
                    "{memory} after {key}: {} {} {:?}",
                    what_if.memory.memory_bytes(),
                    what_if.window.memory_bytes(),
                    what_if
                        .disks
                        .iter()
                        .map(MiniDisk::memory_bytes)
                        .collect::<Vec<_>>()
                );
            }
        }
    }

    #[test]
    fn a_part_has_no_object_outside_the_whole() {
        let whole = KeySample {
            below: u64::MAX / 3,
            large_log2: 12,
        };
        for (below, large_log2) in [(u64::MAX, 10), (u64::MAX / 50, 8), (u64::MAX / 50, 20)] {
            let part = part_of(KeySample { below, large_log2 }, whole);
            for key in 0..20_000 {
                for size in [1, 3000, 5000, 100_000, 10_000_000] {
                    let key = KeyHash(mix64(key));
                    assert!(
                        !part.takes(key, size) || whole.takes(key, size),
                        "{part:?} {size}"
                    );
                }
            }
        }
    }
}
