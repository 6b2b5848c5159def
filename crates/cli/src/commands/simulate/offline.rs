//! Runs the offline policies, which know all future requests.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use edgeward_sim::{OfflineConfig, RecordedTrace, RunReport, SimulatedPolicy};

use super::args::SimulateArgs;
use crate::diagnostic::Diagnostic;
use crate::output::Progress;

/// Executes runs on several threads. Each run has the number of its row in the table of results. Returns the reports
/// with these numbers, in ascending order.
pub(super) fn run_all(
    trace: &RecordedTrace,
    runs: &[(usize, OfflineConfig)],
    threads: NonZeroUsize,
) -> Vec<(usize, RunReport)> {
    let progress = Progress::new("offline policies", "runs", Some(runs.len() as u64));
    let taken = AtomicUsize::new(0);
    let work = || {
        let mut reports = Vec::new();
        while let Some((row, config)) = runs.get(taken.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            let mut report = trace.run(config);
            let seconds = start.elapsed().as_secs_f64();
            report.requests_per_second = Some(trace.requests() as f64 / seconds);
            reports.push((*row, report));
            progress.advance(1);
        }
        reports
    };
    let mut reports: Vec<(usize, RunReport)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.get().min(runs.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Vec<_>>| {
            worker.join().expect("a worker does not panic")
        };
        workers.into_iter().flat_map(join).collect()
    });
    reports.sort_by_key(|&(row, _)| row);
    reports
}

/// Returns an error if the options combine an offline policy with an option that it does not support, or `--by-c` or
/// `--nodes` with lifetimes.
pub(super) fn check(args: &SimulateArgs) -> Result<(), Diagnostic> {
    let have_ttls = args.trace.have_ttls();
    let without_ttls = [(args.by_c, "--by-c"), (args.fleet.is_present(), "--nodes")];
    if have_ttls && let Some((_, option)) = without_ttls.iter().find(|(is_given, _)| *is_given) {
        let message = format!("{option} does not support the lifetimes of --columns ttl=…");
        let hint = format!("remove ttl from --columns, or run it without {option}");
        return Err(Diagnostic::new(message).hint(hint));
    }
    let is_offline = |policy: &&SimulatedPolicy| matches!(policy, SimulatedPolicy::Offline(_));
    let Some(policy) = args.policy.iter().find(is_offline) else {
        return Ok(());
    };
    let options = [
        (args.disk.is_present(), "--disk"),
        (args.count_metadata.bytes() > 0, "--count-metadata"),
        (args.fetch_latency.is_some(), "--fetch-latency"),
        (args.curve.is_some(), "--curve"),
        (args.fleet.is_present(), "--nodes"),
        (have_ttls, "the lifetimes of --columns ttl=…"),
    ];
    match options.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, option)) => Err(Diagnostic::new(format!(
            "the policy `{policy}` knows all future requests and does not support {option}"
        ))
        .hint(format!("run it without {option}"))),
        None => Ok(()),
    }
}
