//! HTTP/3. quinn has the transport (QUIC) and its encryption, the crate `h3` has the rules of the protocol. This module
//! moves bytes between them and the request path.
//!
//! A worker has an [`endpoint`] for each listener with HTTP/3. Each connection has a task (`connection`), and so has
//! each request (`request`), because the streams of QUIC are independent. A request is read by `request_reader`, which
//! is also the body of an upload. Its response is sent by `responder`, and
//! the bytes of a WebSocket by `tunnel`.
//!
//! The kernel gives a datagram to the worker of its connection ([`steering`]). After an upgrade, it may belong to an
//! endpoint of another process, or of another worker. Its connection id names the endpoint of its connection
//! ([`connection_id`]), and [`routes`] pass it on.

mod attempt; // which attempts to open a connection are accepted
pub(crate) mod bound; // the sockets of a listener
mod connection;
pub(crate) mod connection_id; // the endpoint of a connection by its ids
pub(crate) mod endpoint;
pub(crate) mod forwarded; // datagrams on their way to another endpoint
mod frame_flood; // how many frames without content a client may send
mod keep_alive; // when a frame keeps a connection open
pub(crate) mod quic_keys;
mod receive_window; // how many bytes a client may send ahead
mod request;
mod request_reader;
mod responder;
pub(crate) mod routes; // datagrams reach the endpoint of their connection
pub(crate) mod socket; // the socket of an endpoint
mod state; // the state that the tasks of a connection share
mod steering; // the kernel's choice among the sockets of a listener
mod tunnel;
