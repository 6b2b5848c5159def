//! The client of a connection: the facts that all requests of the connection use.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use edgeward_semantics::ForwardedClient;
use edgeward_sites::Fields;
use http::header::FORWARDED;
use http::{HeaderName, HeaderValue};

use super::conn::ConnState;
use crate::base::config::{ClientField, EdgeConfig, ForwardingConfig, Networks};

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

/// How the address of a client behind trusted proxies is found.
#[derive(Clone, Debug)]
pub(crate) struct ClientSource {
    proxies: Networks,
    field: ClientField,
}

impl ClientSource {
    pub(crate) fn new(config: &ForwardingConfig) -> Self {
        Self {
            proxies: config.trusted_proxies.clone(),
            field: config.client_field,
        }
    }

    /// Returns the address of the client of a request: the rightmost address in the field that is not a trusted proxy,
    /// or the peer if it is not trusted.
    pub(crate) fn address(&self, peer: IpAddr, is_trusted: bool, fields: &dyn Fields) -> IpAddr {
        if !is_trusted {
            return peer;
        }
        let mut client = ForwardedClient::default();
        let is_proxy = |address| self.proxies.contains(address);
        match self.field {
            ClientField::None => {}
            ClientField::XForwardedFor => {
                fields.any_line(&X_FORWARDED_FOR, &mut |line| {
                    client.add_x_forwarded_for(line, is_proxy);
                    false // all lines count
                });
            }
            ClientField::Forwarded => {
                fields.any_line(&FORWARDED, &mut |line| {
                    client.add_forwarded(line, is_proxy);
                    false
                });
            }
        }
        client.address().unwrap_or(peer)
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

impl Client {
    pub(crate) fn new(
        conn: &Rc<ConnState>,
        peer: SocketAddr,
        tls: bool,
        config: &EdgeConfig,
    ) -> Self {
        Self {
            conn: Rc::clone(conn),
            peer,
            peer_text: HeaderValue::try_from(peer.ip().to_canonical().to_string())
                .expect("an address is ASCII"),
            tls,
            is_trusted: config.forwarding.trusted_proxies.contains(peer.ip()),
        }
    }

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
