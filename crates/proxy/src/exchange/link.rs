//! What is known of the client's side of a connection.

use std::net::SocketAddr;
use std::rc::Rc;

use http::HeaderValue;

use super::conn::ConnState;

/// What is known of the client's side of a connection.
#[derive(Clone)]
pub(crate) struct ClientLink {
    pub(crate) conn: Rc<ConnState>,
    pub(crate) peer: SocketAddr,
    /// The address as `X-Forwarded-For` shows it, written once a connection.
    pub(crate) peer_text: HeaderValue,
    pub(crate) tls: bool,
    /// Whether the peer is one of `forwarding.trusted_proxies`.
    pub(crate) is_trusted: bool,
}

impl ClientLink {
    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}
