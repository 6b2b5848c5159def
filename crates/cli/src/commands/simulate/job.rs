//! The consumers of a trace: simulated caches, and other jobs that need all requests.

use std::time::{Duration, Instant};

use edgeward_sim::{Fleet, OfflineBounds, Request, Run, RunReport, TraceRecorder};
use edgeward_trace::Record;

use super::by_c::Comparison;

/// A consumer of all requests.
#[derive(Debug)]
pub(super) enum Job {
    /// A simulated cache, and the processing time of its requests so far.
    Run { run: Box<Run>, run_time: Duration },
    /// A simulated fleet.
    Fleet(Box<Fleet>),
    /// A recording of the trace, for offline policies.
    Recorder(Box<TraceRecorder>),
    /// The upper bounds of the hit ratios.
    Bounds(Box<OfflineBounds>),
    /// The hit ratios for each `c` of AdaptSize.
    ByC(Box<Comparison>),
}

impl Job {
    pub(super) fn run(run: Run) -> Self {
        Self::Run {
            run: Box::new(run),
            run_time: Duration::ZERO,
        }
    }

    pub(super) fn feed(&mut self, requests: &[Request]) {
        match self {
            Self::Run { run, run_time } => {
                let start = Instant::now();
                run.feed_requests(requests);
                *run_time += start.elapsed();
            }
            Self::Fleet(fleet) => fleet.feed_requests(requests),
            Self::Recorder(recorder) => recorder.feed(requests),
            Self::Bounds(bounds) => bounds.feed(&records(requests)),
            Self::ByC(comparison) => comparison.study.feed(&records(requests)),
        }
    }
}

fn records(requests: &[Request]) -> Vec<Record> {
    requests.iter().map(Request::record).collect()
}

/// Returns the report of a run, with its speed: `requests` divided by `run_time`. Without `series`, the report has no
/// time series.
pub(super) fn report(run: &Run, run_time: Duration, requests: u64, series: bool) -> RunReport {
    let mut report = run.report();
    if run_time > Duration::ZERO {
        report.requests_per_second = Some(requests as f64 / run_time.as_secs_f64());
    }
    if !series {
        report.series.clear();
        report.tuned.clear();
    }
    report
}
