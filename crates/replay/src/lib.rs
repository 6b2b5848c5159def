//! A synthetic origin, a load generator that checks every byte, a monitor of the target's resources.
//!
//! The three belong together through [`Pattern`]: an object's bytes are a pure function of
//! its id and the offset. So [`origin`] serves a trace of terabytes out of nothing, and
//! [`load`] knows what every byte it receives must be, without having it either. Between
//! the two stands whatever is tested: a cache of ours or anybody's. [`monitor`] watches the
//! target's process meanwhile, so that a hit ratio comes with what it cost.
//!
//! What is measured where, the units and the JSON are described in `docs/how-to/replay.md`.
#![forbid(unsafe_code)]

pub mod load;
mod mix;
pub mod monitor;
pub mod origin;
mod pattern;
mod report;

pub use pattern::Pattern;
pub use report::{
    ClassReport, ClientReport, LatencyMs, PacingReport, PlanReport, ReplayReport, Throughput,
};
