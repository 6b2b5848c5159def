//! Policies that know all future requests. A server cannot use them; they show how much a better policy could gain.
//!
//! A [`TraceRecorder`] collects the requests. The [`RecordedTrace`] then runs each [`OfflinePolicy`] at each capacity;
//! runs share the trace, so they can use several threads. Memory: 8 bytes per request and 8 bytes per object of the
//! trace. Each run adds its own state.

mod belady;
mod lru;
mod size_opt;
mod spec;
#[cfg(test)]
mod tests;

use std::fmt;

use edgeward_policy::digest::Digest;
use edgeward_types::{Seed, charge_bytes};

use crate::cost::OriginCost;
use crate::facts::ratio;
use crate::missed::MissedSizes;
use crate::objects::Request;
use crate::run::{Counts, Interval, RunReport, ServedFrom};
use belady::Belady;
use size_opt::SizeOpt;

pub use spec::{
    OFFLINE_NAMES, OfflinePolicy, ParseOfflinePolicyError, ParseSimulatedPolicyError,
    SimulatedPolicy,
};

/// Collects the requests of a trace.
#[derive(Debug)]
pub struct TraceRecorder {
    requests_max: u64,
    sizes_bytes: Vec<u64>,
    objects: Vec<u32>,
    is_too_long: bool,
}

impl Default for TraceRecorder {
    fn default() -> Self {
        Self::with_requests_max(REQUESTS_MAX)
    }
}

impl TraceRecorder {
    fn with_requests_max(requests_max: u64) -> Self {
        Self {
            requests_max,
            sizes_bytes: Vec::new(),
            objects: Vec::new(),
            is_too_long: false,
        }
    }

    /// Processes the next requests, in order. All requests must come from one [`Traffic`](crate::Traffic), which
    /// numbers the objects.
    pub fn feed(&mut self, requests: &[Request]) {
        for request in requests {
            if self.objects.len() as u64 >= self.requests_max {
                self.is_too_long = true;
                return;
            }
            if request.object.index() == self.sizes_bytes.len() {
                self.sizes_bytes.push(request.size);
            }
            self.objects.push(request.object.0);
        }
    }

    /// Returns the recorded trace. For each request, it has the next request of the same object.
    ///
    /// # Errors
    ///
    /// Returns an error if the trace had more requests than can be recorded.
    pub fn finish(self) -> Result<RecordedTrace, TraceTooLong> {
        if self.is_too_long {
            return Err(TraceTooLong);
        }
        let mut upcoming = vec![NEVER; self.sizes_bytes.len()];
        let mut next_requests = vec![NEVER; self.objects.len()];
        let requests = self.objects.iter().zip(&mut next_requests);
        for (number, (&object, next_request)) in requests.enumerate().rev() {
            let upcoming = &mut upcoming[object as usize];
            *next_request = std::mem::replace(upcoming, number as u32);
        }
        Ok(RecordedTrace {
            sizes_bytes: self.sizes_bytes,
            objects: self.objects,
            next_requests,
        })
    }
}

/// A whole trace in memory, with the next request of the same object for each request.
#[derive(Debug)]
pub struct RecordedTrace {
    /// The size of each object.
    sizes_bytes: Vec<u64>,
    /// The object of each request.
    objects: Vec<u32>,
    /// The number of the next request of the same object, or [`NEVER`].
    next_requests: Vec<u32>,
}

/// The settings of an offline run. The fields are those of [`RunConfig`](crate::RunConfig).
#[derive(Clone, Debug)]
pub struct OfflineConfig {
    /// The policy.
    pub policy: OfflinePolicy,
    /// The capacity in bytes.
    pub capacity_bytes: u64,
    /// Requests of the warm-up, which fill the cache and are not counted.
    pub warmup_requests: u64,
    /// Bytes charged per object in addition to its body.
    pub object_overhead_bytes: u64,
    /// The seed of the random draws. Only `size-opt` draws.
    pub seed: Seed,
    /// Requests per interval of the time series.
    pub interval_requests: u64,
    /// The model of the cost of fetches, from which the saved cost is computed.
    pub origin_cost: OriginCost,
}

impl RecordedTrace {
    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Runs a policy over the whole trace, from an empty cache.
    pub fn run(&self, config: &OfflineConfig) -> RunReport {
        match config.policy {
            OfflinePolicy::Belady => self.run_cache(config, Belady::new(self, config, false)),
            OfflinePolicy::BeladySize => self.run_cache(config, Belady::new(self, config, true)),
            OfflinePolicy::SizeOpt { lookahead_requests } => {
                let cache = SizeOpt::new(self, config, lookahead_requests);
                self.run_cache(config, cache)
            }
        }
    }

    fn run_cache(&self, config: &OfflineConfig, mut cache: impl OfflineCache) -> RunReport {
        let mut counted = Counts::default();
        let mut missed = MissedSizes::default();
        let mut interval = Counts::default();
        let mut series = Vec::new();
        for (number, &object) in (0u32..).zip(&self.objects) {
            let served_from = match cache.request(number, object) {
                true => ServedFrom::Ram,
                false => ServedFrom::Origin,
            };
            let size_bytes = self.sizes_bytes[object as usize];
            if u64::from(number) >= config.warmup_requests {
                counted.add(size_bytes, served_from);
                if served_from != ServedFrom::Ram {
                    missed.add(size_bytes);
                }
            }
            interval.add(size_bytes, served_from);
            let requests_end = u64::from(number) + 1;
            let is_last = requests_end == self.objects.len() as u64;
            if interval.requests >= config.interval_requests || is_last {
                let Counts {
                    requests,
                    hits,
                    bytes,
                    hit_bytes,
                    ..
                } = std::mem::take(&mut interval);
                series.push(Interval {
                    requests_end,
                    object_hit_ratio: ratio(hits, requests),
                    byte_hit_ratio: ratio(hit_bytes, bytes),
                    tiers: None,
                });
            }
        }
        let content = cache.content();
        RunReport {
            policy: config.policy.to_string(),
            capacity_bytes: config.capacity_bytes,
            seed: config.seed.0,
            requests: counted.requests,
            hits: counted.hits,
            object_hit_ratio: ratio(counted.hits, counted.requests),
            byte_hit_ratio: ratio(counted.hit_bytes, counted.bytes),
            origin_cost_saved_ratio: counted.origin_cost_saved_ratio(config.origin_cost),
            objective: None,
            requests_per_second: None,
            bytes_per_object: content.bookkeeping_bytes as f64 / content.residents.max(1) as f64,
            used_bytes: content.used_bytes,
            residents: content.residents,
            digest: format!("{:016x}", content.digest.value()),
            missed_sizes: missed.report(),
            disk: None,
            fetches: None,
            series,
            tuned: Vec::new(),
        }
    }

    /// Returns the charge of each object.
    fn charges(&self, object_overhead_bytes: u64) -> Vec<u64> {
        let charge = |&size_bytes| charge_bytes(size_bytes, object_overhead_bytes);
        self.sizes_bytes.iter().map(charge).collect()
    }
}

/// The error of a trace with more requests than can be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceTooLong;

impl fmt::Display for TraceTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an offline policy can process at most {REQUESTS_MAX} requests"
        )
    }
}

impl std::error::Error for TraceTooLong {}

/// A simulated cache that knows the trace.
trait OfflineCache {
    /// Processes the next request. Returns true if it is a hit.
    fn request(&mut self, number: u32, object: u32) -> bool;

    /// Returns the current content.
    fn content(&self) -> Content;
}

/// Figures of the content of a cache, and the digest of its decisions.
struct Content {
    used_bytes: u64,
    residents: u64,
    bookkeeping_bytes: usize,
    digest: Digest,
}

/// Stands for the next request of an object that is not requested again.
const NEVER: u32 = u32::MAX;

/// Request numbers have 32 bits and are less than [`NEVER`].
const REQUESTS_MAX: u64 = NEVER as u64;
