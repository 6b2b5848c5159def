//! The origin side of the edge: a worker's pool of connections to the origin, and the requests sent on them.

mod body;
mod connect;
mod error;
mod expect;
mod h1;
mod health;
mod interim;
mod lease;
mod orphans;
mod outbound;
mod pool;
mod queue;
mod unfinished;
mod upload;
mod wait;

pub(crate) use body::OriginBody;
pub(crate) use connect::Connector;
pub use connect::ConnectorError;
pub(crate) use error::OriginError;
pub use h1::check_response_head;
pub(crate) use h1::read_chunked;
pub(crate) use health::OriginHealth;
pub(crate) use outbound::{Conditions, EdgeInfo, Outbound, as_origin_sees};
pub(crate) use pool::{Attempt, OriginPool, OriginResponse};
pub(crate) use upload::Upload;
