//! The admin server of an endpoint: metrics, status and health.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use edgeward_httpd::{
    AdminPages, AdminRoutes, Answering, ConnectionCounters, Media, Route, Server, ServerConfig,
};

use crate::status::EndpointStatus;
use crate::{SetupError, metrics};

/// A function that returns the current status of the endpoint.
pub type StatusReport = Arc<dyn Fn() -> Answering<EndpointStatus> + Send + Sync>;

/// The admin server. Dropping this value stops the server.
pub struct Admin {
    addr: SocketAddr,
    /// The listening socket.
    socket: TcpListener,
    _stop: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Admin {
    /// Starts the server on the current Tokio runtime.
    pub async fn bind(addr: SocketAddr, report: StatusReport) -> Result<Self, SetupError> {
        let listen = |source| SetupError::Listen { addr, source };
        Self::serve(TcpListener::bind(addr).map_err(listen)?, report)
    }

    /// Starts the server with a socket that listens already. Must be called within a Tokio runtime.
    pub fn serve(listener: TcpListener, report: StatusReport) -> Result<Self, SetupError> {
        let addr = listener.local_addr().map_err(SetupError::Socket)?;
        let socket = listener.try_clone().map_err(SetupError::Socket)?;
        listener.set_nonblocking(true).map_err(SetupError::Socket)?;
        let (stop, stopping) = watch::channel(false);
        let server = Server {
            handler: AdminRoutes(Pages(report)),
            config: ServerConfig::ADMIN,
            counters: Arc::new(ConnectionCounters::default()),
            stopping,
            tls: None,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run(listener));
        Ok(Self {
            addr,
            socket,
            _stop: stop,
            _tasks: tasks,
        })
    }

    /// Returns the address of the listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns a copy of the listening socket, for [`serve`](Self::serve) in another process.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        Ok(self.socket.try_clone()?.into())
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("addr", &self.addr).finish()
    }
}

#[derive(Clone)]
struct Pages(StatusReport);

impl AdminPages for Pages {
    const ROUTES: &'static [Route<Self>] = &[
        Route::compose("/metrics", Media::Metrics, |pages| {
            Box::pin(async move { metrics::render(&(pages.0)().await) })
        }),
        Route::compose("/status", Media::Json, |pages| {
            Box::pin(async move { format!("{:#}\n", (pages.0)().await.to_json()) })
        }),
    ];
}
