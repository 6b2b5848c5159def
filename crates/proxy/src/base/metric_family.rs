//! Constructors of Prometheus metric families: a name, a help text, a type, and one value for each set of labels.

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

/// Returns families, a line for each family: type, name, help text and value. With `for ITEM in ITEMS, LABELS;` in front, each family
/// has one value for each item.
macro_rules! families {
    ($( $kind:ident $name:literal $help:literal = $value:expr; )*) => {
        vec![$( families!(@family $kind $name $help vec![families!(@metric $kind $value)]), )*]
    };
    (for $item:ident in $items:expr, $labels:expr; $( $kind:ident $name:literal $help:literal = $value:expr; )*) => {
        vec![$( families!(@family $kind $name $help $items
            .iter()
            .map(|$item| $crate::base::metric_family::labelled(families!(@metric $kind $value), $labels))
            .collect()), )*]
    };
    (@family Gauge $name:literal $help:literal $metrics:expr) => {
        $crate::base::metric_family::family($name, $help, prometheus::proto::MetricType::GAUGE, $metrics)
    };
    (@family Counter $name:literal $help:literal $metrics:expr) => {
        $crate::base::metric_family::family($name, $help, prometheus::proto::MetricType::COUNTER, $metrics)
    };
    (@metric Gauge $value:expr) => { $crate::base::metric_family::gauge($value as f64) };
    (@metric Counter $value:expr) => { $crate::base::metric_family::counter($value as f64) };
}
pub(crate) use families;

pub(crate) fn family(
    name: &str,
    help: &str,
    kind: MetricType,
    metrics: Vec<Metric>,
) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
    family.set_metric(metrics);
    family
}

pub(crate) fn counter(value: f64) -> Metric {
    let mut counter = prometheus::proto::Counter::default();
    counter.set_value(value);
    let mut metric = Metric::default();
    metric.set_counter(counter);
    metric
}

pub(crate) fn gauge(value: f64) -> Metric {
    let mut gauge = prometheus::proto::Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::default();
    metric.set_gauge(gauge);
    metric
}

pub(crate) fn labelled(mut metric: Metric, labels: &[(&str, &str)]) -> Metric {
    let labels = labels
        .iter()
        .map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        })
        .collect();
    metric.set_label(labels);
    metric
}
