//! The client of a connection: the facts that all requests of the connection use.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use edgeward_sites::Fields;
use http::{HeaderName, HeaderValue};

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

/// Returns the address of a client. Behind a trusted proxy, this is the last address of `X-Forwarded-For`, which the
/// proxy has added.
pub(crate) fn client_address(peer: IpAddr, peer_is_trusted: bool, fields: &dyn Fields) -> IpAddr {
    let mut address = peer;
    if peer_is_trusted {
        fields.any_line(&X_FORWARDED_FOR, &mut |line| {
            let last = line.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            let text = std::str::from_utf8(last).unwrap_or_default().trim();
            // The last line counts, so the search does not end here.
            address = text.trim_matches(['[', ']']).parse().unwrap_or(peer);
            false
        });
    }
    address
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

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
