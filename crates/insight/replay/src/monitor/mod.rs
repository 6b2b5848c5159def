//! Samples the resources of the target's process under load.
//!
//! A thread reads `/proc/PID` at each interval: CPU, memory, disk, descriptors and threads. It reads network bytes only
//! if the process has its own network namespace, because Linux counts bytes per interface, not per process. If a status
//! page is configured, each sample contains this page. `proc` reads and parses the files; this module takes the
//! samples.

mod proc;
mod status;
mod tree;

use std::io;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::load::{LiveCounts, Target};

pub use proc::Network;
pub use status::{fetch as fetch_status, fetch_page};
pub use tree::{Usage, children_of, usage_of_tree};

/// The process and the status page to sample.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// The process, if it runs on this machine.
    pub pid: Option<u32>,
    /// A page to fetch with every sample. If `pid` is not set and the page is a JSON object with a `pid`, this
    /// process is monitored.
    pub status: Option<Target>,
    /// The interval between two samples; at least 10 ms.
    pub interval: Duration,
}

/// A running monitor.
#[derive(Debug)]
pub struct Monitor {
    stop: mpsc::Sender<()>,
    thread: thread::JoinHandle<TargetReport>,
}

/// The samples of the target and their summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TargetReport {
    /// The monitored process.
    pub pid: Option<u32>,
    /// CPU time between the first sample and the last.
    pub cpu_seconds: Option<f64>,
    /// The largest resident set in any sample.
    pub rss_bytes_max: Option<u64>,
    /// Bytes read from disk between the first sample and the last.
    pub disk_read_bytes: Option<u64>,
    /// Bytes written to disk between the first sample and the last.
    pub disk_write_bytes: Option<u64>,
    /// Values that could not be measured, with the reason.
    pub notes: Vec<String>,
    /// The samples, oldest first.
    pub series: Vec<Sample>,
}

/// A sample of the load and its target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Sample {
    /// Seconds since the start of the replay.
    pub seconds: f64,
    /// Requests answered or failed so far. This counter and the next four include the warm-up.
    pub requests: u64,
    /// Hits so far.
    pub hits: u64,
    /// Bytes of correct bodies so far.
    pub body_bytes: u64,
    /// Bytes of hits so far.
    pub hit_bytes: u64,
    /// Failed requests so far.
    pub errors: u64,
    /// CPU time in user mode since the process started.
    pub cpu_user_seconds: Option<f64>,
    /// CPU time in the kernel since the process started.
    pub cpu_system_seconds: Option<f64>,
    /// The resident set, and pages of files in memory (`memfd_create`) that are not mapped.
    pub rss_bytes: Option<u64>,
    /// The proportional set size: shared pages are divided among their processes.
    pub pss_bytes: Option<u64>,
    /// Bytes read from disk since the process started.
    pub disk_read_bytes: Option<u64>,
    /// Bytes written to disk since the process started.
    pub disk_write_bytes: Option<u64>,
    /// Network bytes, if the process has its own network namespace.
    pub network: Option<Network>,
    /// The number of open file descriptors.
    pub descriptors: Option<u64>,
    /// The descriptors that are sockets: connections and listeners.
    pub sockets: Option<u64>,
    /// The number of threads.
    pub threads: Option<u64>,
    /// The content of the status page.
    pub status: Option<serde_json::Value>,
}

impl Monitor {
    /// Takes the first sample and starts a thread for the next ones.
    ///
    /// # Errors
    ///
    /// Returns an error if the process does not exist or the thread cannot be created.
    pub fn start(config: MonitorConfig, live: Arc<LiveCounts>) -> io::Result<Self> {
        if let Some(pid) = config.pid {
            proc::Process(pid).stat()?;
        }
        let mut samples = SampleThread::new(config, live);
        samples.sample();
        samples.note_missing_values();
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("replay-monitor".to_owned())
            .spawn(move || samples.run(&stopped))?;
        Ok(Self { stop, thread })
    }

    /// Takes the last sample and returns the report.
    pub fn stop(self) -> TargetReport {
        drop(self.stop);
        match self.thread.join() {
            Ok(report) => report,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

struct SampleThread {
    config: MonitorConfig,
    interval: Duration,
    live: Arc<LiveCounts>,
    started: Instant,
    report: TargetReport,
    /// One sample is taken per `stride` intervals. The stride doubles when the series is full, so that the series of
    /// a run of a week stays within `SAMPLES_MAX`.
    stride: u64,
    /// The number of intervals that have passed.
    ticks: u64,
}

impl SampleThread {
    fn new(config: MonitorConfig, live: Arc<LiveCounts>) -> Self {
        Self {
            started: Instant::now(),
            report: TargetReport {
                pid: config.pid,
                ..TargetReport::default()
            },
            // A sample walks descriptors and page tables, which slows the process down.
            interval: config.interval.max(INTERVAL_MIN),
            config,
            live,
            stride: 1,
            ticks: 0,
        }
    }

    fn run(mut self, stopped: &mpsc::Receiver<()>) -> TargetReport {
        let mut next = self.started + self.interval;
        loop {
            let wait = next.saturating_duration_since(Instant::now());
            match stopped.recv_timeout(wait) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            self.ticks += 1;
            if self.ticks.is_multiple_of(self.stride) {
                self.sample();
            }
            self.thin();
            // The samples that were missed during a slow sample are skipped.
            next = (next + self.interval).max(Instant::now());
        }
        self.sample();
        self.report.summarise();
        self.report
    }

    /// If the series is full, removes every second sample and halves the sampling rate.
    fn thin(&mut self) {
        if self.report.series.len() < SAMPLES_MAX {
            return;
        }
        self.stride *= 2;
        let mut keep = false;
        self.report.series.retain(|_| {
            keep = !keep;
            keep
        });
    }

    fn sample(&mut self) {
        let live = self.live.snapshot();
        let mut sample = Sample {
            seconds: self.started.elapsed().as_secs_f64(),
            requests: live.requests,
            hits: live.hits,
            body_bytes: live.body_bytes,
            hit_bytes: live.hit_bytes,
            errors: live.errors,
            ..Sample::default()
        };
        if let Some(target) = &self.config.status {
            match status::fetch(target) {
                Ok(page) => {
                    let reported = page.get("pid").and_then(serde_json::Value::as_u64);
                    let reported = reported.and_then(|pid| u32::try_from(pid).ok());
                    if self.report.pid.is_none() && self.report.series.is_empty() {
                        self.report.pid = reported.filter(|&pid| proc::Process(pid).stat().is_ok());
                    }
                    sample.status = Some(page);
                }
                Err(error) => self.note(format!("status page {target}: {error}")),
            }
        }
        if let Some(pid) = self.report.pid {
            let process = proc::Process(pid);
            match process.stat() {
                Ok(stat) => process.fill(&stat, &mut sample),
                Err(error) => self.note(format!("process {pid} is gone: {error}")),
            }
        }
        self.report.series.push(sample);
    }

    fn note_missing_values(&mut self) {
        let (Some(pid), Some(first)) = (self.report.pid, self.report.series.first()) else {
            return;
        };
        let missing = [
            (first.pss_bytes.is_none(), "PSS"),
            (first.disk_read_bytes.is_none(), "disk bytes"),
            (first.descriptors.is_none(), "descriptors"),
        ];
        let no_network = first.network.is_none();
        for (_, what) in missing.into_iter().filter(|&(missing, _)| missing) {
            self.note(format!(
                "{what} of process {pid}: no permission to read them"
            ));
        }
        if no_network {
            self.note(
                "network bytes: Linux counts them per network namespace, and the process \
                 shares its namespace with others"
                    .to_owned(),
            );
        }
    }

    fn note(&mut self, note: String) {
        if self.report.notes.len() < NOTES_MAX && !self.report.notes.contains(&note) {
            self.report.notes.push(note);
        }
    }
}

impl TargetReport {
    fn summarise(&mut self) {
        fn first_and_last<T>(
            series: &[Sample],
            field: impl Fn(&Sample) -> Option<T>,
        ) -> Option<(T, T)> {
            let first = series.iter().find_map(&field)?;
            let last = series.iter().rev().find_map(&field)?;
            Some((first, last))
        }
        let cpu = |sample: &Sample| Some(sample.cpu_user_seconds? + sample.cpu_system_seconds?);
        self.cpu_seconds = first_and_last(&self.series, cpu).map(|(first, last)| last - first);
        let bytes = |field: fn(&Sample) -> Option<u64>| {
            first_and_last(&self.series, field).map(|(first, last)| last.saturating_sub(first))
        };
        self.disk_read_bytes = bytes(|sample| sample.disk_read_bytes);
        self.disk_write_bytes = bytes(|sample| sample.disk_write_bytes);
        self.rss_bytes_max = self.series.iter().filter_map(|s| s.rss_bytes).max();
    }
}

/// Returns the CPU time of the calling thread, or `None` if the kernel does not report it.
pub(crate) fn thread_cpu() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

const INTERVAL_MIN: Duration = Duration::from_millis(10);
const SAMPLES_MAX: usize = 4096;
const NOTES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// The series of a long run is bounded and evenly spaced.
    #[test]
    fn a_long_series_is_bounded_and_evenly_spaced() {
        let config = MonitorConfig {
            pid: None,
            status: None,
            interval: Duration::from_secs(1),
        };
        let mut samples = SampleThread::new(config, Arc::default());
        for tick in 0..20_000_u64 {
            if tick.is_multiple_of(samples.stride) {
                samples.report.series.push(Sample {
                    requests: tick,
                    ..Sample::default()
                });
            }
            samples.thin();
            assert!(samples.report.series.len() < SAMPLES_MAX);
        }
        let series = &samples.report.series;
        assert_eq!(samples.stride, 8);
        assert_eq!(series.len(), 20_000 / 8);
        let even = series
            .windows(2)
            .all(|pair| pair[1].requests - pair[0].requests == 8);
        assert!(even);
    }
}
