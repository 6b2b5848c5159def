//! A sample of a contender's counters, and the series of samples.

use serde::Serialize;

/// The counters of load, contender and origin at one moment.
///
/// Counters begin at zero in the first sample and continue after a restart of the server. A counter that could not be
/// read is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Sample {
    /// Seconds since the load began.
    pub seconds: f64,
    /// Requests that were answered or that failed.
    pub requests: u64,
    /// Requests answered from the cache, according to the server's `Cache-Status`.
    pub hits: u64,
    /// Bytes of correct bodies, sent to the clients.
    pub body_bytes: u64,
    /// The part of `body_bytes` that came from the cache.
    pub hit_bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that reached the origin.
    pub origin_requests: u64,
    /// Body bytes that the origin sent.
    pub origin_bytes: u64,
    /// Connections to the origin that are open now.
    pub origin_connections: u64,
    /// CPU time of all processes of the server.
    pub cpu_seconds: Option<f64>,
    /// Current memory of the server's processes and of files that it keeps in memory.
    pub memory_bytes: Option<u64>,
    /// Bytes that the server's processes read from a device.
    pub disk_read_bytes: Option<u64>,
    /// Bytes that the server's processes passed to a device for writing.
    pub disk_write_bytes: Option<u64>,
    /// Write operations of the disk cache, if the server counts them.
    pub store_write_operations: Option<u64>,
    /// Reads and writes that the cache's device completed, including those of other programs.
    pub device_operations: Option<u64>,
    /// Sockets that the server has open now.
    pub sockets: Option<u64>,
    /// The median latency of the responses since the previous sample, in milliseconds.
    pub latency_p50_ms: Option<f64>,
    /// The 90th percentile of the latency of these responses, in milliseconds.
    pub latency_p90_ms: Option<f64>,
    /// The 99th percentile of the latency of these responses, in milliseconds.
    pub latency_p99_ms: Option<f64>,
}

impl Sample {
    /// The column names of a table of samples.
    pub const COLUMNS: [&'static str; 19] = [
        "seconds",
        "requests",
        "hits",
        "body_bytes",
        "hit_bytes",
        "errors",
        "origin_requests",
        "origin_bytes",
        "origin_connections",
        "cpu_seconds",
        "memory_bytes",
        "disk_read_bytes",
        "disk_write_bytes",
        "store_write_operations",
        "device_operations",
        "sockets",
        "latency_p50_ms",
        "latency_p90_ms",
        "latency_p99_ms",
    ];

    /// Returns the cells of a table row, in the order of [`Sample::COLUMNS`]. The cell of a counter that could not be
    /// read is empty.
    pub fn cells(&self) -> [String; Self::COLUMNS.len()] {
        let count = |n: u64| n.to_string();
        let maybe = |n: Option<u64>| n.map_or_else(String::new, count);
        let fraction = |x: Option<f64>| x.map_or_else(String::new, |x| format!("{x:.3}"));
        [
            format!("{:.2}", self.seconds),
            count(self.requests),
            count(self.hits),
            count(self.body_bytes),
            count(self.hit_bytes),
            count(self.errors),
            count(self.origin_requests),
            count(self.origin_bytes),
            count(self.origin_connections),
            fraction(self.cpu_seconds),
            maybe(self.memory_bytes),
            maybe(self.disk_read_bytes),
            maybe(self.disk_write_bytes),
            maybe(self.store_write_operations),
            maybe(self.device_operations),
            maybe(self.sockets),
            fraction(self.latency_p50_ms),
            fraction(self.latency_p90_ms),
            fraction(self.latency_p99_ms),
        ]
    }

    /// Subtracts `zero`, the counts at the moment when the server was ready after its latest start. The start itself
    /// used CPU time, the device and the origin, and does not count.
    pub(crate) fn subtract(&mut self, zero: &Self) {
        fn less(mine: &mut Option<u64>, zero: Option<u64>) {
            *mine = mine.zip(zero).map(|(mine, zero)| mine.saturating_sub(zero));
        }
        self.origin_requests = self.origin_requests.saturating_sub(zero.origin_requests);
        self.origin_bytes = self.origin_bytes.saturating_sub(zero.origin_bytes);
        self.cpu_seconds = self
            .cpu_seconds
            .zip(zero.cpu_seconds)
            .map(|(mine, zero)| (mine - zero).max(0.0));
        less(&mut self.disk_read_bytes, zero.disk_read_bytes);
        less(&mut self.disk_write_bytes, zero.disk_write_bytes);
        less(&mut self.device_operations, zero.device_operations);
        less(
            &mut self.store_write_operations,
            zero.store_write_operations,
        );
    }

    /// Adds `before`, the counts up to the restart of the server.
    pub(crate) fn add(&mut self, before: &Self) {
        fn add<T: std::ops::AddAssign + Copy>(mine: &mut Option<T>, earlier: Option<T>) {
            if let (Some(mine), Some(earlier)) = (mine, earlier) {
                *mine += earlier;
            }
        }
        self.requests += before.requests;
        self.hits += before.hits;
        self.body_bytes += before.body_bytes;
        self.hit_bytes += before.hit_bytes;
        self.errors += before.errors;
        self.origin_requests += before.origin_requests;
        self.origin_bytes += before.origin_bytes;
        add(&mut self.device_operations, before.device_operations);
        add(&mut self.cpu_seconds, before.cpu_seconds);
        add(&mut self.disk_read_bytes, before.disk_read_bytes);
        add(&mut self.disk_write_bytes, before.disk_write_bytes);
        add(
            &mut self.store_write_operations,
            before.store_write_operations,
        );
    }
}

/// A series of samples of bounded length. When the bound is reached, every second sample is removed and the sampling
/// rate is halved.
#[derive(Clone, Debug, Default)]
pub(crate) struct SampleLog {
    samples: Vec<Sample>,
    /// One of `stride` samples is kept; 0 means the same as 1.
    stride: u64,
    /// The number of samples that were passed to [`push`](Self::push).
    offered: u64,
}

impl SampleLog {
    /// Adds the sample if `is_required` is true or if the current sampling rate selects it; drops the sample
    /// otherwise. Later, a required sample may be removed like any other one.
    pub(crate) fn push(&mut self, sample: Sample, is_required: bool) {
        self.offered += 1;
        if is_required || self.offered.is_multiple_of(self.stride.max(1)) {
            self.samples.push(sample);
        }
        if self.samples.len() >= SAMPLES_MAX {
            self.stride = self.stride.max(1) * 2;
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    pub(crate) fn last(&self) -> Option<&Sample> {
        self.samples.last()
    }

    pub(crate) fn into_samples(self) -> Vec<Sample> {
        self.samples
    }
}

/// Divides the run into at most as many intervals as a plot can show, and computes one value per interval from the
/// samples at the interval's ends. Returns the end of each interval in seconds, with the value.
pub(crate) fn interval_values(
    series: &[Sample],
    figure: impl Fn(&Sample, &Sample) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let step = series.len().div_ceil(INTERVALS_MAX).max(1);
    let mut ends: Vec<&Sample> = series.iter().step_by(step).collect();
    if let Some(last) = series
        .last()
        .filter(|_| !(series.len() - 1).is_multiple_of(step))
    {
        ends.push(last);
    }
    // Rates over a very short interval are meaningless. An interval shorter than half the mean length is therefore
    // merged with the previous one.
    let mean_length = match ends[..] {
        [a, .., b] => (b.seconds - a.seconds) / (ends.len() - 1) as f64,
        _ => 0.0,
    };
    let mut kept_ends: Vec<&Sample> = Vec::with_capacity(ends.len());
    for end in ends {
        match kept_ends[..] {
            [.., before, last]
                if end.seconds - last.seconds < mean_length / 2.0
                    && before.seconds < last.seconds =>
            {
                kept_ends.pop();
            }
            _ => {}
        }
        kept_ends.push(end);
    }
    let pairs = kept_ends
        .windows(2)
        .filter(|pair| pair[1].seconds > pair[0].seconds);
    pairs
        .filter_map(|pair| Some((pair[1].seconds, figure(pair[0], pair[1])?)))
        .collect()
}

/// The maximum number of samples: more than an hour at one sample per second.
const SAMPLES_MAX: usize = 4096;

/// The maximum number of intervals in a plot.
const INTERVALS_MAX: usize = 90;

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_at(seconds: f64, requests: u64) -> Sample {
        Sample {
            seconds,
            requests,
            ..Sample::default()
        }
    }

    #[test]
    fn counters_continue_after_a_restart() {
        let before = Sample {
            requests: 100,
            cpu_seconds: Some(2.0),
            store_write_operations: Some(7),
            origin_requests: 50,
            ..Sample::default()
        };
        let mut now = Sample {
            requests: 11,
            cpu_seconds: Some(0.5),
            store_write_operations: None,
            origin_requests: 60,
            ..Sample::default()
        };
        now.subtract(&Sample {
            origin_requests: 55,
            cpu_seconds: Some(0.25),
            ..Sample::default()
        });
        now.add(&before);
        assert_eq!((now.requests, now.cpu_seconds), (111, Some(2.25)));
        assert_eq!(now.store_write_operations, None);
        // Five of the requests to the origin were sent after the restart.
        assert_eq!(now.origin_requests, 55);
    }

    #[test]
    fn the_intervals_cover_the_whole_run() {
        for length in [2_u64, 3, 89, 90, 91, 300, 1000] {
            let series: Vec<Sample> = (0..length).map(|n| sample_at(n as f64, n * n)).collect();
            let parts = interval_values(&series, |a, b| Some((b.requests - a.requests) as f64));
            let sum: f64 = parts.iter().map(|part| part.1).sum();
            assert_eq!(sum as u64, (length - 1) * (length - 1), "{length} samples");
            // The maximum is `INTERVALS_MAX`; this check is looser by one.
            assert!(parts.len() <= INTERVALS_MAX + 1);
        }
    }

    #[test]
    fn a_short_interval_is_merged_with_the_previous_one() {
        let series = [
            sample_at(0.0, 0),
            sample_at(1.0, 1),
            sample_at(2.0, 2),
            sample_at(2.1, 3),
            sample_at(3.1, 4),
        ];
        let ends: Vec<f64> = interval_values(&series, |_, _| Some(0.0))
            .iter()
            .map(|part| part.0)
            .collect();
        assert_eq!(ends, [1.0, 2.1, 3.1]);
    }

    /// Only the last sample is required.
    #[test]
    fn a_long_series_stays_within_its_bound_and_ends_with_the_required_sample() {
        let mut log = SampleLog::default();
        for n in 0..20_000 {
            log.push(sample_at(n as f64, n), n == 19_999);
        }
        let samples = log.into_samples();
        assert!(samples.len() < SAMPLES_MAX);
        assert!(samples.len() > SAMPLES_MAX / 4);
        assert_eq!(samples.last().map(|s| s.requests), Some(19_999));
    }

    #[test]
    fn every_column_is_a_field_of_a_sample() {
        let json = serde_json::to_value(Sample::default()).expect("a sample can be serialised");
        let keys = json.as_object().expect("a sample is an object");
        assert_eq!(keys.len(), Sample::COLUMNS.len());
        assert!(Sample::COLUMNS.iter().all(|name| keys.contains_key(*name)));
    }
}
