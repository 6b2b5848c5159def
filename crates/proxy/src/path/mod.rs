//! The request path: a request is looked up, and then answered from the cache, fetched from the origin, passed or refused.

pub(crate) mod body;
mod connections;
mod deliver;
mod delivery;
mod disk_hit;
mod fetch;
mod invalidate;
mod lookup;
mod pass;
mod revalidate;
pub(crate) mod serve;
pub(crate) mod sweep;
pub(crate) mod worker;

pub(crate) use disk_hit::{Plain, disk_hit_body, plain};
pub(crate) use serve::{Serving, refuse, serve, serve_bodiless};
