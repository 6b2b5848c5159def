//! Runs an experiment: reads the trace, checks the free space, runs the contenders and returns the outcome.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use edgeward_replay::load::Stop;
use edgeward_types::ByteSize;

use crate::contender_run::ContenderRun;
use crate::machine;
use crate::outcome::{ContenderOutcome, LoadFacts, Outcome, TraceFacts};
use crate::plan::{Contender, Order, Plan, Server};
use crate::source::{TraceError, TraceSource};

/// The paths that an experiment uses.
#[derive(Clone, Debug)]
pub struct LabPaths {
    /// The path of the `edgeward` binary.
    pub edgeward: PathBuf,
    /// The folder for caches. Each contender's folder in it is removed after its run.
    pub folder: PathBuf,
}

/// Receives the progress of an experiment.
pub trait ProgressObserver: Sync {
    /// Reports that a step begins. `what` describes the step, and `requests` is the number of requests that it will
    /// process.
    fn begin_step(&self, what: &str, requests: u64);
    /// Reports the number of requests that the current step has processed.
    fn set_progress(&self, requests: u64);
    /// Reports that a contender or the whole experiment has ended. `outcome` has the results so far.
    fn contender_ended(&self, outcome: &Outcome);
}

/// Why an experiment has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The trace has no requests, or reading it failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The caches do not fit on the disk or in memory.
    #[error(
        "the caches need {needed} and an eighth more as a reserve, but {location} has only {free} free"
    )]
    NotEnoughSpace {
        /// The bytes of the caches that exist at the same time, without the reserve of one eighth.
        needed: ByteSize,
        /// The folder that is too small, or `memory`.
        location: String,
        /// Free bytes.
        free: ByteSize,
    },
    /// A stop was requested before the first contender was started.
    #[error("interrupted before any contender ran")]
    Interrupted,
}

/// Runs the plan. If a contender does not start or fails, the outcome says so, and the other contenders still run.
///
/// # Errors
///
/// Returns an error if the trace has no requests or cannot be read, if the caches do not fit on the disk or in memory,
/// or if a stop was requested before the first contender was started.
pub fn run(
    plan: &Plan,
    paths: &LabPaths,
    stop: &Stop,
    observer: &dyn ProgressObserver,
) -> Result<Outcome, LabError> {
    let source = TraceSource::new(&plan.trace);
    observer.begin_step("reading the trace", plan.trace.requests);
    let trace = source.facts(|requests| observer.set_progress(requests))?;
    check_free_space(plan, paths, &trace)?;
    let mut outcome = initial_outcome(plan, trace);
    match plan.load.order {
        Order::InTurn => {
            for contender in &plan.contenders {
                if stop.is_requested() {
                    break;
                }
                observer.begin_step(&contender.name, outcome.trace.requests);
                let result =
                    run_contender(plan, contender, &outcome.trace, paths, stop, &|requests| {
                        observer.set_progress(requests);
                    });
                outcome.contenders.push(result);
                outcome.unfinished = Some(incomplete_reason(&outcome, plan));
                observer.contender_ended(&outcome);
            }
        }
        Order::Together => {
            let all = plan.contenders.len() as u64;
            observer.begin_step("all contenders", outcome.trace.requests.saturating_mul(all));
            outcome.contenders = run_together(plan, &outcome.trace, paths, stop, observer);
        }
    }
    if outcome.contenders.is_empty() {
        return Err(LabError::Interrupted);
    }
    outcome.unfinished = stop
        .is_requested()
        .then(|| incomplete_reason(&outcome, plan));
    outcome.machine.load_after = machine::load_average();
    observer.contender_ended(&outcome);
    Ok(outcome)
}

fn run_contender(
    plan: &Plan,
    contender: &Contender,
    trace: &TraceFacts,
    paths: &LabPaths,
    stop: &Stop,
    progress: &(dyn Fn(u64) + Sync),
) -> ContenderOutcome {
    let contender_run = ContenderRun {
        plan,
        contender,
        trace,
        paths,
        stop,
        progress,
    };
    contender_run.run()
}

fn run_together(
    plan: &Plan,
    trace: &TraceFacts,
    paths: &LabPaths,
    stop: &Stop,
    observer: &dyn ProgressObserver,
) -> Vec<ContenderOutcome> {
    let counts: Vec<AtomicU64> = plan.contenders.iter().map(|_| AtomicU64::new(0)).collect();
    let counts = &counts;
    thread::scope(|scope| {
        let runs: Vec<_> = plan
            .contenders
            .iter()
            .zip(counts)
            .map(|(contender, own_count)| {
                scope.spawn(move || {
                    run_contender(plan, contender, trace, paths, stop, &|requests| {
                        own_count.store(requests, Ordering::Relaxed);
                        let all = counts.iter().map(|count| count.load(Ordering::Relaxed));
                        observer.set_progress(all.sum());
                    })
                })
            })
            .collect();
        let results = runs.into_iter().map(thread::ScopedJoinHandle::join);
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn initial_outcome(plan: &Plan, trace: TraceFacts) -> Outcome {
    let load = &plan.load;
    Outcome {
        title: plan.title.clone(),
        about: plan.about.clone(),
        unfinished: None,
        load: LoadFacts {
            connections: load.connections.get(),
            rate: load.rate,
            warmup_requests: load.warmup.of(trace.requests),
            round_trip_ms: load.round_trip.as_secs_f64() * 1e3,
            origin_round_trip_ms: plan.origin_round_trip.as_secs_f64() * 1e3,
            together: load.order == Order::Together,
        },
        trace,
        machine: machine::facts(),
        contenders: Vec::new(),
        comparison: plan.comparison.clone(),
        sources: plan.sources.clone(),
    }
}

/// Returns the reason why the outcome does not cover the whole plan.
fn incomplete_reason(outcome: &Outcome, plan: &Plan) -> String {
    format!(
        "{} of {} contenders have run",
        outcome.contenders.len(),
        plan.contenders.len()
    )
}

/// Checks that disk and memory have enough free space for the caches that exist at the same time, and for a reserve of
/// one eighth of their size.
fn check_free_space(plan: &Plan, paths: &LabPaths, trace: &TraceFacts) -> Result<(), LabError> {
    let bytes =
        |size: Option<crate::plan::Size>| size.map_or(0, |size| size.of(trace.footprint_bytes));
    let needed = |each: &dyn Fn(&Contender) -> u64| {
        let each = plan.contenders.iter().map(each);
        match plan.load.order {
            Order::InTurn => each.max().unwrap_or(0),
            Order::Together => each.fold(0, u64::saturating_add),
        }
    };
    let check = |needed: u64, free: u64, location: &dyn Fn() -> String| {
        if needed.saturating_add(needed / 8) <= free {
            return Ok(());
        }
        Err(LabError::NotEnoughSpace {
            needed: ByteSize(needed),
            location: location(),
            free: ByteSize(free),
        })
    };
    let disk = needed(&|contender| bytes(contender.disk));
    if let (1.., Ok(free)) = (disk, machine::free_bytes(&paths.folder)) {
        check(disk, free, &|| paths.folder.display().to_string())?;
    }
    let memory = needed(&|contender| bytes(contender.memory));
    if let Some(free) = machine::free_memory_bytes() {
        check(memory, free, &|| "memory".to_owned())?;
    }
    // nginx with `memory` has its cache in a folder in /dev/shm.
    let shm_bytes = needed(&|contender| match contender.server {
        Server::Nginx { .. } => bytes(contender.memory),
        _ => 0,
    });
    let shm = std::path::Path::new("/dev/shm");
    if let (1.., Ok(free)) = (shm_bytes, machine::free_bytes(shm)) {
        check(shm_bytes, free, &|| "/dev/shm".to_owned())?;
    }
    Ok(())
}
