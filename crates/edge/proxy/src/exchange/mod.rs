//! A client's connection and its requests. Modules: `conn` (requests under way and timeouts of a connection), `pieces`
//! (its unsent bytes), `request_body`, `client` (the facts that all its requests share), `canonical` (makes a
//! [`Request`] from a request as received), `request_settings` (the settings of a request, by site and rules),
//! `field_filter` (the fields that no origin gets), `field_edit` (changes of fields by rules), `field_bytes` (fields as
//! bytes), `heads` (limits the memory of heads), `partial_head` (when to parse a head that arrives in pieces),
//! `h2_frames`, `h2_io` and `h2_streams` (the frames of an HTTP/2 connection), `hop` and `node` (requests between the
//! nodes of a fleet), `upgrade` (switches of the protocol).

pub(crate) mod canonical;
mod client;
pub(crate) mod conn;
pub(crate) mod field_bytes;
mod field_edit;
mod field_filter;
pub mod h2_frames;
pub(crate) mod h2_io;
pub(crate) mod h2_streams;
pub(crate) mod heads;
pub(crate) mod hop;
mod node;
pub(crate) mod partial_head;
pub(crate) mod pieces;
mod request;
mod request_body;
mod request_error;
pub(crate) mod request_settings;
mod upgrade;

pub(crate) use crate::observe::causes::CloseReason;
pub(crate) use client::{Client, ClientFacts, StatedClient};
pub(crate) use conn::{ConnState, Holding, InFlight, InterimSink};
pub(crate) use field_edit::FieldEdit;
#[cfg(test)]
pub(crate) use field_filter::FieldFilter;
pub(crate) use field_filter::keep_only;
pub(crate) use request::Request;
pub(crate) use request_body::{BodyError, RequestBody};
pub(crate) use request_error::{Handling, RequestError};
pub(crate) use upgrade::UpgradeRequest;
