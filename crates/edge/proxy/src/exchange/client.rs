//! The client of a connection: the facts that all requests of the connection use.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use edgeward_semantics::ForwardedClient;
use edgeward_sites::Fields;
use edgeward_types::ClientNet;
use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::NamedGroup;

use super::conn::ConnState;
use super::field_filter::CLIENT_ADDRESS_FIELDS;
use crate::config::{ClientField, EdgeConfig, ForwardingConfig, LimitsConfig, Networks};
use crate::observe::causes::KeyExchange;
use crate::observe::counters::Counters;

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) conn: Rc<ConnState>,
    pub(crate) peer: SocketAddr,
    /// The address as a value of `X-Forwarded-For`, formatted once per connection.
    pub(crate) peer_text: HeaderValue,
    /// True if the edge itself speaks TLS on the connection.
    pub(crate) tls: bool,
    /// `Some` after the handshake of a connection on which the edge speaks TLS.
    pub(crate) key_exchange: Option<KeyExchange>,
    /// The scheme by which the peer, or the client that a PROXY header names, has connected.
    pub(crate) scheme: &'static str,
    /// True if the address is one of `forwarding.trusted_proxies`.
    pub(crate) is_trusted: bool,
    /// True if the peer is a node of the fleet.
    pub(crate) is_node: bool,
}

/// The facts about a client that its canonical requests have.
pub(crate) struct ClientFacts<'a> {
    pub(crate) scheme: &'static str,
    pub(crate) key_exchange: Option<KeyExchange>,
    pub(crate) peer: SocketAddr,
    pub(crate) peer_text: &'a HeaderValue,
    pub(crate) is_trusted: bool,
    /// True if the peer is a node of the fleet.
    pub(crate) is_node: bool,
}

/// The client of a request: the peer, or the client that trusted proxies state.
///
/// The scheme counts everywhere: in the key, in rules and templates, in redirects, and in the fields that the origin
/// gets. An origin that redirects `http` to `https` would otherwise redirect for ever behind a proxy that ends TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatedClient {
    pub(crate) address: IpAddr,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
}

/// How address and scheme of a client behind trusted proxies are found.
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

    /// Returns the client of a request: that of the rightmost address in the field that is not a trusted proxy, or the
    /// peer if it is not trusted. If the proxies state no scheme, the scheme of the connection counts.
    pub(crate) fn find(&self, client: &ClientFacts<'_>, fields: &dyn Fields) -> StatedClient {
        let mut found = StatedClient {
            address: client.peer.ip(),
            scheme: client.scheme,
        };
        if !client.is_trusted {
            return found;
        }
        let is_forwarded = self.field == ClientField::Forwarded;
        let chain = if is_forwarded {
            self.forwarded(fields)
        } else {
            self.x_forwarded_for(fields)
        };
        if self.field != ClientField::None {
            found.address = chain.address().unwrap_or(found.address);
        }
        let by_proto = || {
            let mut lines = Vec::new();
            fields.any_line(&X_FORWARDED_PROTO, &mut |line| {
                lines.push(line.to_vec());
                false // all lines count
            });
            chain.scheme_in(lines.iter().map(Vec::as_slice))
        };
        let scheme = if is_forwarded {
            chain.scheme().or_else(by_proto)
        } else {
            by_proto().or_else(|| self.forwarded(fields).scheme())
        };
        found.scheme = scheme.unwrap_or(found.scheme);
        found
    }

    fn x_forwarded_for(&self, fields: &dyn Fields) -> ForwardedClient {
        let mut client = ForwardedClient::default();
        fields.any_line(&X_FORWARDED_FOR, &mut |line| {
            client.add_x_forwarded_for(line, |address| self.proxies.contains(address));
            false // all lines count
        });
        client
    }

    fn forwarded(&self, fields: &dyn Fields) -> ForwardedClient {
        let mut client = ForwardedClient::default();
        fields.any_line(&FORWARDED, &mut |line| {
            client.add_forwarded(line, |address| self.proxies.contains(address));
            false
        });
        client
    }
}

impl ClientSource {
    /// Returns the clients that the fields of a request state, as received: the rightmost address of `X-Forwarded-For`
    /// and of `Forwarded` that is not a trusted proxy, and the address in each of the fields that have only one. `None`
    /// stands for a field whose last member is no address.
    pub(crate) fn stated_clients(&self, received: &HeaderMap) -> Vec<Option<IpAddr>> {
        let is_proxy = |address| self.proxies.contains(address);
        let mut clients = Vec::new();
        for name in CLIENT_ADDRESS_FIELDS {
            let mut client = ForwardedClient::default();
            let mut is_stated = false;
            for line in received.get_all(name) {
                is_stated = true;
                match name {
                    "forwarded" => client.add_forwarded(line.as_bytes(), is_proxy),
                    _ => client.add_x_forwarded_for(line.as_bytes(), is_proxy),
                }
            }
            if is_stated {
                clients.push(client.address());
            }
        }
        clients
    }
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

impl Client {
    pub(crate) fn new(
        conn: &Rc<ConnState>,
        peer: SocketAddr,
        tls: bool,
        config: &EdgeConfig,
    ) -> Self {
        conn.set_net(ClientNet::from(peer.ip()));
        Self {
            conn: Rc::clone(conn),
            peer,
            peer_text: HeaderValue::try_from(peer.ip().to_canonical().to_string())
                .expect("an address is ASCII"),
            tls,
            key_exchange: None,
            scheme: if tls { "https" } else { "http" },
            is_trusted: config.forwarding.trusted_proxies.contains(peer.ip()),
            is_node: false,
        }
    }

    /// States that the client has used TLS to connect to the proxy that sent the PROXY header.
    pub(crate) fn set_proxied_tls(&mut self, tls: bool) {
        if tls {
            self.scheme = "https";
        }
    }

    /// Counts and states the key exchange of the connection.
    pub(crate) fn set_key_exchange(&mut self, group: Option<NamedGroup>, counters: &Counters) {
        let key_exchange = KeyExchange::of(group);
        counters.client_key_exchanges[key_exchange].increment();
        self.key_exchange = Some(key_exchange);
    }

    /// States that the peer is a node of the fleet, which has checked its client's fields.
    pub(crate) fn set_node(&mut self) {
        self.is_node = true;
        self.is_trusted = true;
    }

    /// Returns the limits of the connection.
    pub(crate) fn limits<'a>(&self, limits: &'a LimitsConfig) -> Cow<'a, LimitsConfig> {
        match self.is_node {
            true => Cow::Owned(limits.for_node()),
            false => Cow::Borrowed(limits),
        }
    }

    pub(crate) const fn facts(&self) -> ClientFacts<'_> {
        ClientFacts {
            scheme: self.scheme,
            key_exchange: self.key_exchange,
            peer: self.peer,
            peer_text: &self.peer_text,
            is_trusted: self.is_trusted,
            is_node: self.is_node,
        }
    }
}
