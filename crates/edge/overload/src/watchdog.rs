//! The watchdog: workers that have not reported for longer than a deadline.

use std::time::Duration;

/// Finds workers that are stuck, and reports each of them once.
#[derive(Clone, Debug)]
pub struct Watchdog {
    deadline: Duration,
    workers: Vec<Watched>,
    checked: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    is_stuck: bool,
    /// Reports before this time count as made at this time.
    excused: Duration,
}

/// A change of a worker's state. Times count from the same instant as those of [`Watchdog::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// The worker has not reported since this time.
    Stuck {
        /// The number of the worker.
        worker: usize,
        /// Its last report.
        since: Duration,
    },
    /// A worker that was stuck has reported.
    Recovered {
        /// The number of the worker.
        worker: usize,
    },
}

impl Watchdog {
    /// Returns a watchdog for this number of workers.
    #[must_use]
    pub fn new(deadline: Duration, workers: usize) -> Self {
        Self {
            deadline,
            workers: vec![Watched::default(); workers],
            checked: None,
        }
    }

    /// Returns the number of stuck workers.
    #[must_use]
    pub fn stuck(&self) -> usize {
        let stuck = self.workers.iter().filter(|worker| worker.is_stuck);
        stuck.count()
    }

    /// Compares the time of each worker's last report with the deadline. If the last call is
    /// longer ago than half of the deadline and than a second, the whole process was stopped. Each worker then gets a
    /// new deadline.
    pub fn check(&mut self, now: Duration, reports: &[Duration]) -> Vec<WorkerEvent> {
        let since_check = self
            .checked
            .map_or(Duration::ZERO, |at| now.saturating_sub(at));
        let was_stopped = since_check > (self.deadline / 2).max(PAUSE_MIN);
        self.checked = Some(now);
        let mut events = Vec::new();
        for (number, (worker, &report)) in self.workers.iter_mut().zip(reports).enumerate() {
            if was_stopped && !worker.is_stuck {
                worker.excused = now;
            }
            let last = report.max(worker.excused);
            let is_stuck = now.saturating_sub(last) > self.deadline;
            if is_stuck != worker.is_stuck {
                worker.is_stuck = is_stuck;
                events.push(match is_stuck {
                    true => WorkerEvent::Stuck {
                        worker: number,
                        since: report,
                    },
                    false => WorkerEvent::Recovered { worker: number },
                });
            }
        }
        events
    }
}

/// The shortest time between two checks that counts as a pause of the process. The checks are a quarter of it apart.
const PAUSE_MIN: Duration = Duration::from_secs(1);
