//! The synthetic origin: `/o/<id>?size=N` answers N bytes that are a function of the id.
//!
//! Nothing is stored, so any trace has an origin, however large. One current-thread runtime
//! per worker, each with its own listener on the same port (`SO_REUSEPORT`), so that the
//! kernel spreads the connections and the workers share nothing but counters.
//!
//! `ask` reads a request, `answer` decides on the response (both pure), `body` makes
//! the bytes while they are sent.

mod answer;
mod ask;
mod body;
mod config;
mod server;
mod stats;

pub use ask::AskError;
pub use config::OriginConfig;
pub use server::{Running, StartError, SyntheticOrigin};
pub use stats::{OriginCounts, OriginStats};

/// The largest object: a terabyte, 2^40 bytes.
///
/// Thirteen decimal digits hold it, which is what the filler in the entity tag counts on.
pub const OBJECT_BYTES_MAX: u64 = 1 << 40;
