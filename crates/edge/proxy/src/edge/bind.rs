//! Binds the listeners of an edge and reads their certificates.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use quinn::crypto::rustls::QuicServerConfig;

use super::inherit::{InheritedSockets, udp_name};
use super::start_error::StartError;
use crate::client::accepted::{TlsTransport, Transport};
use crate::client::h3::bound;
use crate::client::h3::routes::Routes;
use crate::client::h3::socket::EndpointParts;
use crate::client::listener;
use crate::config::{EdgeConfig, ListenAddress, ListenerConfig};
use crate::net::tls::{self, ListenerKeys, SiteKeys};

/// A listener with its sockets.
#[derive(Debug)]
pub(super) struct BoundListener {
    /// The number of the listener in this process. It distinguishes listeners that follow each other at one address.
    pub(super) id: u64,
    /// The address of the configuration.
    pub(super) configured: ListenAddress,
    /// The address on which the sockets listen.
    pub(super) addr: ListenAddress,
    pub(super) transport: Transport,
    /// The file of the authorities of the peers' certificates, if these are required.
    pub(super) node_authorities: Option<PathBuf>,
    /// The certificates. `None` without TLS.
    pub(super) keys: Option<Arc<ListenerKeys>>,
    pub(super) sockets: Sockets,
    /// `Some` if the listener has HTTP/3.
    pub(super) http3: Option<BoundHttp3>,
}

/// HTTP/3 on a listener.
pub(super) struct BoundHttp3 {
    pub(super) crypto: Arc<QuicServerConfig>,
    /// The endpoints of each worker.
    pub(super) endpoints: Vec<Vec<EndpointParts>>,
}

impl std::fmt::Debug for BoundHttp3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BoundHttp3")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

/// The sockets of each worker. Sockets that come from another process may be more than there are workers.
type Sockets = Vec<Vec<OwnedFd>>;

/// Binds the sockets of all listeners, or takes them from `inherited`.
pub(super) fn bind_all(
    config: &EdgeConfig,
    inherited: &mut InheritedSockets,
    routes: &Arc<Routes>,
) -> Result<Vec<Arc<BoundListener>>, StartError> {
    bind_more(config, &[], Some(0), inherited, routes)
}

/// Returns a listener for each one of the configuration: one of `present` with the same address, or else a new one. New
/// listeners are numbered from `next_id` on; if it is `None`, there must be none.
pub(super) fn bind_more(
    config: &EdgeConfig,
    present: &[Arc<BoundListener>],
    next_id: Option<u64>,
    inherited: &mut InheritedSockets,
    routes: &Arc<Routes>,
) -> Result<Vec<Arc<BoundListener>>, StartError> {
    let site_keys = SiteKeys::read(&config.site_certificates, config.certificates.clone());
    let site_keys = Arc::new(site_keys.map_err(|source| StartError::SiteTls {
        source: Box::new(source),
    })?);
    let mut bound: Vec<Arc<BoundListener>> = Vec::new();
    for listener in &config.listeners {
        // Each port 0 of the configuration is another listener.
        let is_unused = |known: &&Arc<BoundListener>| !bound.iter().any(|b| b.id == known.id);
        let mut unused = present.iter().filter(is_unused);
        let known = unused.find(|known| known.configured == listener.addr);
        if let Some(known) = known
            && has_same_transport(known, listener)
        {
            bound.push(Arc::clone(known));
            continue;
        }
        let passed = || StartError::SocketsPassed {
            addr: listener.addr.clone(),
        };
        let id = next_id.ok_or_else(passed)? + bound.len() as u64;
        bound.push(match known {
            Some(known) => {
                // Another protocol on the same sockets, so that no connection is refused.
                let sockets = known.sockets.iter().map(|of_worker| {
                    let copies = of_worker.iter().map(OwnedFd::try_clone);
                    copies.collect::<Result<Vec<_>, _>>()
                });
                let copies = sockets.collect::<Result<Vec<_>, _>>();
                let copies = copies.map_err(|source| listen_error(listener, source))?;
                let udp = bind_udp(config, listener, &known.addr, true, inherited, routes)?;
                Arc::new(listen(listener, id, &site_keys, copies, udp, routes)?)
            }
            None => {
                let earlier = present.iter().chain(&bound).filter_map(|b| b.addr.tcp());
                let earlier: Vec<_> = earlier.collect();
                let is_reload = !present.is_empty();
                let (sockets, udp) =
                    bind(config, listener, &earlier, is_reload, inherited, routes)?;
                Arc::new(listen(listener, id, &site_keys, sockets, udp, routes)?)
            }
        });
    }
    Ok(bound)
}

/// Returns true if connections of a bound listener are read as those of `listener`.
fn has_same_transport(known: &BoundListener, listener: &ListenerConfig) -> bool {
    known.transport.tls.is_some() == listener.has_tls()
        && known.transport.is_for_nodes == listener.is_for_nodes
        && known.node_authorities == listener.node_authorities
        && known.transport.proxies.as_deref() == listener.proxy_protocol_from.as_ref()
        && known.http3.is_some() == listener.http3
}

/// Returns the sockets of a listener, and those of UDP.
fn bind(
    config: &EdgeConfig,
    listener: &ListenerConfig,
    earlier: &[SocketAddr],
    is_reload: bool,
    inherited: &mut InheritedSockets,
    routes: &Routes,
) -> Result<(Sockets, bound::Sockets), StartError> {
    let is_any_port = listener.addr.tcp().is_some_and(|addr| addr.port() == 0);
    let mut further_ports = if is_any_port { PORT_ATTEMPTS - 1 } else { 0 };
    loop {
        let sockets = bind_tcp(config, listener, earlier, inherited)?;
        let addr = address_of(listener, &sockets)?;
        let shared = config.share_ports || is_reload;
        match bind_udp(config, listener, &addr, shared, inherited, routes) {
            // The free port that the kernel has chosen is perhaps not free for UDP.
            Err(_) if further_ports > 0 => further_ports -= 1,
            Err(error) => return Err(error),
            Ok(udp) => return Ok((sockets, udp)),
        }
    }
}

/// Returns the sockets of UDP of a listener with HTTP/3. None for another listener.
fn bind_udp(
    config: &EdgeConfig,
    listener: &ListenerConfig,
    addr: &ListenAddress,
    shared: bool,
    inherited: &mut InheritedSockets,
    routes: &Routes,
) -> Result<bound::Sockets, StartError> {
    let Some(addr) = addr.tcp().filter(|_| listener.http3) else {
        return Ok(Vec::new());
    };
    let workers = config.workers.get();
    let taken = inherited.take(&udp_name(&listener.addr)).into_iter();
    let mut taken: Vec<_> = taken.map(|fd| Arc::new(fd.into())).collect();
    if taken.is_empty() {
        // The endpoints of an earlier configuration may still have connections at the port. With further sockets, the
        // kernel would give these endpoints some of the new connections.
        let open = routes.open_sockets().into_iter().map(|(_, socket)| socket);
        taken.extend(open.filter(|socket| socket.addr() == Some(addr)));
    }
    let sockets = match taken.is_empty() {
        true => bound::bind(addr, workers, shared).map(|bound| {
            bound::steer(&bound[0], workers, addr, config.share_ports);
            bound::each(bound)
        }),
        false => bound::divide(taken, workers),
    };
    sockets.map_err(|source| StartError::ListenUdp {
        addr: listener.addr.clone(),
        source,
    })
}

/// Returns the sockets of workers of which each has one.
fn each(sockets: Vec<OwnedFd>) -> Sockets {
    sockets.into_iter().map(|socket| vec![socket]).collect()
}

/// Returns the address on which sockets listen.
fn address_of(listener: &ListenerConfig, sockets: &Sockets) -> Result<ListenAddress, StartError> {
    match listener::tcp_addr(&sockets[0][0]) {
        Ok(Some(addr)) => Ok(addr.into()),
        Ok(None) => Ok(listener.addr.clone()),
        Err(source) => Err(listen_error(listener, source)),
    }
}

/// Returns the sockets of TCP, or the Unix socket.
fn bind_tcp(
    config: &EdgeConfig,
    listener: &ListenerConfig,
    earlier: &[SocketAddr],
    inherited: &mut InheritedSockets,
) -> Result<Sockets, StartError> {
    let workers = config.workers.get();
    let taken = inherited.take(&listener.addr.to_string());
    let sockets = match &listener.addr {
        _ if !taken.is_empty() => listener::adopt(taken, workers),
        ListenAddress::Unix(path) => listener::bind_path(path, workers).map(each),
        ListenAddress::Tcp(addr) => {
            // An address such as 0.0.0.0 or [::] includes other addresses of the edge with the same port. Therefore
            // only the first listener of a port refuses to share the port; later ones share it with the first.
            let is_of_port = |known: &SocketAddr| addr.port() != 0 && known.port() == addr.port();
            let shared = config.share_ports || earlier.iter().any(is_of_port);
            listener::bind(*addr, workers, shared).map(each)
        }
    };
    sockets.map_err(|source| listen_error(listener, source))
}

fn listen_error(listener: &ListenerConfig, source: io::Error) -> StartError {
    StartError::Listen {
        addr: listener.addr.clone(),
        source,
    }
}

/// Returns the listener of sockets, with its certificate.
fn listen(
    listener: &ListenerConfig,
    id: u64,
    site_keys: &Arc<SiteKeys>,
    sockets: Sockets,
    udp: bound::Sockets,
    routes: &Arc<Routes>,
) -> Result<BoundListener, StartError> {
    let tls_error = |error| StartError::Tls {
        addr: listener.addr.clone(),
        source: Box::new(error),
    };
    let keys = match listener.has_tls() {
        true => {
            let keys = ListenerKeys::read(listener.tls.as_ref(), site_keys);
            Some(Arc::new(keys.map_err(tls_error)?))
        }
        false => None,
    };
    let tls = match &keys {
        Some(keys) => {
            let config = match &listener.node_authorities {
                Some(authorities) => tls::node_config(keys, authorities),
                None => tls::server_config(keys, &tls::ALPN_OF_CLIENTS),
            };
            Some(TlsTransport {
                config: Arc::new(config.map_err(tls_error)?),
                keys: Arc::clone(keys),
            })
        }
        None => None,
    };
    let http3 = match &keys {
        Some(keys) if listener.http3 => {
            let name = udp_name(&listener.addr);
            let endpoints = EndpointParts::of_listener(&name, &udp, routes);
            Some(BoundHttp3 {
                crypto: tls::quic_config(keys).map(Arc::new).map_err(tls_error)?,
                endpoints: endpoints.map_err(|source| StartError::ListenUdp {
                    addr: listener.addr.clone(),
                    source,
                })?,
            })
        }
        _ => None,
    };
    Ok(BoundListener {
        id,
        configured: listener.addr.clone(),
        addr: address_of(listener, &sockets)?,
        transport: Transport {
            tls,
            proxies: listener.proxy_protocol_from.clone().map(Arc::new),
            is_for_nodes: listener.is_for_nodes,
        },
        node_authorities: listener.node_authorities.clone(),
        keys,
        sockets,
        http3,
    })
}

/// The ports that are tried if the kernel chooses: few of them are in use by UDP.
const PORT_ATTEMPTS: usize = 16;
