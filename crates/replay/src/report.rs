//! What a replay found, as a document: the contract of `edgeward replay --json`.
//!
//! Names end in their unit. Every key is described in `docs/reference/json-reports.md`; keys are added, not
//! renamed.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::load::queue::Fed;
use crate::load::tally::Tally;
use crate::load::{Class, ErrorKind, ErrorSample, Pacing, ReplayPlan};
use crate::monitor::TargetReport;

/// The whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ReplayReport {
    /// The trace, as the plan calls it.
    pub trace: String,
    /// Where the requests went.
    pub target_url: String,
    /// How they were sent.
    pub plan: PlanReport,
    /// Requests that count: answered or failed, without the warmup.
    pub requests: u64,
    /// Requests sent before those that count.
    pub warmup_requests: u64,
    /// Requests of the trace left out because their object is too large.
    pub skipped_requests: u64,
    /// Requests whose object had had another size before; sent with the first.
    pub resized_requests: u64,
    /// Requests answered from the cache: classes `hit` and `stale`.
    pub hits: u64,
    /// `hits` by `requests`.
    pub object_hit_ratio: f64,
    /// Body bytes of hits by body bytes of all right answers.
    pub byte_hit_ratio: f64,
    /// Body bytes of all right answers.
    pub body_bytes: u64,
    /// Body bytes of hits.
    pub hit_bytes: u64,
    /// Right answers by what the cache said of them. Every class is there.
    pub classes: BTreeMap<Class, ClassReport>,
    /// From the first request that counts to the last answer.
    pub duration_seconds: f64,
    /// To the end of the body; in an open loop from when the request was due.
    pub latency_ms: LatencyMs,
    /// To the head of the answer; in an open loop from when the request was due.
    pub first_byte_ms: LatencyMs,
    /// `latency_ms` of the hits alone.
    pub hit_latency_ms: LatencyMs,
    /// `latency_ms` of all others.
    pub other_latency_ms: LatencyMs,
    /// From when a request was due to when it was sent. Zeros in a closed loop.
    pub send_delay_ms: LatencyMs,
    /// What went through.
    pub throughput: Throughput,
    /// Failures of all kinds.
    pub errors_total: u64,
    /// Failures by kind. Every kind is there.
    pub errors: BTreeMap<ErrorKind, u64>,
    /// The first few failures.
    pub error_samples: Vec<ErrorSample>,
    /// Whether the replay gave up because too many requests failed in a row, or was stopped.
    pub stopped_early: bool,
    /// What the load generator itself used.
    pub client: ClientReport,
    /// What the target's process used.
    pub target: TargetReport,
}

/// How requests were sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanReport {
    /// Connections kept open.
    pub connections: usize,
    /// Threads that drove them.
    pub workers: usize,
    /// When requests were sent.
    pub pacing: PacingReport,
}

/// When requests were sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum PacingReport {
    /// As fast as answers came.
    Closed,
    /// Evenly spaced.
    Rate {
        /// So many a second.
        requests_per_second: f64,
    },
    /// At the trace's times.
    TraceTime {
        /// So many times as fast.
        speedup: f64,
    },
}

/// Answers of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    /// How many.
    pub requests: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
}

/// A distribution of times, in milliseconds; all zeros if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyMs {
    /// The mean.
    pub mean: f64,
    /// Half took no longer.
    pub p50: f64,
    /// 90 % took no longer.
    pub p90: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// 99.9 % took no longer.
    pub p99_9: f64,
    /// The longest.
    pub max: f64,
}

/// What went through in `duration_seconds`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Requests that count.
    pub requests_per_second: f64,
    /// Body bytes of right answers.
    pub bytes_per_second: f64,
}

/// What the load generator itself used, warmup included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClientReport {
    /// CPU of its workers.
    pub cpu_seconds: Option<f64>,
    /// Connections it opened.
    pub connections_opened: u64,
}

impl ReplayReport {
    pub(crate) fn new(
        plan: &ReplayPlan,
        tally: Tally,
        span: Duration,
        fed: Fed,
        cpu: Option<Duration>,
        stopped_early: bool,
        target: TargetReport,
    ) -> Self {
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
            skipped_requests: fed.skipped,
            resized_requests: fed.resized,
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
