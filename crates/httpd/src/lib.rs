//! A small HTTP/1.1 server with bounded connections.
//!
//! The admin servers of the edge and of the link and the publisher of id filters run on it. The edge's own
//! listeners do not: their request path is built for speed. [`disable_loopback_pacing`] is for every listener
//! of the edge and the link.
//!
//! - A full [`Server`] closes a connection that waits for its client ([`edgeward_types::ConnectionTable`]
//!   decides which). The gateway of the link keeps its unauthenticated connections in the same [`Slots`].
//! - A first byte, a request head and the client's progress with a response have deadlines.
//! - The next request of a connection is answered after the previous response was written, so that a client
//!   that sends requests and reads nothing causes no work.
#![forbid(unsafe_code)]

mod admin;
mod client_stream;
mod pacing;
mod server;
mod slots;

pub use admin::{AdminPages, AdminRoutes};
pub use pacing::disable_loopback_pacing;
pub use server::{ConnectionCounters, Counter, Handler, Server, ServerConfig};
pub use slots::{Entered, Slot, Slots};
