//! The hit ratios that sizes and policies of memory would have for the requests of a log.
//!
//! A [`Survey`] reads the log once: how many requests and bytes does it have? A [`Study`] reads it again and simulates
//! the caches of [`what_if`](crate::what_if), whose sizes follow from the survey. The first requests fill the caches and
//! are not counted. A log has no lifetimes, so no object expires.

use std::time::Duration;

use edgeward_policy::log::Reinsertion;
use edgeward_policy::{KeySample, PolicySpec};
use edgeward_types::{KeyHash, Timestamp, charge_bytes, mix64};
use hashbrown::HashMap;

use crate::advise::{DiskSetting, Setting};
use crate::disk::{DiskWhatIf, DiskWhatIfConfig};
use crate::what_if::{Counts, Request, Totals, WhatIf, WhatIfConfig};

/// One request of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// The time of the request.
    pub at: Timestamp,
    /// The key of the object. Any numbers: they are hashed.
    pub key: u64,
    /// The length of the body.
    pub size: u64,
}

/// The number of requests of a log, their times and the sizes of a sample of objects, from its first pass.
#[derive(Debug)]
pub struct Survey {
    sample: KeySample,
    /// The charges of the objects of the sample.
    charges: HashMap<u64, u64>,
    requests: u64,
    times: Option<(Timestamp, Timestamp)>,
}

impl Default for Survey {
    fn default() -> Self {
        Self {
            sample: KeySample {
                below: u64::MAX,
                large_log2: KeySample::NONE.large_log2,
            },
            charges: HashMap::new(),
            requests: 0,
            times: None,
        }
    }
}

impl Survey {
    /// Counts a request.
    pub fn add(&mut self, request: &LoggedRequest) {
        self.requests += 1;
        let (first, last) = self.times.unwrap_or((request.at, request.at));
        self.times = Some((first.min(request.at), last.max(request.at)));
        let key = KeyHash(mix64(request.key));
        if !self.sample.takes(key, 0) {
            return;
        }
        let charge = charge_bytes(request.size, OVERHEAD_BYTES);
        self.charges.insert(key.0, charge);
        while self.charges.len() > SURVEY_KEYS_MAX {
            self.sample = self.sample.half();
            let sample = self.sample;
            self.charges.retain(|key, _| sample.takes(KeyHash(*key), 0));
        }
    }

    /// Returns the number of requests.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the estimated memory that all objects would take.
    pub fn footprint_bytes(&self) -> u64 {
        let sampled: u64 = self.charges.values().sum();
        (sampled as f64 / self.sample.share()) as u64
    }

    /// Returns the capacity in the middle of the simulated ones, if no capacity is given. The largest one then has room
    /// for all objects.
    pub fn capacity_bytes(&self) -> u64 {
        let capacity = (self.footprint_bytes() / 8).next_multiple_of(CAPACITY_STEP);
        capacity.max(CAPACITY_MIN)
    }

    /// Returns the time from the first to the last request.
    fn span(&self) -> Duration {
        self.times
            .map_or(Duration::ZERO, |(first, last)| last.since(first))
    }
}

/// The simulation of a log.
#[derive(Debug)]
pub struct Study {
    what_if: WhatIf,
    disk: Option<DiskWhatIf>,
    policy: PolicySpec,
    warmup_requests: u64,
    /// The time that the counted requests take.
    counted: Duration,
    seen: u64,
    totals: Totals,
}

impl Study {
    /// Returns empty caches for a log. `capacity_bytes` is the present capacity of memory, or that of the survey, and
    /// `disk_bytes` that of a disk below memory with the policy `policy`.
    pub fn new(
        survey: &Survey,
        capacity_bytes: u64,
        policy: PolicySpec,
        disk_bytes: Option<u64>,
        memory_max_bytes: u64,
    ) -> Self {
        let memory_max_bytes = memory_max_bytes / 2;
        let warmup_requests = survey.requests / WARMUP_PART;
        let counted = 1.0 - warmup_requests as f64 / survey.requests.max(1) as f64;
        let what_if = WhatIf::new(WhatIfConfig {
            capacity_bytes,
            memory_max_bytes,
            samples_per_second_max: u64::MAX,
        });
        let disk = disk_bytes.map(|disk_bytes| {
            let config = DiskWhatIfConfig {
                capacity_bytes: disk_bytes,
                reinsertion: Reinsertion::Hit { hits_min: 1 },
                memory_capacity_bytes: capacity_bytes,
                memory_max_bytes,
            };
            DiskWhatIf::new(config, policy, what_if.sample())
        });
        Self {
            what_if,
            disk,
            policy,
            warmup_requests,
            counted: survey.span().mul_f64(counted),
            seen: 0,
            totals: Totals::default(),
        }
    }

    /// Simulates a request.
    pub fn request(&mut self, request: &LoggedRequest) {
        if self.seen == self.warmup_requests {
            self.count();
        }
        self.seen += 1;
        // The window of the counts is an hour. The times of the log do not matter, because no object expires.
        let at = self.now();
        let counts = &mut self.totals.of_objects;
        *counts = counts.plus(&Counts {
            requests: 1,
            bytes: request.size,
            ..Counts::default()
        });
        let request = Request {
            at,
            key: KeyHash(mix64(request.key)),
            charge_bytes: charge_bytes(request.size, OVERHEAD_BYTES),
            length: request.size,
            sent_bytes: request.size,
            lifetime_ms: u64::MAX,
            stale_while_revalidate_ms: 0,
            has_validator: true,
        };
        self.what_if.request(&request);
        if let Some(disk) = &mut self.disk {
            disk.request(&request);
            let sample = self.what_if.sample();
            if self.seen.is_multiple_of(FOLLOW_INTERVAL) {
                disk.follow(self.policy, sample);
            }
        }
    }

    fn count(&mut self) {
        let now = self.now();
        self.what_if.count(now, &self.totals);
        if let Some(disk) = &mut self.disk {
            disk.count(now, &self.totals);
        }
    }

    fn now(&self) -> Timestamp {
        let is_counted = self.seen > self.warmup_requests;
        Timestamp::from_secs(if is_counted { COUNTED_SECONDS } else { 1 })
    }

    /// Returns the predictions. `is_present` is true if the capacities and the policy are the present ones.
    pub fn finish(mut self, is_present: bool) -> StudyResults {
        self.count();
        let end = self.now().after(self.counted);
        let Some(report) = self.what_if.report(end, None) else {
            return StudyResults::default();
        };
        let settings = report.points.iter().map(|point| Setting {
            policy: point.policy.to_string(),
            capacity_bytes: point.capacity_bytes,
            is_present: is_present && point.size == "1" && point.policy == self.policy,
            hit_ratio: point.hit_ratio,
            hit_ratio_error: point.hit_ratio_error,
            byte_hit_ratio: point.byte_hit_ratio,
            origin_bytes_per_second: point.origin_bytes_per_second,
            // The first requests, which are not counted, have filled the caches as far as the log can.
            is_filling: false,
        });
        let disks = self.disk.as_ref().and_then(|disk| disk.report(end, None));
        let (_, disks) = disks.unwrap_or_default();
        let disks = disks.iter().map(|point| DiskSetting {
            admission: point.admission.to_string(),
            capacity_bytes: point.capacity_bytes,
            is_present: is_present && point.size == "1" && point.admission == Default::default(),
            hit_ratio: point.estimate.hit_ratio,
            hit_ratio_error: point.estimate.hit_ratio_error,
            origin_bytes_per_second: point.estimate.origin_bytes_per_second,
            disk_bytes_per_second: point.disk_bytes_per_second,
            is_filling: false,
        });
        StudyResults {
            sampled: report.samples,
            settings: settings.collect(),
            disks: disks.collect(),
        }
    }
}

/// The predictions for a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StudyResults {
    /// Requests of the sample, without those that fill the caches.
    pub sampled: u64,
    /// The predictions for memory.
    pub settings: Vec<Setting>,
    /// The predictions for the disk below the present memory.
    pub disks: Vec<DiskSetting>,
}

/// The bytes of structures, key and head of an object. A log does not have them.
pub const OVERHEAD_BYTES: u64 = 550;

/// A part of the requests fills the caches: one of so many.
pub const WARMUP_PART: u64 = 4;

/// The most objects whose sizes a survey keeps.
const SURVEY_KEYS_MAX: usize = 1 << 16;

/// The least capacity that a survey recommends to simulate, and the unit of larger ones.
const CAPACITY_MIN: u64 = 8 << 20;
const CAPACITY_STEP: u64 = 1 << 20;

/// The time of the counted requests: more than a window after those of the warm-up.
const COUNTED_SECONDS: u64 = 3 * 3600;

/// The requests after which the disk follows the sample of memory.
const FOLLOW_INTERVAL: u64 = 256;
