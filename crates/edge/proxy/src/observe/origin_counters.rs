//! The counters that a worker has for each origin.

use std::time::Duration;

use http::StatusCode;

use super::counter::Counter;
use super::duration_histogram::DurationHistogram;
use super::metric_labels::Tally;

/// The counters of one worker for one origin, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OriginCounters {
    /// Indexed as [`STATUS_CLASSES`].
    pub(crate) responses: [Counter; STATUS_CLASSES.len()],
    /// From sending a request to the head of its response.
    pub(crate) latency: DurationHistogram,
}

impl OriginCounters {
    /// Counts the head of a response.
    pub(crate) fn record_response(&self, status: StatusCode, latency: Duration) {
        let class = usize::from(status.as_u16() / 100 - 1);
        self.responses[class.min(STATUS_CLASSES.len() - 1)].increment();
        self.latency.observe(latency);
    }
}

impl Tally for OriginCounters {
    fn add(&self, counted: &Self) {
        for (sum, count) in self.responses.iter().zip(&counted.responses) {
            sum.add(count.value());
        }
        self.latency.add(&counted.latency);
    }
}

/// The values of the label `status`. The last one is of statuses that HTTP does not define (RFC 9110 §15).
pub(crate) const STATUS_CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "xxx"];
