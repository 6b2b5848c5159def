//! Keeps bytes under a key within a budget. Threads, no async, no HTTP.
//!
//! [`hot`] is the RAM tier, [`disk`] the segment log beneath it. What is worth keeping is decided by `edgeward-policy`; this crate
//! carries the decisions out, holds the values and owns the locks.
#![forbid(unsafe_code)]

pub mod disk;
pub mod hot;
mod sync;
