//! The origin as a worker sees it: connections of its own, bounded, kept and timed.

mod body;
mod connect;
mod dial;
mod error;
mod h1;
mod health;
mod lease;
mod pool;
mod queue;
mod wait;

pub(crate) use body::OriginBody;
pub(crate) use connect::Connector;
pub use connect::ConnectorError;
pub use dial::{Dial, DialedStream};
pub(crate) use error::OriginError;
pub(crate) use h1::{Fields, Lines, check_response_head, read_chunked};
pub(crate) use health::OriginHealth;
pub(crate) use lease::Unfinished;
pub(crate) use pool::{Attempt, OriginPool, Received};
