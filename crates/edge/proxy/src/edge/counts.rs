//! Counters as JSON.

use serde_json::{Value, json};

use crate::observe::counters;
use crate::path::worker::Shared;

/// Returns the series of a metric as an object that maps label values to numbers.
pub(super) fn by_label(metric: &str, shared: &Shared) -> Value {
    let metric = counters::METRICS.metric(metric);
    let series = metric.iter().flat_map(|metric| metric.series);
    series
        .filter_map(|series| {
            let value = series.value_of(&shared.counters) as u64;
            Some((series.label?.to_owned(), json!(value)))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}
