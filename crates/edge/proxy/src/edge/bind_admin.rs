//! Binds the admin server and reads its certificate.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use edgeward_httpd::bind_unix;
use rustls::ServerConfig;
use socket2::SockRef;

use super::inherit::{ADMIN, InheritedSockets};
use super::start_error::StartError;
use crate::config::{AdminConfig, ListenAddress};
use crate::net::tls::{self, ListenerKeys};

/// The admin server before it starts.
pub(super) struct BoundAdmin {
    /// The address, with the port that the kernel chose.
    pub(super) addr: ListenAddress,
    pub(super) socket: OwnedFd,
    pub(super) keys: Option<Arc<ListenerKeys>>,
    pub(super) tls: Option<Arc<ServerConfig>>,
}

/// Binds the configured address, or takes the socket of the process that this one replaces. An edge does not start if
/// its admin address is in use.
pub(super) fn bind_admin(
    config: &AdminConfig,
    sockets: &mut InheritedSockets,
) -> Result<Option<BoundAdmin>, StartError> {
    let Some(addr) = &config.address else {
        return Ok(None);
    };
    let listen_error = |source| StartError::Listen {
        addr: addr.clone(),
        source,
    };
    let tls_error = |source| StartError::Tls {
        addr: addr.clone(),
        source: Box::new(source),
    };
    let mut inherited = sockets.take(&format!("{ADMIN} {addr}"));
    inherited.extend(sockets.take(&addr.to_string()));
    let socket = match (inherited.pop(), addr) {
        (Some(socket), _) => socket,
        (None, ListenAddress::Unix(path)) => bind_unix(path, MODE).map_err(listen_error)?,
        (None, ListenAddress::Tcp(addr)) => {
            let listener = std::net::TcpListener::bind(addr).map_err(listen_error)?;
            listener.into()
        }
    };
    let options = SockRef::from(&socket);
    options.set_nonblocking(true).map_err(listen_error)?;
    let bound = options.local_addr().map_err(listen_error)?;
    let keys = match &config.tls {
        Some(files) => {
            let keys = ListenerKeys::read(Some(files), &Arc::default());
            Some(Arc::new(keys.map_err(tls_error)?))
        }
        None => None,
    };
    let tls = match &keys {
        Some(keys) => {
            let config = tls::server_config(keys, &[tls::ALPN_HTTP1]);
            Some(Arc::new(config.map_err(tls_error)?))
        }
        None => None,
    };
    Ok(Some(BoundAdmin {
        addr: bound.as_socket().map_or_else(|| addr.clone(), Into::into),
        socket,
        keys,
        tls,
    }))
}

/// The mode of a Unix socket: the users of the edge's group may connect. A request to change something needs a token
/// too.
const MODE: u32 = 0o660;
