//! Keeps bytes under a key within a budget. Threads, no async, no HTTP.
//!
//! [`hot`] is the RAM tier. What is worth keeping is decided by `edgeward-policy`; this crate
//! carries the decisions out, holds the values and owns the locks.
#![forbid(unsafe_code)]

pub mod hot;
mod sync;
