//! The origin side of the edge: the servers of each origin, a worker's connections to them, and the requests sent on
//! them.

mod adopt; // servers of an earlier configuration
mod body;
mod connect;
mod error;
mod expect; // `Expect: 100-continue`
mod group; // the servers of an origin, with retries
mod h1; // the HTTP/1.1 client
mod health;
mod interim; // interim responses (1xx)
mod lease; // the slots for connections
mod location; // redirects to the origin's own address
mod names;
mod orphans; // fetches that can outlive their clients
mod outbound; // builds the request to the origin
mod pool;
mod pool_h2; // the connections of HTTP/2
mod queue; // the order of waiting requests, and each client's share of the connections
mod s3; // the signatures of requests to buckets
mod servers; // the state of the servers, shared by all workers
mod share_limit; // limits by each client's share
mod switch; // requests for another protocol
mod unfinished; // limits the number of unfinished uploads
mod upload; // the body of a request
mod wait; // the wait of one request for a slot, with a timeout
mod watch; // host names and health checks

pub(crate) use body::OriginBody;
pub use connect::ConnectorError;
pub(crate) use connect::Endpoint;
pub(crate) use error::OriginError;
pub(crate) use group::{GroupParts, OriginGroup};
pub use h1::check_response_head;
pub(crate) use h1::{EarlyLinks, read_chunked};
pub(crate) use orphans::Abandoned;
pub(crate) use outbound::{Conditions, EdgeInfo, Outbound, PeerTarget, as_origin_sees};
pub(crate) use pool::{Attempt, OriginResponse};
pub(crate) use s3::{Signing, is_of_amazon};
pub(crate) use servers::{ServerReport, Servers};
pub(crate) use switch::{SwitchResponse, SwitchedConnection};
pub(crate) use upload::{FilterTrailers, Upload, UploadProgress};
pub(crate) use watch::watch_servers;
