//! The monitor: a thread that measures the process, sets its level of overload, and finds stuck workers and ended
//! processes.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use edgeward_overload::{Bounds, Level, Overload, Sample, Transition, Watchdog, WorkerEvent};

use super::generations::Generations;
use super::measured::{Memory, bounds};
use crate::path::worker::Shared;
use crate::rt::background::Background;
use crate::rt::health::{Rise, Usage, shed_work};

/// Starts the monitor. Dropping the value stops it.
pub(super) fn start(generations: &Arc<Generations>) -> io::Result<Background> {
    let mut monitor = Monitor::new(Arc::clone(generations));
    Background::start("edgeward-monitor", INTERVAL, move || monitor.check())
}

struct Monitor {
    generations: Arc<Generations>,
    overload: Overload,
    /// `None` if it is disabled.
    watchdog: Option<Watchdog>,
    /// The checks until descriptors are counted again, and the last count.
    checks_left: u32,
    descriptors: Option<u64>,
}

impl Monitor {
    fn new(generations: Arc<Generations>) -> Self {
        let shared = generations.shared();
        let config = &shared.config;
        let deadline = config.watchdog.deadline;
        let watchdog = Watchdog::new(deadline, config.workers.get());
        Self {
            overload: Overload::new(bounds(config), config.overload.step),
            watchdog: Some(watchdog).filter(|_| !deadline.is_zero()),
            checks_left: 0,
            descriptors: None,
            generations,
        }
    }

    fn check(&mut self) {
        let shared = self.generations.shared();
        let health = &shared.health;
        let now = health.now();
        let sample = self.measure(&shared, now);
        health.set_sample(&sample);
        if let Some(transition) = self.overload.update(now, &sample) {
            health.set_level(transition.to, transition.resource);
            if transition.to > transition.from {
                health.record_rise(Rise {
                    at: now,
                    level: transition.to,
                    resource: transition.resource,
                    usage: Usage::of(transition.resource, &sample, self.overload.bounds()),
                });
            }
            log_transition(&transition, &sample, self.overload.bounds());
        }
        self.check_workers(&shared, now);
        self.generations.routes.close_ended();
    }

    fn measure(&mut self, shared: &Shared, now: Duration) -> Sample {
        let lags = shared.health.hearts().iter().map(|heart| heart.lag(now));
        let bounds = self.overload.bounds();
        Sample {
            memory_bytes: bounds
                .memory_bytes
                .and_then(|_| Some(Memory::of(shared)?.all_bytes)),
            lag: lags.max().unwrap_or_default(),
            descriptors: bounds.descriptors.and_then(|_| self.count_descriptors()),
        }
    }

    /// Returns the number of open descriptors. Linux 6.2 and later have it as the size of a folder. Earlier versions
    /// list the descriptors, which takes a microsecond for each. A long list is therefore read at every eighth check.
    fn count_descriptors(&mut self) -> Option<u64> {
        let size = fs::metadata(DESCRIPTORS).ok()?.len();
        if size > 0 {
            return Some(size);
        }
        if self.checks_left > 0 {
            self.checks_left -= 1;
            return self.descriptors;
        }
        let count = fs::read_dir(DESCRIPTORS).ok()?.count() as u64;
        self.descriptors = Some(count);
        self.checks_left = if count > LONG_LIST { 7 } else { 0 };
        self.descriptors
    }

    fn check_workers(&mut self, shared: &Shared, now: Duration) {
        let health = &shared.health;
        let Some(watchdog) = &mut self.watchdog else {
            return;
        };
        // A worker that has not begun is not stuck.
        let reports: Vec<_> = health
            .hearts()
            .iter()
            .map(|heart| {
                if heart.thread() == 0 {
                    now
                } else {
                    heart.last()
                }
            })
            .collect();
        for event in watchdog.check(now, &reports) {
            match event {
                WorkerEvent::Stuck { worker, since } => {
                    health.stuck_total.fetch_add(1, Relaxed);
                    let heart = health.heart(worker);
                    tracing::error!(
                        worker,
                        silent_seconds = now.saturating_sub(since).as_secs_f64(),
                        last_activity = heart.activity().word(),
                        thread_state = thread_state(heart.thread()),
                        "a worker is stuck: it has not reported within watchdog.deadline"
                    );
                    if shared.config.watchdog.aborts {
                        tracing::error!("watchdog.abort ends the process");
                        std::process::abort();
                    }
                }
                WorkerEvent::Recovered { worker } => {
                    tracing::warn!(worker, "a worker that was stuck reports again");
                }
            }
        }
        health.stuck.store(watchdog.stuck() as u64, Relaxed);
    }
}

/// Logs a change of the level once.
fn log_transition(transition: &Transition, sample: &Sample, bounds: &Bounds) {
    let Transition { from, to, resource } = *transition;
    let Usage { used, bound, unit } = Usage::of(resource, sample, bounds);
    let resource = resource.word();
    let sheds = shed_work(to, transition.resource);
    let (from, to) = (from.word(), to.word());
    if to == Level::Normal.word() {
        tracing::info!(
            from,
            resource,
            used,
            bound,
            unit,
            "the overload is over: {sheds}"
        );
    } else {
        tracing::warn!(from, to, resource, used, bound, unit, "overload: {sheds}");
    }
}

/// Returns the state of a thread of this process, as the letter in `/proc/PID/stat`: R runs, S sleeps, D waits for a
/// disk.
fn thread_state(thread: i32) -> String {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    // The name in parentheses may contain spaces.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let state = rest.split_whitespace().next();
    state.unwrap_or("ended").to_owned()
}

/// The interval of the checks.
const INTERVAL: Duration = Duration::from_millis(250);

const DESCRIPTORS: &str = "/proc/self/fd";

/// The number of descriptors above which their list is read at every eighth check.
const LONG_LIST: u64 = 4096;
