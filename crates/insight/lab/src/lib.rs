//! The lab runs experiments with caches. A plan describes each experiment, so that the experiment can be repeated.
//!
//! A [`Plan`] has one trace, one load, an origin, and contenders: edgeward with different settings, nginx, Varnish,
//! Apache Traffic Server. [`run()`] runs the contenders one after the other or all at once. Each contender gets a
//! fresh server as a child process and a fresh synthetic origin. The replay sends the trace and verifies every byte
//! of every response. A sampler reads the counters of the server, the replay and the origin each second. The
//! [`Outcome`] contains all results. [`page()`] renders them as a report and shows published figures beside the
//! measured ones.
//!
//! ```text
//! settings:  plan ─▶ recipe ─▶ process
//! requests:  replay ─▶ process ─▶ origin
//! counters:  process, replay, origin ─▶ sampler ─▶ sample ─▶ outcome ─▶ finding, page
//! ```
//!
//! A `recipe` is how one server is configured and started: texts of configuration files and arguments. `replay`
//! and `origin` are parts of the crate `replay`. `finding` states the results in sentences.
//!
//! Another kind of plan is a [`Benchmark`]: servers, loads and goals, measured in rounds. The module `bench` has it.
//!
//! The modules `plan`, `recipe`, `sample`, `outcome`, `figure`, `finding` and `page` are pure: they do no I/O.
//! `process`, `sampler`, `contender_run` and `run` do the I/O. `nginx_capacity` makes nginx evict in time when a
//! replay runs faster than real time.
#![forbid(unsafe_code)]

mod bench;
mod contender_run;
mod figure;
mod finding;
mod machine;
mod nginx_capacity;
mod outcome;
mod page;
mod plan;
mod process;
mod recipe;
mod run;
mod sample;
mod sampler;
mod scratch;
mod settings;
mod source;

pub use bench::{
    Benchmark, BenchmarkError, BenchmarkOutcome, BenchmarkPaths, Counter, CounterValue, Expression,
    Goal, LoadPlan as BenchmarkLoad, LoadRun, Measures, ResourceSample, ServerPlan, Verdict,
    run_benchmark,
};
pub use edgeward_replay::load::Stop;
pub use figure::{ComparisonKind, ComparisonResult, Figure};
pub use finding::findings;
pub use outcome::{ContenderOutcome, LoadFacts, Machine, Outcome, RunEnd, Totals, TraceFacts};
pub use page::page;
pub use plan::{
    Amount, ComparisonPlan, Contender, Generated, LoadPlan, Order, Plan, Problem, Server, Setting,
    SettingValue, SettingsSwitch, Size, SourceFigure, TraceOrigin, TracePlan,
};
/// Reads the TOML file of a plan with positions, for any command with plans.
pub mod plan_file {
    pub use crate::plan::{Entry, Problem, Table, read_document};
}

pub use run::{LabError, LabPaths, ProgressObserver, run};
pub use sample::Sample;
pub use source::TraceError;
