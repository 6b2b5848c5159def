//! The disk tier on a disk that loses power at every moment and fails in every way.
//!
//! `history` says what a key may hold after each, `workload` does things to a cache, `crashes` and `faults` are the
//! laws.

mod crashes;
mod faults;
mod history;
mod parity;
mod purges;
mod workload;
