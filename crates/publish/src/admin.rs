//! Metrics, status and health, on a separate address.

use std::fmt::Write as _;
use std::sync::Arc;

use edgeward_filter::complete::Covers;
use edgeward_httpd::AdminPages;
use serde_json::json;
use tokio::sync::watch;

use crate::config::PublishConfig;
use crate::counters::Counters;
use crate::writer::Shown;

#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) config: Arc<PublishConfig>,
    pub(crate) shown: watch::Receiver<Arc<Shown>>,
    pub(crate) counters: Arc<Counters>,
}

impl Admin {
    fn gauges(&self) -> Vec<(&'static str, &'static str, u64)> {
        let shown = self.shown.borrow();
        let now = (self.config.clock)().monotonic;
        let lag = match shown.covers {
            Covers::Unknown => None,
            Covers::At(at) => Some(now.saturating_sub(at)),
            Covers::Always => Some(std::time::Duration::ZERO),
        };
        let mut gauges = vec![
            (
                "edgeward_publish_epoch",
                "Epoch of the newest snapshot.",
                shown.epoch,
            ),
            (
                "edgeward_publish_head",
                "The journal's newest number.",
                shown.head,
            ),
            (
                "edgeward_publish_snapshot_ids",
                "Ids in the newest snapshot.",
                shown.snapshot_ids,
            ),
            (
                "edgeward_publish_snapshot_bytes",
                "Its size.",
                shown.snapshot_bytes,
            ),
            (
                "edgeward_publish_journal_ids",
                "Ids in the deltas that are kept.",
                shown.journal_ids as u64,
            ),
            (
                "edgeward_publish_files",
                "Snapshots and deltas that can be fetched.",
                shown.files.len() as u64,
            ),
        ];
        if let Some(lag) = lag {
            let ms = u64::try_from(lag.as_millis()).unwrap_or(u64::MAX);
            gauges.push((
                "edgeward_publish_lag_milliseconds",
                "How long ago all committed ids were last known to be published.",
                ms,
            ));
        }
        gauges
    }
}

impl AdminPages for Admin {
    fn metrics(&self) -> String {
        let mut text = String::new();
        let mut write = |kind: &str, rows: Vec<(&str, &str, u64)>| {
            for (name, help, value) in rows {
                _ = writeln!(
                    text,
                    "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
                );
            }
        };
        write("counter", self.counters.rows());
        write("gauge", self.gauges());
        text
    }

    fn status(&self) -> String {
        let short = |(name, _, value): (&str, &str, u64)| {
            let name = name.trim_start_matches("edgeward_publish_");
            (name.trim_end_matches("_total").to_owned(), json!(value))
        };
        let gauges: serde_json::Map<_, _> = self.gauges().into_iter().map(short).collect();
        let counters: serde_json::Map<_, _> = self.counters.rows().into_iter().map(short).collect();
        let status = json!({
            "set": self.config.set,
            "pid": std::process::id(),
            "now": gauges,
            "since_start": counters,
        });
        format!("{status:#}\n")
    }
}
