//! Tests of the disk tier on a simulated disk that loses power at any moment and fails in many ways.
//!
//! `history` states which objects a cache may return for a key, and `workload` runs operations on a cache. The
//! other modules contain the tests.

mod crashes;
mod faults;
mod history;
mod purges;
mod same_as_simulator;
mod workload;
