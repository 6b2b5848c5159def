//! Binds the listeners of an edge and reads their certificates.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use rustls::ServerConfig;

use super::inherit::InheritedSockets;
use super::start_error::StartError;
use crate::base::config::{EdgeConfig, ListenerConfig};
use crate::base::tls::{self, ListenerKeys, SiteKeys};
use crate::client::listener;

/// A listener with its sockets.
#[derive(Debug)]
pub(super) struct BoundListener {
    /// The number of the listener in this process. It distinguishes listeners that follow each other at one address.
    pub(super) id: u64,
    /// The address of the configuration.
    pub(super) configured: SocketAddr,
    /// The address on which the sockets listen.
    pub(super) addr: SocketAddr,
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// The certificates. `None` without TLS.
    pub(super) keys: Option<Arc<ListenerKeys>>,
    /// The sockets of each worker. Sockets that come from another process may be more than there are workers.
    pub(super) sockets: Vec<Vec<StdListener>>,
}

/// Binds the sockets of all listeners, or takes them from `inherited`.
pub(super) fn bind_all(
    config: &EdgeConfig,
    inherited: &mut InheritedSockets,
) -> Result<Vec<Arc<BoundListener>>, StartError> {
    bind_more(config, &[], 0, inherited)
}

/// Returns a listener for each one of the configuration: one of `present` with the same address and the same kind, or
/// else a new one. New listeners are numbered from `next_id` on.
pub(super) fn bind_more(
    config: &EdgeConfig,
    present: &[Arc<BoundListener>],
    next_id: u64,
    inherited: &mut InheritedSockets,
) -> Result<Vec<Arc<BoundListener>>, StartError> {
    let site_keys = SiteKeys::read(&config.site_certificates);
    let site_keys = Arc::new(site_keys.map_err(|source| StartError::SiteTls {
        source: Box::new(source),
    })?);
    let mut bound: Vec<Arc<BoundListener>> = Vec::new();
    for listener in &config.listeners {
        // Each port 0 of the configuration is another listener.
        let is_unused = |known: &&Arc<BoundListener>| !bound.iter().any(|b| b.id == known.id);
        let mut present = present.iter().filter(is_unused);
        let known = present.find(|known| {
            known.configured == listener.addr && known.tls.is_some() == listener.tls.is_some()
        });
        bound.push(match known {
            Some(known) => Arc::clone(known),
            None => {
                let id = next_id + bound.len() as u64;
                Arc::new(bind(config, listener, id, &bound, &site_keys, inherited)?)
            }
        });
    }
    Ok(bound)
}

fn bind(
    config: &EdgeConfig,
    listener: &ListenerConfig,
    id: u64,
    earlier: &[Arc<BoundListener>],
    site_keys: &Arc<SiteKeys>,
    inherited: &mut InheritedSockets,
) -> Result<BoundListener, StartError> {
    let workers = config.workers.get();
    let addr = listener.addr;
    let listen_error = |source| StartError::Listen { addr, source };
    let tls_error = |error| StartError::Tls {
        addr,
        source: Box::new(error),
    };
    let keys = match &listener.tls {
        Some(files) => Some(Arc::new(
            ListenerKeys::read(files, site_keys).map_err(tls_error)?,
        )),
        None => None,
    };
    let tls = match &keys {
        Some(keys) => Some(Arc::new(tls::server_config(keys).map_err(tls_error)?)),
        None => None,
    };
    let taken = inherited.take(&addr.to_string());
    let sockets = if taken.is_empty() {
        // An address such as 0.0.0.0 or [::] includes other addresses of the edge with the same port. Therefore only
        // the first listener of a port refuses to share the port; later ones share it with the first.
        let is_of_port =
            |known: &Arc<BoundListener>| addr.port() != 0 && known.addr.port() == addr.port();
        let shared = config.share_ports || earlier.iter().any(is_of_port);
        let sockets = listener::bind(addr, workers, shared).map_err(listen_error)?;
        sockets.into_iter().map(|socket| vec![socket]).collect()
    } else {
        listener::adopt(taken, workers).map_err(listen_error)?
    };
    let of_first: &Vec<StdListener> = &sockets[0];
    Ok(BoundListener {
        id,
        configured: addr,
        addr: of_first[0].local_addr().map_err(listen_error)?,
        tls,
        keys,
        sockets,
    })
}
