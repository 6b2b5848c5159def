//! Keeps bytes under a key within a budget. Threads, no async, no HTTP.
//!
//! [`hot`] is the RAM tier, [`arena`] where its large bodies lie, [`disk`] the segment log beneath them. What
//! is worth keeping is decided by `edgeward-policy`; this crate carries the decisions out, holds the values and owns
//! the locks.

pub mod arena;
pub mod disk;
pub mod hot;
#[cfg(all(test, feature = "shuttle"))]
mod model;
mod sync;
pub mod versions;
