//! Runs an experiment: reads the trace, checks the free space, runs the contenders and returns the outcome.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use edgeward_replay::load::Stop;
use edgeward_types::ByteSize;

use crate::machine;
use crate::outcome::{ContenderOutcome, LoadFacts, Outcome, TraceFacts};
use crate::plan::{Contender, Order, Plan, Server};
use crate::source::{Source, TraceError};
use crate::turn::Turn;

/// The paths that an experiment uses.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The path of the `edgeward` binary.
    pub edgeward: PathBuf,
    /// The folder for caches. Each contender's folder in it is removed after its run.
    pub folder: PathBuf,
}

/// Receives the progress of an experiment.
pub trait Watcher: Sync {
    /// A step begins. `what` describes it, and it will process `requests` requests.
    fn begin(&self, what: &str, requests: u64);
    /// The current step has processed this many requests since it began.
    fn at(&self, requests: u64);
    /// Another contender ended, or the experiment ended. `outcome` has the results so far.
    fn so_far(&self, outcome: &Outcome);
}

/// Why an experiment has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The trace has no requests, or reading it failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The caches do not fit on the disk or in memory.
    #[error("the caches need {needed}, but {place} has only {free} free")]
    NoRoom {
        /// Bytes needed at the same time.
        needed: ByteSize,
        /// The folder that is too small, or `memory`.
        place: String,
        /// Free bytes.
        free: ByteSize,
    },
    /// A stop was requested before the first contender completed.
    #[error("interrupted before any contender ran")]
    Interrupted,
}

/// Runs the plan. If a contender does not start or fails, the outcome says so, and the other contenders still run.
///
/// # Errors
///
/// Returns an error if no contender can run at all.
pub fn run(
    plan: &Plan,
    bench: &Bench,
    stop: &Stop,
    watcher: &dyn Watcher,
) -> Result<Outcome, LabError> {
    let source = Source::new(&plan.trace);
    watcher.begin("reading the trace", plan.trace.requests);
    let trace = source.facts(|requests| watcher.at(requests))?;
    check_room(plan, bench, &trace)?;
    let mut outcome = begun(plan, trace);
    match plan.load.order {
        Order::InTurn => {
            for contender in &plan.contenders {
                if stop.is_asked() {
                    break;
                }
                watcher.begin(&contender.name, outcome.trace.requests);
                let had = take(plan, contender, &outcome.trace, bench, stop, &|requests| {
                    watcher.at(requests);
                });
                outcome.contenders.push(had);
                outcome.unfinished = Some(said_so_far(&outcome, plan));
                watcher.so_far(&outcome);
            }
        }
        Order::Together => {
            let all = plan.contenders.len() as u64;
            watcher.begin("all together", outcome.trace.requests.saturating_mul(all));
            outcome.contenders = together(plan, &outcome.trace, bench, stop, watcher);
        }
    }
    if outcome.contenders.is_empty() {
        return Err(LabError::Interrupted);
    }
    outcome.unfinished = stop.is_asked().then(|| said_so_far(&outcome, plan));
    outcome.machine.load_after = machine::load_average();
    watcher.so_far(&outcome);
    Ok(outcome)
}

fn take(
    plan: &Plan,
    contender: &Contender,
    trace: &TraceFacts,
    bench: &Bench,
    stop: &Stop,
    progress: &(dyn Fn(u64) + Sync),
) -> ContenderOutcome {
    let turn = Turn {
        plan,
        contender,
        trace,
        bench,
        stop,
        progress,
    };
    turn.take()
}

fn together(
    plan: &Plan,
    trace: &TraceFacts,
    bench: &Bench,
    stop: &Stop,
    watcher: &dyn Watcher,
) -> Vec<ContenderOutcome> {
    let done: Vec<AtomicU64> = plan.contenders.iter().map(|_| AtomicU64::new(0)).collect();
    let done = &done;
    thread::scope(|scope| {
        let turns: Vec<_> = plan
            .contenders
            .iter()
            .zip(done)
            .map(|(contender, mine)| {
                scope.spawn(move || {
                    take(plan, contender, trace, bench, stop, &|requests| {
                        mine.store(requests, Ordering::Relaxed);
                        let all = done.iter().map(|one| one.load(Ordering::Relaxed));
                        watcher.at(all.sum());
                    })
                })
            })
            .collect();
        let had = turns.into_iter().map(thread::ScopedJoinHandle::join);
        had.map(|turn| turn.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn begun(plan: &Plan, trace: TraceFacts) -> Outcome {
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
        compare: plan.compare.clone(),
        sources: plan.sources.clone(),
    }
}

/// Returns the reason why the outcome does not cover the whole plan.
fn said_so_far(outcome: &Outcome, plan: &Plan) -> String {
    format!(
        "{} of {} contenders have run",
        outcome.contenders.len(),
        plan.contenders.len()
    )
}

/// Checks that disk and memory have room for the caches that exist at the same time, with a reserve.
fn check_room(plan: &Plan, bench: &Bench, trace: &TraceFacts) -> Result<(), LabError> {
    let of =
        |size: Option<crate::plan::Size>| size.map_or(0, |size| size.of(trace.footprint_bytes));
    let needed = |each: &dyn Fn(&Contender) -> u64| {
        let each = plan.contenders.iter().map(each);
        match plan.load.order {
            Order::InTurn => each.max().unwrap_or(0),
            Order::Together => each.fold(0, u64::saturating_add),
        }
    };
    let check = |needed: u64, free: u64, place: &dyn Fn() -> String| {
        if needed.saturating_add(needed / 8) <= free {
            return Ok(());
        }
        Err(LabError::NoRoom {
            needed: ByteSize(needed),
            place: place(),
            free: ByteSize(free),
        })
    };
    let disk = needed(&|contender| of(contender.disk));
    if let (1.., Ok(free)) = (disk, machine::free_bytes(&bench.folder)) {
        check(disk, free, &|| bench.folder.display().to_string())?;
    }
    let memory = needed(&|contender| of(contender.memory));
    if let Some(free) = machine::free_memory_bytes() {
        check(memory, free, &|| "memory".to_owned())?;
    }
    let files = needed(&|contender| match contender.server {
        Server::Nginx { .. } => of(contender.memory),
        _ => 0,
    });
    let shm = std::path::Path::new("/dev/shm");
    if let (1.., Ok(free)) = (files, machine::free_bytes(shm)) {
        check(files, free, &|| "/dev/shm".to_owned())?;
    }
    Ok(())
}
