//! Binds the listeners of an edge and reads their certificates.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use super::inherit::InheritedSockets;
use super::start_error::StartError;
use crate::client::accepted::{TlsTransport, Transport};
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
    /// The sockets of each worker. Sockets that come from another process may be more than there are workers.
    pub(super) sockets: Vec<Vec<OwnedFd>>,
}

/// Binds the sockets of all listeners, or takes them from `inherited`.
pub(super) fn bind_all(
    config: &EdgeConfig,
    inherited: &mut InheritedSockets,
) -> Result<Vec<Arc<BoundListener>>, StartError> {
    bind_more(config, &[], 0, inherited)
}

/// Returns a listener for each one of the configuration: one of `present` with the same address, or else a new one. New
/// listeners are numbered from `next_id` on.
pub(super) fn bind_more(
    config: &EdgeConfig,
    present: &[Arc<BoundListener>],
    next_id: u64,
    inherited: &mut InheritedSockets,
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
        let id = next_id + bound.len() as u64;
        bound.push(match known {
            Some(known) if has_same_transport(known, listener) => Arc::clone(known),
            Some(known) => {
                // Another protocol on the same sockets, so that no connection is refused.
                let sockets = known.sockets.iter().map(|of_worker| {
                    let copies = of_worker.iter().map(OwnedFd::try_clone);
                    copies.collect::<Result<Vec<_>, _>>()
                });
                let copies = sockets.collect::<Result<Vec<_>, _>>();
                let copies = copies.map_err(|source| listen_error(listener, source))?;
                Arc::new(listen(listener, id, &site_keys, copies)?)
            }
            None => {
                let earlier = present.iter().chain(&bound).filter_map(|b| b.addr.tcp());
                let earlier: Vec<_> = earlier.collect();
                let sockets = bind(config, listener, &earlier, inherited)?;
                Arc::new(listen(listener, id, &site_keys, sockets)?)
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
}

/// Returns the sockets of each worker.
fn bind(
    config: &EdgeConfig,
    listener: &ListenerConfig,
    earlier: &[SocketAddr],
    inherited: &mut InheritedSockets,
) -> Result<Vec<Vec<OwnedFd>>, StartError> {
    let workers = config.workers.get();
    let taken = inherited.take(&listener.addr.to_string());
    let each = |sockets: Vec<OwnedFd>| sockets.into_iter().map(|socket| vec![socket]).collect();
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
    sockets: Vec<Vec<OwnedFd>>,
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
    Ok(BoundListener {
        id,
        configured: listener.addr.clone(),
        addr: match listener::tcp_addr(&sockets[0][0]) {
            Ok(Some(addr)) => addr.into(),
            Ok(None) => listener.addr.clone(),
            Err(source) => return Err(listen_error(listener, source)),
        },
        transport: Transport {
            tls,
            proxies: listener.proxy_protocol_from.clone().map(Arc::new),
            is_for_nodes: listener.is_for_nodes,
        },
        node_authorities: listener.node_authorities.clone(),
        keys,
        sockets,
    })
}
