//! Tables of metrics. A table defines each metric and the function that computes its value.

use prometheus::proto::{Counter, Gauge, LabelPair, MetricFamily, MetricType};

/// A metric with its values at one scrape.
pub type Family = MetricFamily;

/// The rows of a table. Each row is an item, preceded by the values of its row labels.
pub type Rows<'a, T> = [(Vec<&'a str>, &'a T)];

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows while the process runs.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// The counts of observed values by bucket, and their sum. See [`Histogram`](crate::Histogram).
    Histogram,
}

impl Kind {
    /// Returns the name of the type in the text format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    pub(crate) const fn field_type(self) -> MetricType {
        match self {
            Self::Counter => MetricType::COUNTER,
            Self::Gauge => MetricType::GAUGE,
            Self::Histogram => MetricType::HISTOGRAM,
        }
    }
}

/// A metric without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name of the metric.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: Kind,
    /// The names of the labels.
    pub labels: Vec<&'static str>,
    /// The values of the last label if they are a closed set, otherwise empty.
    pub values: Vec<&'static str>,
    /// The help text: one sentence about the values.
    pub help: &'static str,
}

/// The metrics of items of type `T`. [`metrics!`](crate::metrics) declares tables.
#[derive(Debug)]
pub struct Table<T: ?Sized + 'static> {
    /// The names of the row labels, which distinguish items.
    pub labels: &'static [&'static str],
    /// The metrics of each item.
    pub metrics: &'static [Metric<T>],
}

/// A metric of a [`Table`].
#[derive(Debug)]
pub struct Metric<T: ?Sized + 'static> {
    /// The name of the metric.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: Kind,
    /// The help text: one sentence about the values.
    pub help: &'static str,
    /// The name of the label that distinguishes the series of one item, if the metric has several series.
    pub label: Option<&'static str>,
    /// The series of each item. There is exactly one series if there is no label.
    pub series: &'static [Series<T>],
}

/// A time series of a [`Metric`].
#[derive(Debug)]
pub struct Series<T: ?Sized> {
    /// The value of the metric's label, if the metric has a label.
    pub label: Option<&'static str>,
    /// The number of the series, which [`value`](Self::value) gets.
    pub index: usize,
    /// A function that returns the current value for an item. It gets the number of the series too, so that the series
    /// of a metric can share a function that reads an array.
    pub value: fn(&T, usize) -> f64,
}

impl<T: ?Sized> Clone for Series<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Series<T> {}

impl<T: ?Sized> Series<T> {
    /// Returns the current value for an item.
    pub fn value_of(&self, item: &T) -> f64 {
        (self.value)(item, self.index)
    }
}

impl<T: ?Sized> Table<T> {
    /// Returns the families of one item. The table must have no row labels.
    pub fn of(&self, item: &T) -> Vec<Family> {
        self.families(&[(Vec::new(), item)])
    }

    /// Returns the families of several items. Each item comes with the values of its row labels.
    pub fn families(&self, rows: &Rows<'_, T>) -> Vec<Family> {
        self.metrics
            .iter()
            .map(|metric| self.family(metric, rows))
            .collect()
    }

    fn family(&self, metric: &Metric<T>, rows: &Rows<'_, T>) -> Family {
        let mut series = Vec::with_capacity(rows.len() * metric.series.len());
        for (labels, item) in rows {
            debug_assert_eq!(labels.len(), self.labels.len(), "{}", metric.name);
            for one in metric.series {
                let names = self.labels.iter().chain(&metric.label);
                let values = labels.iter().chain(&one.label);
                let pairs = names.zip(values).map(|(name, value)| pair(name, value));
                series.push(sample(metric.kind, one.value_of(item), pairs.collect()));
            }
        }
        new_family(metric.name, metric.help, metric.kind, series)
    }

    /// Returns the metric with this name.
    pub fn metric(&self, name: &str) -> Option<&Metric<T>> {
        self.metrics.iter().find(|metric| metric.name == name)
    }

    /// Returns the definitions of all metrics.
    pub fn definitions(&self) -> Vec<Definition> {
        self.metrics
            .iter()
            .map(|metric| Definition {
                name: metric.name,
                kind: metric.kind,
                labels: self.labels.iter().copied().chain(metric.label).collect(),
                values: metric.series.iter().filter_map(|one| one.label).collect(),
                help: metric.help,
            })
            .collect()
    }
}

pub(crate) fn new_family(
    name: &str,
    help: &str,
    kind: Kind,
    series: Vec<prometheus::proto::Metric>,
) -> Family {
    let mut family = Family::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind.field_type());
    family.set_metric(series);
    family
}

pub(crate) fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

fn sample(kind: Kind, value: f64, labels: Vec<LabelPair>) -> prometheus::proto::Metric {
    let mut sample = prometheus::proto::Metric::default();
    match kind {
        Kind::Counter => {
            let mut counter = Counter::default();
            counter.set_value(value);
            sample.set_counter(counter);
        }
        Kind::Gauge => {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            sample.set_gauge(gauge);
        }
        Kind::Histogram => unreachable!("a table has counters and gauges; see `Histogram`"),
    }
    sample.set_label(labels);
    sample
}

/// Declares constant [`Table`]s.
///
/// A table has the type of its items, the names of the labels that distinguish items, and one entry for each
/// metric: type, name, help text, and an expression for the value. A metric with several series per item has a
/// label and one expression for each value of the label.
///
/// ```
/// struct Pool { threads: u64, done: u64, failed: u64 }
///
/// edgeward_metrics::metrics! {
///     const POOL: Pool ["pool"] = |pool| {
///         Gauge "pool_threads" "Threads of the pool." { pool.threads }
///         Counter "pool_jobs_total" "Jobs that ended, by result."
///             ["result": "done" = pool.done, "failed" = pool.failed]
///     }
/// }
///
/// let pool = Pool { threads: 4, done: 9, failed: 1 };
/// let text = edgeward_metrics::encode(POOL.families(&[(vec!["disk"], &pool)]));
/// assert!(text.contains("pool_jobs_total{pool=\"disk\",result=\"done\"} 9"));
/// ```
#[macro_export]
macro_rules! metrics {
    ($(
        $(#[$doc:meta])*
        $vis:vis const $table:ident: $item:ty $([ $( $row_label:literal ),+ ])? = |$value:ident| {
            $( $kind:ident $name:literal $help:literal $series:tt )+
        }
    )+) => {$(
        $(#[$doc])*
        $vis const $table: $crate::Table<$item> = $crate::Table {
            labels: &[$($( $row_label ),+)?],
            metrics: &[$( $crate::Metric {
                name: $name,
                kind: $crate::Kind::$kind,
                help: $help,
                label: $crate::metrics!(@label $series),
                series: $crate::metrics!(@series $value, $item, $series),
            }, )+],
        };
    )+};
    (@label { $number:expr }) => { ::std::option::Option::None };
    (@label [ $label:literal: $( $label_value:literal = $number:expr ),+ $(,)? ]) => {
        ::std::option::Option::Some($label)
    };
    (@series $value:ident, $item:ty, { $number:expr }) => {
        &[$crate::Series {
            label: ::std::option::Option::None,
            index: 0,
            value: |$value: &$item, _| ($number) as f64,
        }]
    };
    (@series $value:ident, $item:ty, [ $label:literal: $( $label_value:literal = $number:expr ),+ $(,)? ]) => {
        &[$( $crate::Series {
            label: ::std::option::Option::Some($label_value),
            index: 0,
            value: |$value: &$item, _| ($number) as f64,
        } ),+]
    };
}
