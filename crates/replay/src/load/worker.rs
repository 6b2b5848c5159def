//! A worker: a thread with a runtime and a part of the connections.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::alarm::Alarm;
use super::connection::{Answer, Connection};
use super::plan::{Pacing, ReplayPlan};
use super::queue::{Job, Queue};
use super::schedule::Moments;
use super::tally::{ErrorKind, Failure, Tally};
use crate::monitor::thread_cpu;

/// The state that all workers share.
pub(super) struct Shared {
    plan: ReplayPlan,
    queue: Queue,
    /// The time when the first request was taken from the queue; due times count from it.
    started: OnceLock<Instant>,
    /// The time when the first counted request was due, or was sent if it has no due time.
    measured_from: OnceLock<Instant>,
    gave_up: AtomicBool,
}

/// The results of a worker.
#[derive(Debug)]
pub(super) struct Worked {
    pub(super) tally: Tally,
    /// The CPU time of the thread, if the system reports it.
    pub(super) cpu: Option<Duration>,
}

impl Shared {
    pub(super) fn new(plan: ReplayPlan, queue: Queue) -> Self {
        Self {
            plan,
            queue,
            started: OnceLock::new(),
            measured_from: OnceLock::new(),
            gave_up: AtomicBool::new(false),
        }
    }

    pub(super) fn close_queue(&self) {
        self.queue.close();
    }

    /// Returns the duration of the run without the warm-up.
    pub(super) fn span(&self, ended: Instant) -> Duration {
        match self.measured_from.get() {
            Some(&from) => ended.saturating_duration_since(from),
            None => Duration::ZERO,
        }
    }

    pub(super) fn stopped_early(&self) -> bool {
        self.gave_up.load(Ordering::Relaxed) || self.plan.stop.is_asked()
    }

    fn started(&self) -> Instant {
        *self.started.get_or_init(Instant::now)
    }

    fn count(
        &self,
        tally: &Mutex<Tally>,
        job: &Job,
        sent: Instant,
        result: Result<Answer, Failure>,
    ) {
        let live = &self.plan.live;
        let counts = job.number >= self.plan.warmup_requests;
        match result {
            Ok(answer) => {
                let started = self.started();
                let since_start = |at: Instant| at.saturating_duration_since(started);
                let moments = Moments {
                    due: job.due,
                    sent: since_start(sent),
                    first_byte: since_start(answer.first_byte),
                    end: since_start(answer.end),
                };
                let spans = moments.spans();
                live.answered(job.size, answer.class.is_hit(), spans.total, counts);
                if counts {
                    lock(tally).answered(answer.class, job.size, spans);
                }
            }
            Err(failure) => {
                tracing::debug!(
                    request = job.number,
                    object = job.key,
                    kind = failure.kind.as_str(),
                    "{}",
                    failure.detail
                );
                let in_a_row = live.failed();
                if in_a_row >= self.plan.failures_in_a_row_max.get() {
                    self.gave_up.store(true, Ordering::Relaxed);
                }
                if counts {
                    lock(tally).failed(job, failure);
                }
            }
        }
    }
}

/// Runs worker `number` until the queue is empty.
pub(super) fn run(number: usize, shared: &Arc<Shared>) -> io::Result<Worked> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tally = Arc::new(Mutex::new(Tally::new()));
    let (workers, connections) = (shared.plan.worker_count(), shared.plan.connections.get());
    let mine = (number..connections).step_by(workers).count();
    runtime.block_on(async {
        let mut connections = JoinSet::new();
        for _ in 0..mine {
            connections.spawn(run_connection(Arc::clone(shared), Arc::clone(&tally)));
        }
        while let Some(ended) = connections.join_next().await {
            ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        }
        Ok::<_, io::Error>(())
    })?;
    // The tasks of this worker have ended, so the counts are final. Cloning them is cheap.
    let tally = lock(&tally).clone();
    Ok(Worked {
        tally,
        cpu: thread_cpu(),
    })
}

/// Sends requests on one connection until the queue is empty.
async fn run_connection(shared: Arc<Shared>, tally: Arc<Mutex<Tally>>) -> io::Result<()> {
    let plan = &shared.plan;
    let alarm = match plan.pacing {
        Pacing::Closed if plan.round_trip.is_zero() => None,
        Pacing::Closed | Pacing::Rate(_) | Pacing::TraceTime { .. } => Some(Alarm::new()?),
    };
    let mut connection = Connection::new(plan.target.clone(), plan.timeout);
    let mut failed_before = 0_u32;
    while !shared.stopped_early()
        && let Some(job) = shared.queue.next().await
    {
        let started = shared.started();
        if let (Some(alarm), Some(due)) = (&alarm, job.due) {
            match plan.stop.before(alarm.until(started + due)).await {
                Some(rung) => rung?,
                None => break,
            }
        }
        if failed_before > 0 {
            pause_after_failures(failed_before).await;
        }
        let sent = Instant::now();
        if let (Some(alarm), false) = (&alarm, plan.round_trip.is_zero()) {
            // Waits for the whole emulated round trip before sending. One wait of the whole time gives the same
            // latency as one before the request and one after the response, and needs half the timers.
            alarm.until(sent + plan.round_trip).await?;
        }
        if job.number >= plan.warmup_requests {
            let from = job.due.map_or(sent, |due| started + due);
            shared.measured_from.get_or_init(|| from);
        }
        // A pending request is not counted when the replay is stopped.
        let Some(result) = plan.stop.before(connection.perform(&job)).await else {
            break;
        };
        failed_before = match &result {
            Err(failure) if failure.kind == ErrorKind::Connection => {
                failed_before.saturating_add(1)
            }
            _ => 0,
        };
        shared.count(&tally, &job, sent, result);
    }
    lock(&tally).connections += connection.opened;
    Ok(())
}

/// Waits after consecutive failed connections: 10 ms, then 20, 40 and so on up to one second.
async fn pause_after_failures(failures: u32) {
    let pause = PAUSE_FIRST.saturating_mul(1 << (failures - 1).min(7));
    tokio::time::sleep(pause.min(PAUSE_MAX)).await;
}

// Only tasks of this worker's thread share the lock, so it is always free.
fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
