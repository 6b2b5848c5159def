//! Writes the table of panels as a dashboard of Grafana. Queries, units, legends and descriptions follow from the
//! tables of metrics: a counter is shown as its rate, and the unit is the last word of the name.

use edgeward_metrics::{Definition, Kind, common_definitions};
use serde_json::{Value, json};

use super::panels::{Curves, Panel, ROWS};

/// Returns the dashboard as JSON, for the import of Grafana 9 and later.
pub(super) fn dashboard() -> Value {
    let metrics = Metrics::all();
    let mut panels = Vec::new();
    let mut top = 0;
    for row in ROWS {
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "row",
            "title": row.title,
            "collapsed": false,
            "panels": [],
            "gridPos": { "x": 0, "y": top, "w": COLUMNS, "h": 1 },
        }));
        top += 1;
        for (n, panel) in row.panels.iter().enumerate() {
            let (x, y) = (n % PER_LINE * WIDTH, top + n / PER_LINE * HEIGHT);
            let position = json!({ "x": x, "y": y, "w": WIDTH, "h": HEIGHT });
            panels.push(metrics.panel(panel, panels.len() + 1, &position));
        }
        top += row.panels.len().div_ceil(PER_LINE) * HEIGHT;
    }
    json!({
        "uid": "edgeward",
        "title": "edgeward",
        "description": "Written by `edgeward generate dashboard`.",
        "tags": ["edgeward", "cache"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": { "from": "now-6h", "to": "now" },
        "timepicker": {},
        "annotations": { "list": [] },
        "links": [],
        "templating": { "list": [
            {
                "name": "datasource",
                "label": "Data source",
                "type": "datasource",
                "query": "prometheus",
                "hide": 0,
            },
            variable("job", "label_values(edgeward_build_info, job)"),
            variable("instance", "label_values(edgeward_build_info{job=~\"$job\"}, instance)"),
        ] },
        "panels": panels,
    })
}

/// A variable whose values are those of a label.
fn variable(name: &str, query: &str) -> Value {
    json!({
        "name": name,
        "label": name,
        "type": "query",
        "datasource": datasource(),
        "query": { "query": query, "refId": name },
        "refresh": 2,
        "sort": 1,
        "multi": true,
        "includeAll": true,
        "allValue": ".*",
        "current": { "text": "All", "value": "$__all" },
        "hide": 0,
    })
}

/// The metrics that a panel may show.
struct Metrics(Vec<Definition>);

impl Metrics {
    fn all() -> Self {
        let mut metrics = common_definitions();
        metrics.extend(edgeward_proxy::metric_definitions());
        #[cfg(feature = "link")]
        metrics.extend(edgeward_link::metric_definitions());
        Self(metrics)
    }

    fn definition(&self, name: &str) -> &Definition {
        let metric = self.0.iter().find(|metric| metric.name == name);
        metric.unwrap_or_else(|| panic!("{name} is not in a table of metrics"))
    }

    fn panel(&self, panel: &Panel, id: usize, position: &Value) -> Value {
        let queries: Vec<Query<'_>> = panel
            .curves
            .iter()
            .flat_map(|curves| self.queries(curves))
            .collect();
        let targets = queries.iter().zip('A'..).map(|(query, id)| {
            json!({
                "refId": id,
                "datasource": datasource(),
                "expr": query.expr,
                "legendFormat": query.legend,
                "editorMode": "code",
                "range": true,
                // Only histograms have exemplars.
                "exemplar": query.expr.starts_with("histogram_quantile"),
            })
        });
        let mut help: Vec<&str> = queries.iter().map(|query| query.help).collect();
        help.dedup();
        json!({
            "id": id,
            "type": "timeseries",
            "title": panel.title,
            "description": help.join("\n\n"),
            "datasource": datasource(),
            "gridPos": position,
            "targets": targets.collect::<Vec<_>>(),
            "fieldConfig": {
                "defaults": {
                    "unit": queries.first().map_or("short", |query| query.unit),
                    "min": 0,
                    "custom": { "drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never" },
                },
                "overrides": [],
            },
            "options": {
                "legend": { "showLegend": true, "displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"] },
                "tooltip": { "mode": "multi", "sort": "desc" },
            },
        })
    }

    fn queries(&self, curves: &Curves) -> Vec<Query<'_>> {
        match curves {
            Curves::Sum(name, labels) => vec![self.sum(name, "", labels)],
            Curves::Part(name, matcher, labels) => vec![self.sum(name, matcher, labels)],
            Curves::Share(name, matcher, labels) => {
                let (part, all) = (self.sum(name, matcher, labels), self.sum(name, "", labels));
                vec![Query {
                    expr: format!("{} / {}", part.expr, all.expr),
                    unit: "percentunit",
                    ..all
                }]
            }
            Curves::Ratio(used, all) => {
                let (used, all) = (self.sum(used, "", &[]), self.sum(all, "", &[]));
                vec![Query {
                    expr: format!("{} / {}", used.expr, all.expr),
                    unit: "percentunit",
                    ..used
                }]
            }
            Curves::Quantiles(name, labels) => {
                let metric = self.definition(name);
                let [p50, p99] = [("p50", "0.5"), ("p99", "0.99")].map(|(title, quantile)| Query {
                    expr: format!(
                        "histogram_quantile({quantile}, sum by ({}, le) (rate({name}_bucket{{{SELECTED}}}[$__rate_interval])))",
                        by(labels)
                    ),
                    legend: format!("{title} {}", legend(labels, "")),
                    unit: "s",
                    help: metric.help,
                });
                vec![p50, p99]
            }
            Curves::Until(name, labels) => {
                let sum = self.sum(name, "", labels);
                vec![Query {
                    expr: format!("{} - time()", sum.expr),
                    unit: "s",
                    ..sum
                }]
            }
        }
    }

    /// Returns the query for the rate of a counter, or the value of a gauge, of the series that `matcher` selects.
    fn sum(&self, name: &str, matcher: &str, labels: &[&str]) -> Query<'_> {
        let metric = self.definition(name);
        let comma = if matcher.is_empty() { "" } else { "," };
        let series = format!("{name}{{{SELECTED}{comma}{matcher}}}");
        let is_rate = metric.kind == Kind::Counter;
        let value = if is_rate {
            format!("rate({series}[$__rate_interval])")
        } else {
            series
        };
        let words = name.trim_end_matches("_total");
        let unit = match (words.rsplit('_').next(), is_rate) {
            (Some("bytes"), true) => "Bps",
            (Some("bytes"), false) => "bytes",
            _ if words.ends_with("_bytes_max") => "bytes",
            (Some("seconds"), false) => "s",
            (Some("ratio"), false) => "percentunit",
            (Some("requests" | "responses"), true) => "reqps",
            (Some("seconds"), true) | (_, false) => "short",
            (_, true) => "cps",
        };
        let title = words.trim_start_matches("edgeward_").replace('_', " ");
        Query {
            expr: format!("sum by ({}) ({value})", by(labels)),
            legend: legend(labels, &title),
            unit,
            help: metric.help,
        }
    }
}

/// A query, and how its result is shown.
struct Query<'a> {
    expr: String,
    legend: String,
    unit: &'static str,
    help: &'a str,
}

/// The labels of a sum: an instance has curves of its own.
fn by(labels: &[&str]) -> String {
    let labels = ["instance"].iter().chain(labels);
    labels.copied().collect::<Vec<_>>().join(", ")
}

/// The legend of a curve: what it shows, unless labels say so, and the instance.
fn legend(labels: &[&str], title: &str) -> String {
    let values: Vec<String> = labels
        .iter()
        .map(|label| format!("{{{{{label}}}}}"))
        .collect();
    format!("{title} {} {{{{instance}}}}", values.join(" "))
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The data source that the reader of the dashboard has selected.
fn datasource() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

/// Selects the series of the variables of the dashboard.
const SELECTED: &str = r#"job=~"$job",instance=~"$instance""#;

/// The version of Grafana's format: that of Grafana 9.2. Later versions convert it.
const SCHEMA_VERSION: u32 = 37;

/// The columns of Grafana's grid.
const COLUMNS: usize = 24;

const PER_LINE: usize = 3;
const WIDTH: usize = COLUMNS / PER_LINE;
const HEIGHT: usize = 8;
