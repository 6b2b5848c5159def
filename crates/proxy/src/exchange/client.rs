//! The client of a connection: the facts that all requests of the connection use.

use std::net::SocketAddr;
use std::rc::Rc;

use http::HeaderValue;

use super::conn::ConnState;

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) conn: Rc<ConnState>,
    pub(crate) peer: SocketAddr,
    /// The address as a value of `X-Forwarded-For`, formatted once per connection.
    pub(crate) peer_text: HeaderValue,
    pub(crate) tls: bool,
    /// True if the address is one of `forwarding.trusted_proxies`.
    pub(crate) is_trusted: bool,
}

/// The facts about a client that its canonical requests have.
pub(crate) struct ClientFacts<'a> {
    pub(crate) scheme: &'static str,
    pub(crate) peer: SocketAddr,
    pub(crate) peer_text: &'a HeaderValue,
    pub(crate) is_trusted: bool,
}

impl Client {
    pub(crate) const fn facts(&self) -> ClientFacts<'_> {
        ClientFacts {
            scheme: self.scheme(),
            peer: self.peer,
            peer_text: &self.peer_text,
            is_trusted: self.is_trusted,
        }
    }

    pub(crate) const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}
