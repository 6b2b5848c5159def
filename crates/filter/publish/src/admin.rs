//! Metrics, status and health, on a separate address.

use std::sync::Arc;
use std::time::Duration;

use edgeward_filter::complete::CoveredUntil;
use edgeward_httpd::{AdminPages, Media, Route};
use edgeward_metrics::{Definition, Table, encode, metrics};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::config::PublishConfig;
use crate::counters::{self, Counters};
use crate::writer::PublishedState;

metrics! {
    const PUBLISHED: PublishedState = |published| {
        Gauge "edgeward_publish_epoch" "Epoch of the newest snapshot." { published.epoch }
        Gauge "edgeward_publish_head" "The newest sequence number of the journal." { published.head }
        Gauge "edgeward_publish_snapshot_ids" "Ids in the newest snapshot." { published.snapshot_ids }
        Gauge "edgeward_publish_snapshot_bytes" "Size of the newest snapshot." { published.snapshot_bytes }
        Gauge "edgeward_publish_journal_ids" "Ids in the deltas that are kept." { published.journal_ids }
        Gauge "edgeward_publish_files" "Snapshots and deltas that clients can fetch." { published.files.len() }
    }

    /// The metric is absent until the publisher knows a time up to which all committed ids are published.
    const LAG: Duration = |lag| {
        Gauge "edgeward_publish_lag_seconds"
            "Age of the newest time up to which all committed ids are published." { lag.as_secs_f64() }
    }
}

/// Returns the definitions of all metrics that a publisher can have.
pub fn metric_definitions() -> Vec<Definition> {
    let mut definitions = counters::METRICS.definitions();
    definitions.extend(counters::CONNECTIONS.definitions());
    definitions.extend(PUBLISHED.definitions());
    definitions.extend(LAG.definitions());
    definitions
}

#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) config: Arc<PublishConfig>,
    pub(crate) published: watch::Receiver<Arc<PublishedState>>,
    pub(crate) counters: Arc<Counters>,
}

impl Admin {
    fn lag(&self, published: &PublishedState) -> Option<Duration> {
        let now = (self.config.clock)().monotonic;
        match published.covered_until {
            CoveredUntil::Unknown => None,
            CoveredUntil::At(at) => Some(now.saturating_sub(at)),
            // Writers post each id before they commit it, so no committed id is missing at any time.
            CoveredUntil::Always => Some(Duration::ZERO),
        }
    }
}

impl AdminPages for Admin {
    const ROUTES: &'static [Route<Self>] = &[
        Route::show("/metrics", Media::Metrics, Self::metrics),
        Route::show("/status", Media::Json, Self::status),
    ];
}

impl Admin {
    fn metrics(&self) -> String {
        let published = Arc::clone(&self.published.borrow());
        let mut families = counters::METRICS.of(&self.counters);
        families.extend(counters::CONNECTIONS.of(&self.counters.connections));
        families.extend(PUBLISHED.of(&published));
        families.extend(self.lag(&published).iter().flat_map(|lag| LAG.of(lag)));
        encode(families)
    }

    fn status(&self) -> String {
        let published = Arc::clone(&self.published.borrow());
        let mut now = json_of(&PUBLISHED, &*published);
        if let Some(lag) = self.lag(&published) {
            let ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
            now.insert("lag_milliseconds".to_owned(), json!(ms));
        }
        let mut since_start = json_of(&counters::METRICS, &*self.counters);
        since_start.extend(json_of(&counters::CONNECTIONS, &*self.counters.connections));
        let status = json!({
            "set": self.config.set,
            "pid": std::process::id(),
            "now": now,
            "since_start": since_start,
        });
        format!("{status:#}\n")
    }
}

/// Returns the values of a table of metrics as JSON, under the metric names without the prefix
/// `edgeward_publish_` and the suffix `_total`.
fn json_of<T>(table: &Table<T>, item: &T) -> Map<String, Value> {
    table
        .metrics
        .iter()
        .map(|metric| {
            let name = metric.name.trim_start_matches("edgeward_publish_");
            let value = metric.series[0].value_of(item) as u64;
            (name.trim_end_matches("_total").to_owned(), json!(value))
        })
        .collect()
}
