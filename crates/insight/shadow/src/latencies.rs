//! Distributions of latencies.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::report::Latency;

/// A distribution with a bounded size and an error of one percent.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u32>);

impl Latencies {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, MICROS_MAX, 2);
        Self(histogram.expect("the bounds are valid"))
    }

    pub(crate) fn add(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(micros.clamp(1, MICROS_MAX));
    }

    /// Returns the percentiles. Returns `None` without a value.
    pub(crate) fn report(&self) -> Option<Latency> {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        (!self.0.is_empty()).then(|| Latency {
            p50_ms: at(0.5),
            p99_ms: at(0.99),
        })
    }
}

/// An hour.
const MICROS_MAX: u64 = 3_600_000_000;
