//! The request path: looks a request up, then answers it from the cache, fetches the response, passes or refuses it.

pub(crate) mod body;
mod connections;
mod deliver;
mod delivery;
mod detachable;
mod fetch;
mod invalidate;
pub(crate) mod lookup;
mod pass;
mod revalidate;
pub(crate) mod serve;
pub(crate) mod sweep;
pub(crate) mod worker;

pub(crate) use serve::{Serving, refuse, serve};
