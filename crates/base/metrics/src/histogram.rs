//! Histograms: how many observed values are in each bucket.

use prometheus::proto::{Bucket, Histogram as HistogramSample};

use crate::table::{new_family, pair};
use crate::{Definition, Family, Kind};

/// The definition of a metric whose values are histograms with the same buckets.
#[derive(Debug)]
pub struct Histogram {
    /// The name of the metric.
    pub name: &'static str,
    /// The help text: one sentence about the values.
    pub help: &'static str,
    /// The names of the labels that distinguish the series.
    pub labels: &'static [&'static str],
    /// The upper bounds of the buckets in ascending order, without the last bucket, which has no bound.
    pub bounds: &'static [f64],
}

/// The observed values of one series at a scrape.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramValues {
    /// The number of values in each bucket, which are not cumulative. One more than there are bounds.
    pub counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// Returns the family. Each series comes with the values of its labels.
    pub fn family(&self, series: &[(Vec<&str>, HistogramValues)]) -> Family {
        let samples = series.iter().map(|(labels, values)| {
            debug_assert_eq!(labels.len(), self.labels.len(), "{}", self.name);
            let pairs = self.labels.iter().zip(labels);
            let mut sample = prometheus::proto::Metric::default();
            sample.set_histogram(self.sample(values));
            sample.set_label(pairs.map(|(name, value)| pair(name, value)).collect());
            sample
        });
        new_family(self.name, self.help, Kind::Histogram, samples.collect())
    }

    fn sample(&self, values: &HistogramValues) -> HistogramSample {
        let mut total = 0;
        let mut buckets = Vec::with_capacity(self.bounds.len());
        for (bound, count) in self.bounds.iter().zip(&values.counts) {
            total += count;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(total);
            buckets.push(bucket);
        }
        let mut sample = HistogramSample::default();
        sample.set_bucket(buckets);
        sample.set_sample_sum(values.sum);
        sample.set_sample_count(values.counts.iter().sum());
        sample
    }

    /// Returns the definition, for the reference of metrics.
    pub fn definition(&self) -> Definition {
        Definition {
            name: self.name,
            kind: Kind::Histogram,
            labels: self.labels.to_vec(),
            values: Vec::new(),
            help: self.help,
        }
    }
}
