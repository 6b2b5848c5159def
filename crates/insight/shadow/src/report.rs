//! The result of a comparison. `edgeward shadow --json` prints it, so its names are part of the interface.
//!
//! `docs/reference/json-reports.md` describes every key. Keys may be added but are not renamed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::difference::Cause;
use crate::request::Skip;

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShadowReport {
    /// The time since the start.
    pub duration_seconds: f64,
    /// Requests that the source has delivered.
    pub requests: u64,
    /// Requests that the edge answered.
    pub answered: u64,
    /// Answers of the edge that were compared with an answer of the incumbent.
    pub compared: u64,
    /// Answers that were compared with an answer of the incumbent to the same request, with head and body.
    pub compared_bodies: u64,
    /// Requests whose bodies differ because the origin changes them: another version, or another body at each request.
    pub changing_bodies: u64,
    /// Requests that the incumbent's rate limit kept from being compared with an own answer.
    pub unasked: u64,
    /// The requests that were not sent, by reason. Contains every reason.
    pub skipped: BTreeMap<Skip, u64>,
    /// Requests without the cookies or the `Authorization` of their client.
    pub without_credentials: u64,
    /// The sum of the counts of all groups.
    pub differences: u64,
    /// The differences by cause and detail, the most frequent ones first within a cause.
    pub groups: Vec<Group>,
    /// Differences beyond the limit of groups.
    pub ungrouped: u64,
    /// The hits of both caches.
    pub hits: HitReport,
    /// The numbers of requests by the verdicts of both caches.
    pub verdicts: Vec<VerdictPair>,
    /// Failed requests by cache and kind, with an example.
    pub errors: Vec<ErrorReport>,
    /// How often the edge was unreachable and then reachable again. Its cache is then taken to be empty.
    pub edge_restarts: u64,
    /// The requests of the edge to the origin.
    pub budget: BudgetReport,
    /// The latency at the incumbent: that of its own clients if the log states it.
    pub incumbent_latency: Option<Latency>,
    /// The latency at the edge.
    pub edge_latency: Option<Latency>,
    /// The position in the log.
    pub log: Option<PositionReport>,
}

/// Differences with one cause and detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The cause.
    pub cause: Cause,
    /// The group within the cause, for example the name of a field.
    pub detail: String,
    /// The number of requests; for `lifetime` and `not_stored` the number of URLs.
    pub count: u64,
    /// The method of the first request.
    pub method: &'static str,
    /// The URL of the first request.
    pub url: String,
    /// The value at the incumbent.
    pub incumbent: String,
    /// The value at the edge.
    pub edge: String,
}

/// The hits of both caches.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HitReport {
    /// The share of the requests of its clients that the incumbent answered from its cache. `None` without a log, or if
    /// the log states no verdict.
    pub incumbent_ratio: Option<f64>,
    /// The share of the requests that the edge answered from its cache. `None` if it states no verdict.
    pub edge_ratio: Option<f64>,
    /// The ratios over time. The length of an interval grows with the duration.
    pub intervals: Vec<IntervalReport>,
}

/// The hits of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IntervalReport {
    /// The start of the interval.
    pub start_seconds: f64,
    /// The requests whose verdict the edge states.
    pub requests: u64,
    /// The hit ratio of the incumbent.
    pub incumbent_ratio: Option<f64>,
    /// The hit ratio of the edge.
    pub edge_ratio: Option<f64>,
}

/// The number of requests with one pair of verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerdictPair {
    /// The verdict of the incumbent, or `unknown`.
    pub incumbent: &'static str,
    /// The verdict of the edge, or `unknown`.
    pub edge: &'static str,
    /// The number of requests.
    pub requests: u64,
}

/// A cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The cache that serves the clients.
    Incumbent,
    /// The edge under test.
    Edge,
}

impl Side {
    /// Returns the name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Incumbent => "incumbent",
            Self::Edge => "edge",
        }
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The cache accepted no connection.
    Connect,
    /// The connection ended before the whole answer had arrived.
    Incomplete,
    /// No byte arrived for too long.
    Timeout,
    /// The answer is no HTTP.
    Protocol,
}

impl ErrorKind {
    /// Returns the name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Incomplete => "incomplete",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
        }
    }
}

/// Failed requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorReport {
    /// The cache.
    pub side: Side,
    /// The kind.
    pub kind: ErrorKind,
    /// Their number.
    pub count: u64,
    /// The message of the first one.
    pub example: String,
}

/// The requests of the edge to the origin, and the limit for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BudgetReport {
    /// The limit of requests per second.
    pub requests_per_second: Option<f64>,
    /// The limit of bytes per second.
    pub bytes_per_second: Option<f64>,
    /// Answers for which the edge asked the origin.
    pub origin_requests: u64,
    /// The bytes of their bodies.
    pub origin_bytes: u64,
    /// The sum of the times for which requests waited for the budget.
    pub waited_seconds: f64,
}

/// The percentiles of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The median.
    pub p50_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
}

/// The position in a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PositionReport {
    /// The path of the log.
    pub path: String,
    /// Complete lines that were read.
    pub lines: u64,
    /// Lines that are longer than 64 KiB, which were skipped.
    pub long_lines: u64,
    /// How often a new file has replaced the log.
    pub rotations: u64,
    /// How often the log was truncated.
    pub truncations: u64,
    /// Bytes of the log that are not read yet.
    pub behind_bytes: u64,
}
