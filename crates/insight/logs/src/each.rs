//! Reads logs in their order on one thread, and passes each request to a function.

use std::sync::atomic::AtomicUsize;

use edgeward_analysis::Entry;

use crate::analyze::Settings;
use crate::find::Source;
use crate::report::FileReport;
use crate::scan::{Pause, RequestSink, Shared, Task, Worker};

/// Passes the requests of all logs to `each`, log by log, and returns a report for each log. `progress` is called with
/// the number of bytes after each read. Only the settings of formats and limits matter.
pub fn for_each_request(
    sources: &[Source],
    settings: &Settings,
    progress: &(dyn Fn(u64) + Sync),
    each: impl FnMut(&Entry<'_>) + Send,
) -> Vec<FileReport> {
    let task = |(source, log)| Task {
        source,
        log,
        rest: None,
    };
    let tasks: Vec<Task> = (0..sources.len()).zip(0..).map(task).collect();
    let shared = Shared {
        sources,
        tasks: &tasks,
        next: AtomicUsize::new(0),
        settings,
        progress,
        pause: Pause::after(u64::MAX),
        ahead: false,
    };
    let worker = Worker::new(&shared, EachRequest(each)).run();
    worker
        .reports
        .into_iter()
        .map(|(_, report)| report)
        .collect()
}

struct EachRequest<F>(F);

impl<F: FnMut(&Entry<'_>) + Send> RequestSink for EachRequest<F> {
    fn begin(&mut self, _: Task) {}

    fn take(&mut self, entry: &Entry<'_>, _: &str) -> bool {
        self.0(entry);
        true
    }

    fn is_full(&self) -> bool {
        false
    }
}
