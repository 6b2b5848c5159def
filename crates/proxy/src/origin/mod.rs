//! The origin side of the edge: a worker's pool of connections to the origin, and the requests sent on them.

mod body;
mod connect;
mod error;
mod expect; // `Expect: 100-continue`
mod h1; // the HTTP/1.1 client
mod health;
mod interim; // interim responses (1xx)
mod lease; // the slots for connections
mod orphans; // fetches that can outlive their clients
mod outbound; // builds the request to the origin
mod pool;
mod queue; // the order of waiting requests, and each client's share of the connections
mod unfinished; // limits the number of unfinished uploads
mod upload; // the body of a request
mod wait; // the wait of one request for a slot, with a timeout

pub(crate) use body::OriginBody;
pub(crate) use connect::Connector;
pub use connect::ConnectorError;
pub(crate) use error::OriginError;
pub use h1::check_response_head;
pub(crate) use h1::{EarlyLinks, read_chunked};
pub(crate) use health::OriginHealth;
pub(crate) use outbound::{Conditions, EdgeInfo, Outbound, as_origin_sees};
pub(crate) use pool::{Attempt, OriginPool, OriginResponse};
pub(crate) use upload::{Upload, UploadProgress};
