//! The load generator: sends a trace to a target and checks every byte that comes back.
//!
//! One feeder thread reads the trace into a queue. Every connection takes the next request
//! from it, sends it, reads the answer frame by frame against the object's [`Pattern`],
//! and takes the next; connections are spread over worker threads with a runtime each. So
//! requests leave in trace order, exactly so with one connection, and nothing is held in
//! memory but what the kernel and one read buffer per connection hold.
//!
//! A closed loop sends as fast as answers come. An open loop ([`Pacing::Rate`],
//! [`Pacing::TraceTime`]) gives every request a time it is due, and measures its latency
//! from then, whether a connection was free or not: a target that stalls is charged for
//! every request it kept waiting (no coordinated omission).
//!
//! [`Pattern`]: crate::Pattern

mod alarm;
mod cache_status;
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
use crate::report::ReplayReport;

pub use cache_status::Class;
pub use latencies::Latencies;
pub use live::LiveCounts;
pub use plan::{Pacing, ReplayPlan, Target, TargetError};
pub use queue::Feeder;
pub use schedule::{Moments, Schedule, Spans};
pub use stop::Stop;
pub use tally::{ErrorKind, ErrorSample};

/// Why a replay came to no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The target did not take the first connection.
    #[error("cannot connect to {addr}")]
    Connect {
        /// The target.
        addr: std::net::SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The trace could not be read to its end.
    #[error("the trace cannot be read on after {requests} requests")]
    Trace {
        /// How many were read before.
        requests: u64,
        /// Why.
        source: Box<dyn error::Error + Send + Sync>,
    },
    /// The system refused a thread, a runtime or a timer.
    #[error("cannot start a worker")]
    Worker {
        /// Why.
        source: io::Error,
    },
    /// The process to watch is not there.
    #[error("cannot watch process {pid}")]
    Monitor {
        /// The process.
        pid: u32,
        /// Why.
        source: io::Error,
    },
}

/// Sends the requests to the plan's target and reports what came of it.
///
/// Blocks until the last answer. [`ReplayPlan::live`] tells how far it is meanwhile.
///
/// # Errors
///
/// If the target is not there at the start, the trace cannot be read, or the system refuses
/// what the run needs. Requests that fail are no error but part of the report.
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

/// The same for a trace that is pushed: `source` is called once, on a thread of its own,
/// and gives its records to the [`Feeder`] until there are no more or it says `Break`.
///
/// # Errors
///
/// As for [`run`].
pub fn run_from<E>(
    plan: &ReplayPlan,
    source: impl FnOnce(&mut Feeder) -> Result<(), E> + Send,
) -> Result<ReplayReport, ReplayError>
where
    E: Into<Box<dyn error::Error + Send + Sync>>,
{
    // A target that is not there is told at once, and not as a million errors.
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
    let (workers, fed) = thread::scope(|scope| {
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
        // With the workers gone nobody takes from the queue, so the feeder ends, too.
        shared.close_queue();
        let fed = match feeding.join() {
            Ok(fed) => fed,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok::<_, ReplayError>((workers, fed))
    })?;
    let ended = Instant::now();
    let watched = monitor.stop();

    let mut tally = tally::Tally::new();
    let mut cpu = Some(Duration::ZERO);
    for worker in workers {
        let worker = worker.map_err(|source| ReplayError::Worker { source })?;
        tally.merge(&worker.tally);
        cpu = cpu.zip(worker.cpu).map(|(sum, more)| sum + more);
    }
    let fed = fed.map_err(|(requests, source)| ReplayError::Trace { requests, source })?;
    Ok(ReplayReport::new(
        plan,
        tally,
        shared.span(ended),
        fed,
        cpu,
        shared.stopped_early(),
        watched,
    ))
}

const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
