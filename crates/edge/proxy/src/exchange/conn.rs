//! The state of a client's connection: its requests under way, its timeouts, and its unsent bytes.
//!
//! A timer for each request would cost more than all other work of the edge. A connection therefore only records the
//! time of its last progress. Four times a second, the worker's sweep compares the times of all its connections with
//! the limits: see [`ConnState::exceeded_limit`].

mod conn_state;
mod holding;
mod http1;
mod http1_state;
mod in_flight;

pub(crate) use conn_state::{CloseRank, ConnState};
pub(crate) use holding::Holding;
pub(crate) use http1::{INTERIM_BYTES_MAX, InterimSink};
pub(crate) use in_flight::InFlight;
