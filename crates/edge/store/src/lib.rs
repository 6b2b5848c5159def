//! Stores values under keys, in memory and on disk, each within a byte budget. The crate uses threads, no async
//! runtime and no HTTP.
//!
//! [`hot`] is the RAM tier. [`arena`] holds its large bodies. [`disk`] is the segment log below the RAM tier.
//! `edgeward-policy` decides which objects are kept; this crate implements the decisions, stores the values and
//! owns the locks. [`hot_list`] lists the objects in RAM for the next process. [`versions`] drops a change that was
//! decided before the stored object changed. [`purges`] answers if an object is purged.

pub mod arena;
pub mod disk;
pub mod hot;
pub mod hot_list;
#[cfg(all(test, feature = "shuttle"))]
mod model;
pub mod purges;
mod sync;
pub mod versions;
