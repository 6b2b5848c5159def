//! The synthetic origin: `/o/<id>?size=N` returns N bytes that are a function of the id.
//!
//! The origin stores nothing, so it can serve a trace of any size. Each worker has a current-thread runtime and its
//! own listener on the same port (`SO_REUSEPORT`). The kernel distributes the connections, and the workers share only
//! counters.
//!
//! `request` parses a request and `response` computes the response (both pure). `body` generates the bytes while they
//! are sent.

mod body;
mod config;
mod request;
mod response;
mod server;
mod stats;

pub use config::OriginConfig;
pub use request::OriginRequestError;
pub use server::{RunningOrigin, StartError, SyntheticOrigin};
pub use stats::{OriginCounts, OriginStats};

/// The size of the largest object: 2^40 bytes, one tebibyte.
///
/// The number has thirteen decimal digits. Entity tags are padded for thirteen digits, so that the heads of all
/// responses have the same length.
pub const OBJECT_BYTES_MAX: u64 = 1 << 40;
