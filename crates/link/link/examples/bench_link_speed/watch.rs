//! Detects pauses of the processors that the link does not cause.
//!
//! The host of a virtual machine suspends its processors for milliseconds at a time. Requests in progress are delayed
//! then, with and without the link. To detect these pauses, one watcher process per processor runs with real-time
//! priority (`SCHED_FIFO`) and sleeps for 0.2 ms at a time. If it wakes up late, it reports the interval in which no
//! process could run on its processor. Requests that overlap such an interval can be left out of the results. The
//! number of pauses should not depend on whether a download runs; if a download increases it, the host is not the
//! cause of the pauses.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Returns the monotonic time in nanoseconds, which all processes of a machine share.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The watcher processes of all processors. Dropping this value ends them.
pub(crate) struct Watch {
    watchers: Vec<Child>,
    /// The start and the end of each pause, as returned by [`now`].
    pauses: Arc<Mutex<Vec<[u64; 2]>>>,
}

impl Watch {
    /// Starts the watchers. Returns `None` if real-time priority is not permitted (it needs root or
    /// `CAP_SYS_NICE`), or if `chrt` or `taskset` is missing.
    pub(crate) fn start() -> io::Result<Option<Self>> {
        let this = std::env::current_exe()?;
        let pauses = Arc::new(Mutex::new(Vec::new()));
        let mut watch = Self {
            watchers: Vec::new(),
            pauses: Arc::clone(&pauses),
        };
        for cpu in 0..thread::available_parallelism()?.get() {
            let mut watcher = Command::new("chrt");
            watcher.args(["--fifo", "1", "taskset", "--cpu-list", &cpu.to_string()]);
            watcher.arg(&this).arg("--watch").arg("pauses");
            let child = watcher.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
            let Ok(mut child) = child else {
                return Ok(None);
            };
            let mut lines = BufReader::new(child.stdout.take().expect("stdout is a pipe")).lines();
            watch.watchers.push(child);
            if lines.next().transpose()?.is_none() {
                return Ok(None);
            }
            let pauses = Arc::clone(&pauses);
            thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    let mut times = line.split(' ').map_while(|word| word.parse().ok());
                    if let (Some(from), Some(to)) = (times.next(), times.next()) {
                        pauses
                            .lock()
                            .expect("no thread panics while it holds the lock")
                            .push([from, to]);
                    }
                }
            });
        }
        Ok(Some(watch))
    }

    /// Returns the pauses that overlap this interval.
    pub(crate) fn pauses(&self, from: u64, to: u64) -> Vec<[u64; 2]> {
        let pauses = self
            .pauses
            .lock()
            .expect("no thread panics while it holds the lock");
        let overlapping = pauses
            .iter()
            .filter(|[start, end]| *start < to && from < *end);
        overlapping.copied().collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for watcher in &mut self.watchers {
            _ = watcher.kill();
            _ = watcher.wait();
        }
    }
}

/// The main function of a watcher process. It prints a line when it is ready, and one line for each pause.
pub(crate) fn report_pauses() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    loop {
        let due = now() + SLEEP.as_nanos() as u64;
        thread::sleep(SLEEP);
        let woken_at = now();
        if woken_at > due + PAUSE_MIN.as_nanos() as u64 {
            writeln!(out, "{due} {woken_at}")?;
        }
    }
}

/// The time for which a watcher sleeps.
const SLEEP: Duration = Duration::from_micros(200);

/// The shortest delay that is reported as a pause. Shorter delays may be caused by the timer.
const PAUSE_MIN: Duration = Duration::from_micros(300);
