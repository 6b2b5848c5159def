//! A synthetic origin, a load generator that verifies every byte, and a monitor of the target's resources.
//!
//! Origin and load generator share [`Pattern`]: the bytes of an object are a pure function of its id and the offset.
//! [`origin`] can therefore serve a trace of terabytes without storing it, and [`load`] knows each byte that it
//! must receive. The target stands between origin and load generator: edgeward or any other cache. Meanwhile
//! [`monitor`] samples the target's process, so that a report shows the CPU time and memory with which the
//! target reached its hit ratio.
//!
//! [`shadow`] sends the requests of another cache's clients to an edge under test, and compares the answers.
//!
//! `docs/how-to/replay.md` describes the measurements, the units and the JSON.
#![forbid(unsafe_code)]

mod client; // a connection to a server
pub mod load;
mod mix; // deterministic pseudo-random numbers
pub mod monitor;
pub mod origin;
mod pattern;
mod report;
pub mod shadow;

pub use pattern::Pattern;
pub use report::{
    ClassReport, ClientReport, LatencyMs, PacingReport, PlanReport, ReplayReport, Throughput,
};
