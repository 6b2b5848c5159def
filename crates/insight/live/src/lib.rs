//! The analysis of the requests of a running edge, in bounded memory.
//!
//! The crate decides only: requests and times are arguments, and results are values. `cli` passes it the samples of the
//! edge's workers and shows the results.
//!
//! - [`advise`]: the change of configuration that they recommend.
//! - [`faults`]: caching faults, and the rules that mend them.
//! - [`top`]: the URLs with the most requests, bytes and misses.
//! - [`what_if`]: the hit ratios that other sizes and policies would have.
#![forbid(unsafe_code)]

pub mod advise;
pub mod faults;
mod mini; // a small cache that follows the sample
pub mod top;
pub mod what_if;
mod window; // counts of the last hour
