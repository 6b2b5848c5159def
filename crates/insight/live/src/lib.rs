//! The analysis of the requests of a running edge, in bounded memory.
//!
//! The crate decides only: requests and times are arguments, and results are values. `cli` passes it the samples of the
//! edge's workers and shows the results.
//!
//! - [`advise`]: the change of configuration that they recommend.
//! - [`disk`]: the hit ratios that other sizes and admission rules of the disk would have.
//! - [`faults`]: caching faults, and the rules that mend them.
//! - [`study`]: the predictions of `what_if` for the requests of a log.
//! - [`top`]: the URLs with the most requests, bytes and misses.
//! - [`what_if`]: the hit ratios that other sizes and policies would have.
#![forbid(unsafe_code)]

pub mod advise;
pub mod disk;
mod estimate; // the estimates that follow from misses
pub mod faults;
mod mini; // a small cache that follows the sample
mod mini_disk; // a small disk tier that follows the sample
pub mod study;
pub mod top;
pub mod what_if;
mod window; // counts of the last hour
