//! Metrics of the edge, the gateway and the publisher.
//!
//! A server declares its metrics in tables with [`metrics!`]: name, type, labels, help text and value. A scrape
//! reads the values and [`encode`] writes them in the text format of Prometheus. `docs/reference/metrics.md` is
//! generated from the same tables.
//!
//! [`encode`] adds the metrics of [`common_definitions`] to the metrics of every server: `edgeward_build_info`
//! and the `process_*` metrics.
#![forbid(unsafe_code)]

mod histogram;
mod open_metrics;
mod process;
mod table;

pub use histogram::{Histogram, HistogramValues};
pub use open_metrics::{Exemplar, Exemplars, encode_open_metrics};
pub use table::{Definition, Family, Kind, Metric, Rows, Series, Table};

use prometheus::{Encoder as _, TextEncoder};

use process::{PROCESS, Process};

metrics! {
    const BUILD: () ["version", "arch", "os"] = |_build| {
        Gauge "edgeward_build_info"
            "Always 1, with the version, the architecture and the operating system of the program as labels." { 1 }
    }
}

/// Returns the definitions of the metrics that [`encode`] adds to those of each server.
pub fn common_definitions() -> Vec<Definition> {
    let mut definitions = BUILD.definitions();
    definitions.extend(PROCESS.definitions());
    definitions
}

/// Returns the metrics of a server and the common metrics in the text format of Prometheus. A [`Family`] is one metric
/// with its values for all labels.
///
/// The common metrics are read from `/proc`. On systems without `/proc`, only `edgeward_build_info` is added.
pub fn encode(mut families: Vec<Family>) -> String {
    let labels = [
        env!("CARGO_PKG_VERSION"),
        std::env::consts::ARCH,
        std::env::consts::OS,
    ];
    families.extend(BUILD.families(&[(labels.to_vec(), &())]));
    if let Some(process) = Process::read() {
        families.extend(PROCESS.of(&process));
    }
    // The encoder rejects a family without values, for example a metric with a value for each peer before the
    // first peer has connected.
    families.retain(|family| !family.get_metric().is_empty());
    let mut text = Vec::new();
    if let Err(error) = TextEncoder::new().encode(&families, &mut text) {
        tracing::error!(%error, "cannot encode metrics");
    }
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Door {
        open: bool,
        guests: u64,
        staff: u64,
    }

    metrics! {
        const DOORS: Door ["door"] = |door| {
            Gauge "door_open" "1 if the door is open, otherwise 0." { u8::from(door.open) }
            Counter "door_visits_total" "Visits, by the visitor."
                ["visitor": "guest" = door.guests, "staff" = door.staff]
        }
    }

    const DOOR: Door = Door {
        open: true,
        guests: 5,
        staff: 7,
    };

    #[test]
    fn a_table_has_one_series_per_row_and_label_value() {
        let text = encode(DOORS.families(&[(vec!["a"], &DOOR), (vec!["\"b\""], &DOOR)]));
        let own: Vec<_> = text.lines().take(9).collect();
        assert_eq!(
            own,
            [
                "# HELP door_open 1 if the door is open, otherwise 0.",
                "# TYPE door_open gauge",
                "door_open{door=\"a\"} 1",
                "door_open{door=\"\\\"b\\\"\"} 1",
                "# HELP door_visits_total Visits, by the visitor.",
                "# TYPE door_visits_total counter",
                "door_visits_total{door=\"a\",visitor=\"guest\"} 5",
                "door_visits_total{door=\"a\",visitor=\"staff\"} 7",
                "door_visits_total{door=\"\\\"b\\\"\",visitor=\"guest\"} 5",
            ]
        );
    }

    #[test]
    fn a_definition_lists_the_labels_of_rows_and_of_series() {
        let definitions = DOORS.definitions();
        let labels: Vec<_> = definitions
            .iter()
            .map(|definition| (definition.name, definition.labels.clone()))
            .collect();
        assert_eq!(
            labels,
            [
                ("door_open", vec!["door"]),
                ("door_visits_total", vec!["door", "visitor"])
            ]
        );
    }

    const WAITS: Histogram = Histogram {
        name: "door_wait_seconds",
        help: "Time at the door.",
        labels: &["door"],
        bounds: &[0.5, 2.0],
    };

    #[test]
    fn the_buckets_of_a_histogram_are_cumulative() {
        let values = HistogramValues {
            counts: vec![3, 0, 2],
            sum: 61.5,
        };
        let text = encode(vec![WAITS.family(&[(vec!["a"], values)])]);
        let own: Vec<_> = text.lines().take(7).collect();
        assert_eq!(
            own,
            [
                "# HELP door_wait_seconds Time at the door.",
                "# TYPE door_wait_seconds histogram",
                "door_wait_seconds_bucket{door=\"a\",le=\"0.5\"} 3",
                "door_wait_seconds_bucket{door=\"a\",le=\"2\"} 3",
                "door_wait_seconds_bucket{door=\"a\",le=\"+Inf\"} 5",
                "door_wait_seconds_sum{door=\"a\"} 61.5",
                "door_wait_seconds_count{door=\"a\"} 5",
            ]
        );
    }

    /// A link without peers has no rows. Its metrics page must be served without these metrics.
    #[test]
    fn a_table_without_rows_is_left_out() {
        let text = encode(DOORS.families(&[]));
        assert!(!text.contains("door_"), "{text}");
        assert!(text.contains("edgeward_build_info{"), "{text}");
    }
}
