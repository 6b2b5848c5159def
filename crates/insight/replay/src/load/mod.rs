//! The load generator: sends a trace to a target and verifies every byte of the responses.
//!
//! A feeder thread reads the trace into a queue. Each connection takes a request from the queue, sends it, compares
//! the response frame by frame with the object's [`Pattern`], and takes the next one. The connections are spread over
//! worker threads with one runtime each. The queue has the requests in trace order. Only with one connection is the
//! order exact at the target, because several connections send at the same time. In addition to the buffers of the
//! kernel, each connection uses memory for one read buffer. If every request uses the first size of its object
//! ([`ReplayPlan::settle_sizes`]), the feeder also stores this size for every object.
//!
//! A closed loop sends as fast as responses arrive. In an open loop ([`Pacing::Rate`], [`Pacing::TraceTime`]) each
//! request has a due time (`schedule`), for which its connection waits with a precise timer (`alarm`). The latency is
//! measured from this time even if no connection was free. If the target stalls, the wait is therefore part of the
//! latency of every delayed request (no coordinated omission).
//!
//! [`Pattern`]: crate::Pattern

mod alarm;
pub(crate) mod cache_status;
mod connection;
mod latencies;
mod live;
mod plan;
pub(crate) mod queue;
mod schedule;
mod stop;
pub(crate) mod tally;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{error, io, thread};

use edgeward_trace::Record;

use crate::monitor::{Monitor, MonitorConfig};
use crate::report::{Measured, ReplayReport};

pub use cache_status::Class;
pub use latencies::Latencies;
pub use live::LiveCounts;
pub use plan::{Pacing, ReplayPlan, Target, TargetError};
pub use queue::Feeder;
pub use schedule::{RequestDurations, RequestTimes, Schedule};
pub use stop::Stop;
pub use tally::{ErrorKind, ErrorSample};

/// Why a replay has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The target did not accept the first connection.
    #[error("cannot connect to {addr}")]
    Connect {
        /// The target.
        addr: std::net::SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// Reading the trace failed.
    #[error("cannot read the trace after {requests} requests")]
    Trace {
        /// The number of requests queued before, without skipped ones.
        requests: u64,
        /// The cause.
        source: Box<dyn error::Error + Send + Sync>,
    },
    /// A thread, a runtime or a timer could not be created.
    #[error("cannot start a worker")]
    Worker {
        /// The cause.
        source: io::Error,
    },
    /// The process to monitor does not exist.
    #[error("cannot monitor process {pid}")]
    Monitor {
        /// The process id.
        pid: u32,
        /// The cause.
        source: io::Error,
    },
}

/// Sends the requests to the plan's target and returns a report.
///
/// Blocks until the last response has arrived. Meanwhile [`ReplayPlan::live`] shows the progress.
///
/// # Errors
///
/// Returns an error if the target is unreachable at the start, if the trace cannot be read, or if a resource cannot
/// be created. Failed requests are part of the report.
pub fn run<E>(
    plan: &ReplayPlan,
    requests: impl Iterator<Item = Result<Record, E>> + Send,
) -> Result<ReplayReport, ReplayError>
where
    E: Into<Box<dyn error::Error + Send + Sync>>,
{
    run_from(plan, move |feeder| {
        for record in requests {
            if feeder.push(record?).is_break() {
                break;
            }
        }
        Ok::<_, E>(())
    })
}

/// Like [`run`], for a source that pushes its records. `source` is called once on its own thread and pushes the
/// records into the [`Feeder`] until the trace ends or the feeder returns `Break`.
///
/// # Errors
///
/// Returns the same errors as [`run`].
pub fn run_from<E>(
    plan: &ReplayPlan,
    source: impl FnOnce(&mut Feeder) -> Result<(), E> + Send,
) -> Result<ReplayReport, ReplayError>
where
    E: Into<Box<dyn error::Error + Send + Sync>>,
{
    // If the target is unreachable, the caller gets one error instead of a report of a million failed requests.
    let addr = plan.target.addr();
    std::net::TcpStream::connect_timeout(&addr, CONNECT_TIME_MAX)
        .map_err(|source| ReplayError::Connect { addr, source })?;
    plan.live.reset();
    let monitor = Monitor::start(
        MonitorConfig {
            pid: plan.pid,
            status: plan.status.clone(),
            interval: plan.sample_interval,
        },
        Arc::clone(&plan.live),
    )
    .map_err(|source| ReplayError::Monitor {
        pid: plan.pid.unwrap_or_default(),
        source,
    })?;

    let (mut feeder, queue) = queue::new(plan);
    let shared = Arc::new(worker::Shared::new(plan.clone(), queue));
    let (workers, feed_result) = thread::scope(|scope| {
        let feeding = thread::Builder::new()
            .name("replay-feeder".to_owned())
            .spawn_scoped(scope, move || match source(&mut feeder) {
                Ok(()) => Ok(feeder.finish()),
                Err(error) => Err((feeder.requests(), error.into())),
            })
            .map_err(|source| ReplayError::Worker { source })?;
        let workers: Vec<_> = (0..plan.worker_count())
            .map(|number| {
                let shared = Arc::clone(&shared);
                thread::Builder::new()
                    .name(format!("replay-{number}"))
                    .spawn_scoped(scope, move || worker::run(number, &shared))
            })
            .collect();
        let workers: Vec<_> = workers
            .into_iter()
            .map(|thread| match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(source) => Err(source),
            })
            .collect();
        // After the workers have ended, the queue has no receiver, so the feeder ends too.
        shared.close_queue();
        let feed_result = match feeding.join() {
            Ok(feed_result) => feed_result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok::<_, ReplayError>((workers, feed_result))
    })?;
    let ended = Instant::now();
    let target_report = monitor.stop();

    let mut tally = tally::Tally::new();
    let mut cpu = Some(Duration::ZERO);
    for worker in workers {
        let worker = worker.map_err(|source| ReplayError::Worker { source })?;
        tally.merge(&worker.tally);
        cpu = cpu.zip(worker.cpu).map(|(sum, more)| sum + more);
    }
    let feed_counts =
        feed_result.map_err(|(requests, source)| ReplayError::Trace { requests, source })?;
    let measured = Measured {
        tally,
        span: shared.span(ended),
        feed_counts,
        cpu,
        stopped_early: shared.stopped_early(),
    };
    Ok(ReplayReport::new(plan, measured, target_report))
}

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
