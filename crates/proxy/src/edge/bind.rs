//! Binds the listeners of an edge and reads their certificates.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use rustls::ServerConfig;

use super::start_error::StartError;
use crate::base::config::EdgeConfig;
use crate::base::tls::{self, ListenerKeys, SiteKeys};
use crate::client::listener;

/// The sockets of one worker, with the TLS configurations of their listeners.
pub(super) type WorkerListeners = Vec<(StdListener, Option<Arc<ServerConfig>>)>;

/// The bound listeners.
pub(super) struct Bound {
    pub(super) listeners: Vec<WorkerListeners>,
    /// The addresses by listener.
    pub(super) addrs: Vec<SocketAddr>,
    /// The certificates by listener.
    pub(super) keys: Vec<Option<Arc<ListenerKeys>>>,
}

/// Binds one socket for each worker and listener.
pub(super) fn bind_all(config: &EdgeConfig) -> Result<Bound, StartError> {
    let workers = config.workers.get();
    let site_keys = SiteKeys::read(&config.site_certificates);
    let site_keys = Arc::new(site_keys.map_err(|source| StartError::SiteTls {
        source: Box::new(source),
    })?);
    let mut listeners: Vec<WorkerListeners> = (0..workers).map(|_| Vec::new()).collect();
    let mut addrs: Vec<SocketAddr> = Vec::new();
    let mut keys = Vec::new();
    for listener in &config.listeners {
        let addr = listener.addr;
        let listen_error = |source| StartError::Listen { addr, source };
        let tls_error = |error| StartError::Tls {
            addr,
            source: Box::new(error),
        };
        let listener_keys = match &listener.tls {
            Some(files) => Some(Arc::new(
                ListenerKeys::read(files, &site_keys).map_err(tls_error)?,
            )),
            None => None,
        };
        let tls = match &listener_keys {
            Some(keys) => Some(Arc::new(tls::server_config(keys).map_err(tls_error)?)),
            None => None,
        };
        keys.push(listener_keys);
        // An address such as 0.0.0.0 or [::] includes other addresses of the edge with the same port. Therefore only
        // the first listener of a port refuses to share the port; later ones share it with the first.
        let is_of_port = |known: &&SocketAddr| addr.port() != 0 && known.port() == addr.port();
        let shared = config.share_ports || addrs.iter().any(|known| is_of_port(&known));
        let sockets = listener::bind(addr, workers, shared).map_err(listen_error)?;
        addrs.push(sockets[0].local_addr().map_err(listen_error)?);
        for (worker_sockets, socket) in listeners.iter_mut().zip(sockets) {
            worker_sockets.push((socket, tls.clone()));
        }
    }
    Ok(Bound {
        listeners,
        addrs,
        keys,
    })
}
