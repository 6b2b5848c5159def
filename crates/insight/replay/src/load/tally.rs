//! The results of the requests: counts and histograms per worker, merged at the end.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::cache_status::Class;
use super::queue::Job;
use super::schedule::RequestDurations;
use crate::report::ClassReport;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// The status was not 200.
    Status,
    /// The body was shorter than the object.
    ShortBody,
    /// The body was longer than the object.
    LongBody,
    /// A byte differed from the object.
    WrongBytes,
    /// Connecting failed, or the connection broke before the head of the response.
    Connection,
    /// The response was not valid HTTP.
    Protocol,
    /// No byte arrived before the timeout.
    Timeout,
}

impl ErrorKind {
    /// All kinds, in the order of the report.
    pub const ALL: [Self; 7] = [
        Self::Status,
        Self::ShortBody,
        Self::LongBody,
        Self::WrongBytes,
        Self::Connection,
        Self::Protocol,
        Self::Timeout,
    ];

    /// Returns the name in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::ShortBody => "short_body",
            Self::LongBody => "long_body",
            Self::WrongBytes => "wrong_bytes",
            Self::Connection => "connection",
            Self::Protocol => "protocol",
            Self::Timeout => "timeout",
        }
    }
}

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: ErrorKind,
    pub(crate) detail: String,
}

/// A failed request in the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorSample {
    /// The position of the request among the sent requests, from 0.
    pub request: u64,
    /// The number of the requested object in the trace.
    pub object: u64,
    /// The kind of the failure.
    pub kind: ErrorKind,
    /// The details.
    pub detail: String,
}

/// Counts and histograms (in nanoseconds) of the requests after the warm-up.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// The correct responses, by how the cache handled the request.
    pub(crate) classes: [ClassReport; Class::ALL.len()],
    pub(crate) errors: [u64; ErrorKind::ALL.len()],
    /// The first failures, ordered by request number.
    pub(crate) samples: Vec<ErrorSample>,
    /// `total`, `first_byte` and `send_delay` of all correct responses; [`RequestDurations`] explains them.
    pub(crate) total: Histogram<u64>,
    pub(crate) first_byte: Histogram<u64>,
    pub(crate) send_delay: Histogram<u64>,
    /// The times in `total` of the hits.
    pub(crate) hit_total: Histogram<u64>,
    /// The times in `total` of all other responses.
    pub(crate) other_total: Histogram<u64>,
    /// Opened connections.
    pub(crate) connections: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        // With a precision of three digits from 100 ns to one hour, a histogram needs about 200 KiB.
        let histogram = || {
            Histogram::new_with_bounds(100, 3_600_000_000_000, 3)
                .expect("the library supports these bounds and digits")
        };
        Self {
            requests: 0,
            classes: Default::default(),
            errors: [0; _],
            samples: Vec::new(),
            total: histogram(),
            first_byte: histogram(),
            send_delay: histogram(),
            hit_total: histogram(),
            other_total: histogram(),
            connections: 0,
        }
    }

    /// Counts a correct response.
    pub(super) fn add_response(&mut self, class: Class, bytes: u64, durations: RequestDurations) {
        self.requests += 1;
        let of_class = &mut self.classes[class as usize];
        of_class.requests += 1;
        of_class.body_bytes += bytes;
        let total = nanos(durations.total);
        self.total.saturating_record(total);
        self.first_byte
            .saturating_record(nanos(durations.first_byte));
        self.send_delay
            .saturating_record(nanos(durations.send_delay));
        if class.is_hit() {
            self.hit_total.saturating_record(total);
        } else {
            self.other_total.saturating_record(total);
        }
    }

    pub(super) fn add_failure(&mut self, job: &Job, failure: Failure) {
        self.requests += 1;
        self.errors[failure.kind as usize] += 1;
        if self.samples.len() < ERROR_SAMPLES_MAX {
            self.samples.push(ErrorSample {
                request: job.number,
                object: job.key,
                kind: failure.kind,
                detail: failure.detail,
            });
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.connections += other.connections;
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.requests += theirs.requests;
            mine.body_bytes += theirs.body_bytes;
        }
        for (mine, theirs) in self.errors.iter_mut().zip(&other.errors) {
            *mine += theirs;
        }
        self.samples.extend(other.samples.iter().cloned());
        self.samples.sort_by_key(|sample| sample.request);
        self.samples.truncate(ERROR_SAMPLES_MAX);
        for (mine, theirs) in [
            (&mut self.total, &other.total),
            (&mut self.first_byte, &other.first_byte),
            (&mut self.send_delay, &other.send_delay),
            (&mut self.hit_total, &other.hit_total),
            (&mut self.other_total, &other.other_total),
        ] {
            mine.add(theirs)
                .expect("all histograms have the same bounds");
        }
    }

    pub(crate) fn body_bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.body_bytes).sum()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

const ERROR_SAMPLES_MAX: usize = 10;

// The arrays of a tally are indexed by the variants, so `ALL` must list the variants in their order.
const _: () = {
    let mut n = 0;
    while n < Class::ALL.len() {
        assert!(Class::ALL[n] as usize == n);
        n += 1;
    }
    n = 0;
    while n < ErrorKind::ALL.len() {
        assert!(ErrorKind::ALL[n] as usize == n);
        n += 1;
    }
};
