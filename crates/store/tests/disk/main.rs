//! Tests of the disk tier on a simulated disk that loses power at any moment and fails in many ways.
//!
//! `history` states which objects a key may have, `workload` runs operations on a cache, `crashes` and `faults`
//! are the tests.

mod crashes;
mod faults;
mod history;
mod parity;
mod purges;
mod workload;
