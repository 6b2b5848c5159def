//! A worker: a thread with a runtime and a part of the connections.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::alarm::Alarm;
use super::connection::{CheckedResponse, Connection};
use super::plan::{Pacing, ReplayPlan};
use super::queue::{Job, Queue};
use super::schedule::RequestTimes;
use super::tally::{ErrorKind, Failure, Tally};
use crate::monitor::thread_cpu;

/// The state that all workers share.
pub(super) struct Shared {
    plan: ReplayPlan,
    queue: Queue,
    /// The time when the first request was taken from the queue; due times count from it.
    started: OnceLock<Instant>,
    /// The time when the first counted request was due, or was sent if it has no due time.
    measurement_start: OnceLock<Instant>,
    /// True after too many consecutive failures.
    gave_up: AtomicBool,
}

/// The results of a worker.
#[derive(Debug)]
pub(super) struct WorkerResult {
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
            measurement_start: OnceLock::new(),
            gave_up: AtomicBool::new(false),
        }
    }

    pub(super) fn close_queue(&self) {
        self.queue.close();
    }

    /// Returns the duration of the run without the warm-up.
    pub(super) fn span(&self, ended: Instant) -> Duration {
        match self.measurement_start.get() {
            Some(&from) => ended.saturating_duration_since(from),
            None => Duration::ZERO,
        }
    }

    pub(super) fn stopped_early(&self) -> bool {
        self.gave_up.load(Ordering::Relaxed) || self.plan.stop.is_requested()
    }

    fn started(&self) -> Instant {
        *self.started.get_or_init(Instant::now)
    }

    fn count(
        &self,
        tally: &Mutex<Tally>,
        job: &Job,
        sent: Instant,
        result: Result<CheckedResponse, Failure>,
    ) {
        let live = &self.plan.live;
        let is_counted = job.number >= self.plan.warmup_requests;
        match result {
            Ok(response) => {
                let started = self.started();
                let since_start = |at: Instant| at.saturating_duration_since(started);
                let times = RequestTimes {
                    due: job.due,
                    sent: since_start(sent),
                    first_byte: since_start(response.first_byte),
                    end: since_start(response.end),
                };
                let durations = times.durations();
                live.count_response(
                    job.size,
                    response.class.is_hit(),
                    durations.total,
                    is_counted,
                );
                if is_counted {
                    lock(tally).add_response(response.class, job.size, durations);
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
                let consecutive_failures = live.count_failure();
                if consecutive_failures >= self.plan.failures_in_a_row_max.get() {
                    self.gave_up.store(true, Ordering::Relaxed);
                }
                if is_counted {
                    lock(tally).add_failure(job, failure);
                }
            }
        }
    }
}

/// Runs worker `number` until the queue is empty.
pub(super) fn run(number: usize, shared: &Arc<Shared>) -> io::Result<WorkerResult> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tally = Arc::new(Mutex::new(Tally::new()));
    let (workers, connections) = (shared.plan.worker_count(), shared.plan.connections.get());
    let own_connections = (number..connections).step_by(workers).count();
    runtime.block_on(async {
        let mut connections = JoinSet::new();
        for _ in 0..own_connections {
            connections.spawn(run_connection(Arc::clone(shared), Arc::clone(&tally)));
        }
        while let Some(ended) = connections.join_next().await {
            ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
        }
        Ok::<_, io::Error>(())
    })?;
    // The tasks of this worker have ended, so the counts are final. Cloning them is cheap.
    let tally = lock(&tally).clone();
    Ok(WorkerResult {
        tally,
        cpu: thread_cpu(),
    })
}

/// Sends requests on one connection until the queue is empty.
async fn run_connection(shared: Arc<Shared>, tally: Arc<Mutex<Tally>>) -> io::Result<()> {
    let plan = &shared.plan;
    // Without due times and without an emulated round-trip time, the connection needs no timer.
    let alarm = match plan.pacing {
        Pacing::Closed if plan.round_trip.is_zero() => None,
        Pacing::Closed | Pacing::Rate(_) | Pacing::TraceTime { .. } => Some(Alarm::new()?),
    };
    let mut connection = Connection::new(plan);
    // The number of consecutive requests whose connection failed before the head of the response.
    let mut failed_connections = 0_u32;
    while !shared.stopped_early()
        && let Some(job) = shared.queue.next().await
    {
        let started = shared.started();
        if let (Some(alarm), Some(due)) = (&alarm, job.due) {
            match plan
                .stop
                .unless_requested(alarm.wait_until(started + due))
                .await
            {
                Some(waited) => waited?,
                None => break,
            }
        }
        if failed_connections > 0 {
            pause_after_failures(failed_connections).await;
        }
        let sent = Instant::now();
        if let (Some(alarm), false) = (&alarm, plan.round_trip.is_zero()) {
            // The whole emulated round-trip time passes before the request is sent. Half of the time before the
            // request and half after the response would give the same latency, but would need twice as many
            // timers.
            alarm.wait_until(sent + plan.round_trip).await?;
        }
        if job.number >= plan.warmup_requests {
            let from = job.due.map_or(sent, |due| started + due);
            shared.measurement_start.get_or_init(|| from);
        }
        // A pending request is not counted when the replay is stopped.
        let Some(result) = plan.stop.unless_requested(connection.perform(&job)).await else {
            break;
        };
        failed_connections = match &result {
            Err(failure) if failure.kind == ErrorKind::Connection => {
                failed_connections.saturating_add(1)
            }
            _ => 0,
        };
        shared.count(&tally, &job, sent, result);
    }
    lock(&tally).connections += connection.opened();
    Ok(())
}

/// Waits after consecutive failed connections: 10 ms, then 20, 40 and so on up to one second.
async fn pause_after_failures(failures: u32) {
    let pause = PAUSE_FIRST.saturating_mul(1 << (failures - 1).min(7));
    tokio::time::sleep(pause.min(PAUSE_MAX)).await;
}

// Only tasks of this worker's thread use the lock, and no task holds it while it waits, so the lock is always free.
fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
