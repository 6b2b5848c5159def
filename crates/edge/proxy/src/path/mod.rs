//! The request path: looks a request up, then answers it from the cache, fetches the response, passes or refuses it.

mod ahead; // how fast bodies are read ahead of their clients
mod ask; // asks the origin, and applies the rules on its response
pub(crate) mod body; // the body of a response, from memory, disk or the origin
mod bucket; // requests to a bucket of S3
pub(crate) mod coding_choice; // the codings that a request accepts
pub(crate) mod connections; // the client connections of a worker
pub(crate) mod copies; // copies of hot objects that other nodes of the fleet own
mod copy_hits; // hits on these copies
mod debug_faults; // faults for tests of debug builds
mod deliver; // builds responses to clients
pub(crate) mod delivery; // bodies on their way to clients that may stop reading
mod detachable; // exchanges that may continue without their client
mod dictionary; // dictionaries of clients, and deltas by them
pub(crate) mod encoded; // responses in a coding that the edge applies
pub(crate) mod explain; // explains the decisions for a request
mod fetch; // answers misses; requests for one key share a fetch
pub(crate) mod fleet; // the members of the fleet, and the placement of keys
pub(crate) mod inspect; // shows stored responses
mod invalidate; // requests with unsafe methods, which invalidate stored responses
mod judge; // the decisions of a lookup
pub(crate) mod lookup;
mod open_observation;
mod other_variants; // variants of other clients that answer a request
mod parts; // the body of a 206 with several ranges
mod pass; // requests that bypass the cache
mod peer; // asks another node of the fleet
mod purge; // the methods PURGE and BAN
mod question; // a request to the origin, and the answer
mod range_reply; // 206 and 416
mod relief; // closes the connections that hold most memory
mod replace;
pub(crate) mod response_texts;
mod revalidate; // updates stored responses after a 304
pub(crate) mod rules; // applies the rules of a site
pub(crate) mod serve; // the entry of the request path
mod sliced_body; // bodies that are stored in slices
mod stale; // stale responses in place of an error
mod storability; // the decision to store a response
pub(crate) mod sweep; // closes what exceeds a limit
pub(crate) mod tunnel; // copies bytes of other protocols
mod tunnels; // the tunnels of a worker
mod unsafe_request; // requests with unsafe methods
mod upgrade; // requests for another protocol
pub(crate) mod worker; // the state that requests share

pub(crate) use serve::{Serving, refuse, serve};
