//! Sockets that clients connect to, one of its own for each worker.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

use crate::connection;
use crate::worker::Worker;

/// Binds one socket for each worker, all to the same address, so that the kernel spreads
/// connections over the workers and none waits for another's lock (`SO_REUSEPORT`).
pub(crate) fn bind(addr: SocketAddr, workers: usize) -> io::Result<Vec<StdListener>> {
    let first = bind_one(addr)?;
    // Port 0: the first socket is told its port, the others ask for the same.
    let addr = first.local_addr()?;
    let mut all = vec![first];
    for _ in 1..workers {
        all.push(bind_one(addr)?);
    }
    Ok(all)
}

fn bind_one(addr: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted sockets inherit it: a response's last packet must not wait for an acknowledgement.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts until the future is dropped.
pub(crate) async fn accept(
    worker: Rc<Worker>,
    listener: StdListener,
    tls: Option<Arc<ServerConfig>>,
) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener cannot be watched");
            return;
        }
    };
    let limit = connections_max(&worker);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                worker.counters.accept_errors.one();
                tracing::warn!(%error, "a connection could not be accepted");
                // Out of files or memory: trying again at once would only burn the core.
                if !is_of_connection(&error) {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        if worker.connections.borrow().len() >= limit {
            worker.counters.closed_limit.one();
            continue;
        }
        worker
            .connection_tasks
            .spawn(|member| connection::run(Rc::clone(&worker), stream, peer, tls.clone(), member));
    }
}

/// This worker's share of the limit, rounded up.
fn connections_max(worker: &Worker) -> usize {
    let config = worker.config();
    let all = config.limits.connections_max.get();
    all.div_ceil(config.workers.get())
}

/// Errors of one connection that died before it was accepted.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Connections the kernel holds for a worker that is busy; it caps this at `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
