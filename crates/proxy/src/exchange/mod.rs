//! The state of a client's connection, and its requests. Codecs build requests, and the request path handles them.

pub(crate) mod canonical;
mod client;
pub(crate) mod conn;
mod field_filter;
pub(crate) mod heads;
pub(crate) mod pieces;
mod request;
mod request_error;

pub(crate) use client::Client;
pub(crate) use conn::{CloseReason, ConnState, InFlight, InterimSink};
#[cfg(test)]
pub(crate) use field_filter::FieldFilter;
pub(crate) use request::Request;
pub(crate) use request_error::RequestError;
