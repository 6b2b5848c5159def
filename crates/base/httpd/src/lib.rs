//! A small HTTP/1.1 server with a limited number of connections.
//!
//! The admin servers of the edge and of the link, and the publisher of id filters, use this server. The edge's
//! own listeners use their own code, which is built for speed.
//!
//! - A [`Server`] at its connection limit closes a connection that waits for its client, to accept a new one.
//!   [`edgeward_types::ConnectionTable`] selects the connection.
//! - There are timeouts for the first byte of a connection, for a request head, and for the client's progress
//!   in reading a response.
//! - A connection waits for its client until the complete request has arrived, with its body. A client with slow bodies
//!   therefore loses places to newer connections, as one with slow heads does.
//! - The server begins the next response of a connection only after it has written the previous one. A client
//!   that sends many requests and reads no response therefore causes little work.
//!
//! Some parts of this crate are also used without the server. [`Slots`] limits a number of connections; the gateway of
//! the link limits its unauthenticated connections with it. [`disable_loopback_pacing`] replaces BBR, a congestion
//! control that costs CPU time on loopback; all listeners of the edge and the link call it. HTTP/3 asks
//! [`is_bbr_default`].
#![forbid(unsafe_code)]

mod access;
mod admin;
mod client_stream;
mod events;
mod listener;
mod pacing;
mod request_body;
mod route;
mod server;
mod slots;
mod token;

pub use access::{Access, AdminToken, Caller, Denied, ParseRolesError, Role, Roles, authorize};
pub use admin::{AdminBody, AdminPages, AdminRoutes, requested_host};
pub use events::{EventStream, Events};
pub use listener::{Accepted, Listener, UNIX_CLIENT, bind_unix};
pub use pacing::{disable_loopback_pacing, is_bbr_default};
pub use request_body::RequestBody;
pub use route::{Answering, Call, File, Media, Route, Run};
pub use server::{ConnectionCounters, Counter, Handler, LocalClient, Server, ServerConfig};
pub use slots::{AcceptedConnection, Slot, Slots};
pub use token::{Token, TokenError};
