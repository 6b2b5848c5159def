//! The request path: looks a request up, then answers it from the cache, fetches the response, passes or refuses it.

pub(crate) mod body;
mod connections; // the client connections of a worker
mod deliver; // builds responses to clients
mod delivery; // bodies on their way to clients
mod detachable; // exchanges that may continue without their client
mod fetch;
mod invalidate;
pub(crate) mod lookup;
mod pass;
mod revalidate;
pub(crate) mod serve;
pub(crate) mod sweep; // closes what exceeds a limit
pub(crate) mod worker;

pub(crate) use serve::{Serving, refuse, serve};
