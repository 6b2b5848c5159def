//! Constructors of Prometheus metric families: a name, a help text, a type, and one value for each set of labels.

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

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
