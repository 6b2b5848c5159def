//! Benchmarks by plan: servers, loads, rounds in pairs, goals.
//!
//! A [`Benchmark`] starts servers and sends each load to each measured server, in several rounds. In a round, all pairs
//! of a load and a server run once, one after the other, and the order is rotated from round to round. Ratios are
//! formed within a round, so that other activity on the machine affects both sides of a ratio.
//!
//! A load is any command. The output of wrk and h2load is parsed; every other command prints a JSON object, whose
//! numbers become measures. The lab adds the resources of the server's processes and the counters of the plan.
//!
//! `plan`, `read`, `text`, `measure`, `verdict` and `summary` are pure. `server`, `command` and
//! `run` do the I/O.

mod command;
mod measure;
mod plan;
mod read;
mod run;
mod server;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

pub use measure::{Expression, Measures};
pub use plan::{Benchmark, Counter, CounterValue, Goal, LoadPlan, ServerPlan};
pub use run::{BenchmarkError, BenchmarkPaths, run_benchmark};
pub use summary::{BenchmarkOutcome, LoadRun, ResourceSample};
pub use verdict::Verdict;
