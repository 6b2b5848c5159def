//! The admin listener: metrics, status and health, with its own address and thread.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::watch;

use edgeward_httpd::{AdminPages, AdminRoutes, ConnectionCounters, Server, ServerConfig};

use super::{metrics, status};
use crate::path::worker::Shared;

/// A running admin listener. Dropping this value stops the listener and joins its thread.
pub(crate) struct Admin {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Binds the address. An edge does not start if its admin address is in use.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Admin {
    pub(crate) fn start(listener: StdListener, shared: Arc<Shared>) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let (stop, stopping) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let server = Server {
            handler: AdminRoutes(Pages(shared)),
            config: ServerConfig::ADMIN,
            counters: Arc::new(ConnectionCounters::default()),
            stopping,
        };
        let thread = std::thread::Builder::new()
            .name("edgeward-admin".to_owned())
            .spawn(move || runtime.block_on(server.run(listener)))?;
        Ok(Self {
            addr,
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Pages(Arc<Shared>);

impl AdminPages for Pages {
    fn metrics(&self) -> String {
        metrics::render(&self.0)
    }

    fn status(&self) -> String {
        format!("{:#}\n", status::render(&self.0))
    }

    /// Returns true for IP addresses, `localhost` and the configured names. A malicious web site can make its own name
    /// resolve to the admin address (DNS rebinding). Requests of its pages have this name in `Host` and are refused.
    fn is_own_host(&self, host: &str) -> bool {
        let config = &self.0.config;
        let host = host.strip_suffix('.').unwrap_or(host);
        host.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || host.eq_ignore_ascii_case(&config.name)
            || config
                .admin_hosts
                .iter()
                .any(|name| host.eq_ignore_ascii_case(name))
    }
}
