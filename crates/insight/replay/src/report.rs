//! The report of a replay. `edgeward replay --json` prints it, so its names are part of the interface.
//!
//! Names of durations and sizes end in their unit, for example `_ms` or `_bytes`. `docs/reference/json-reports.md`
//! describes every key. Keys may be added but are not renamed.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::load::queue::FeedCounts;
use crate::load::tally::Tally;
use crate::load::{Class, ErrorKind, ErrorSample, Pacing, ReplayPlan};
use crate::monitor::TargetReport;

/// The report of a replay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The name of the trace from the plan.
    pub trace: String,
    /// The URL of the target.
    pub target_url: String,
    /// How the requests were sent.
    pub plan: PlanReport,
    /// Counted requests, answered or failed, without the warm-up.
    pub requests: u64,
    /// Requests of the warm-up.
    pub warmup_requests: u64,
    /// Requests skipped because their object is larger than the `size_bytes_max` of the plan.
    pub skipped_requests: u64,
    /// Requests whose object had another size earlier in the trace. They were sent with the first size.
    pub resized_requests: u64,
    /// Requests answered from the cache: classes `hit` and `stale`.
    pub hits: u64,
    /// `hits` divided by `requests`.
    pub object_hit_ratio: f64,
    /// Body bytes of hits divided by body bytes of all correct responses.
    pub byte_hit_ratio: f64,
    /// Body bytes of all correct responses.
    pub body_bytes: u64,
    /// Body bytes of hits.
    pub hit_bytes: u64,
    /// Correct responses by class of cache status. Contains every class.
    pub classes: BTreeMap<Class, ClassReport>,
    /// The time from the first counted request to the last response.
    pub duration_seconds: f64,
    /// The latency to the end of the body. In an open loop it is measured from the due time.
    pub latency_ms: LatencyMs,
    /// The latency to the end of the response's head. In an open loop it is measured from the due time.
    pub first_byte_ms: LatencyMs,
    /// `latency_ms` of hits only.
    pub hit_latency_ms: LatencyMs,
    /// `latency_ms` of all other responses.
    pub other_latency_ms: LatencyMs,
    /// The time from the due time of a request to its send time. Zero in a closed loop.
    pub send_delay_ms: LatencyMs,
    /// The throughput.
    pub throughput: Throughput,
    /// Failed requests of all kinds.
    pub errors_total: u64,
    /// Failed requests by kind. Contains every kind.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// The first failed requests, at most ten.
    pub error_samples: Vec<ErrorSample>,
    /// True if the replay was stopped, or gave up after too many consecutive failures.
    pub stopped_early: bool,
    /// The resource use of the load generator.
    pub client: ClientReport,
    /// The resource use of the target's process.
    pub target: TargetReport,
}

/// How the requests were sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanReport {
    /// Open connections.
    pub connections: usize,
    /// Threads that served the connections.
    pub workers: usize,
    /// The times at which requests were sent.
    pub pacing: PacingReport,
}

/// The times at which requests were sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum PacingReport {
    /// A closed loop: as fast as responses arrived.
    Closed,
    /// A constant rate.
    Rate {
        /// Requests per second.
        requests_per_second: f64,
    },
    /// The times of the trace.
    TraceTime {
        /// The factor by which the trace was accelerated.
        speedup: f64,
    },
}

/// The responses of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    /// The number of responses.
    pub requests: u64,
    /// The sum of the sizes of their bodies.
    pub body_bytes: u64,
}

/// A distribution of durations in milliseconds; all zeros if it is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyMs {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p99_9: f64,
    /// The maximum.
    pub max: f64,
}

/// The throughput during `duration_seconds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Counted requests.
    pub requests_per_second: f64,
    /// Body bytes of correct responses.
    pub bytes_per_second: f64,
}

/// The resource use of the load generator, including the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientReport {
    /// CPU time of the worker threads.
    pub cpu_seconds: Option<f64>,
    /// Connections that the load generator opened.
    pub connections_opened: u64,
}

/// The figures that a replay ended with.
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    /// The duration without the warm-up.
    pub(crate) span: Duration,
    pub(crate) feed_counts: FeedCounts,
    /// CPU time of the worker threads.
    pub(crate) cpu: Option<Duration>,
    pub(crate) stopped_early: bool,
}

impl ReplayReport {
    pub(crate) fn new(plan: &ReplayPlan, measured: Measured, target: TargetReport) -> Self {
        let Measured {
            tally,
            span,
            feed_counts,
            cpu,
            stopped_early,
        } = measured;
        let classes: BTreeMap<Class, ClassReport> = Class::ALL
            .into_iter()
            .map(|class| (class, tally.classes[class as usize]))
            .collect();
        let of_hits = |figure: fn(&ClassReport) -> u64| {
            let hits = classes.iter().filter(|(class, _)| class.is_hit());
            hits.map(|(_, report)| figure(report)).sum::<u64>()
        };
        let (hits, hit_bytes) = (
            of_hits(|class| class.requests),
            of_hits(|class| class.body_bytes),
        );
        let (requests, body_bytes) = (tally.requests, tally.body_bytes());
        let errors: BTreeMap<ErrorKind, u64> = ErrorKind::ALL
            .into_iter()
            .map(|kind| (kind, tally.errors[kind as usize]))
            .collect();
        let seconds = span.as_secs_f64();
        Self {
            trace: plan.trace.clone(),
            target_url: plan.target.to_string(),
            plan: PlanReport {
                connections: plan.connections.get(),
                workers: plan.worker_count(),
                pacing: plan.pacing.into(),
            },
            requests,
            warmup_requests: plan.live.requests().saturating_sub(requests),
            skipped_requests: feed_counts.skipped,
            resized_requests: feed_counts.resized,
            hits,
            object_hit_ratio: ratio(hits as f64, requests as f64),
            byte_hit_ratio: ratio(hit_bytes as f64, body_bytes as f64),
            body_bytes,
            hit_bytes,
            classes,
            duration_seconds: seconds,
            latency_ms: (&tally.total).into(),
            first_byte_ms: (&tally.first_byte).into(),
            hit_latency_ms: (&tally.hit_total).into(),
            other_latency_ms: (&tally.other_total).into(),
            send_delay_ms: (&tally.send_delay).into(),
            throughput: Throughput {
                requests_per_second: ratio(requests as f64, seconds),
                bytes_per_second: ratio(body_bytes as f64, seconds),
            },
            errors_total: errors.values().sum(),
            errors,
            error_samples: tally.samples,
            stopped_early,
            client: ClientReport {
                cpu_seconds: cpu.map(|cpu| cpu.as_secs_f64()),
                connections_opened: tally.connections,
            },
            target,
        }
    }
}

impl From<Pacing> for PacingReport {
    fn from(pacing: Pacing) -> Self {
        match pacing {
            Pacing::Closed => Self::Closed,
            Pacing::Rate(requests_per_second) => Self::Rate {
                requests_per_second,
            },
            Pacing::TraceTime { speedup } => Self::TraceTime { speedup },
        }
    }
}

impl From<&Histogram<u64>> for LatencyMs {
    fn from(nanos: &Histogram<u64>) -> Self {
        if nanos.is_empty() {
            return Self::default();
        }
        let at = |quantile| nanos.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            mean: nanos.mean() / 1e6,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: nanos.max() as f64 / 1e6,
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
