//! Listening sockets, one for each worker and address. The workers share the queue of a Unix socket.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use edgeward_httpd::{Accepted, Listener, UNIX_CLIENT, bind_unix, disable_loopback_pacing};
use edgeward_overload::{Level, Work};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::sync::Notify;

use super::accepted::{self, Transport};
use crate::observe::causes::CloseReason;
use crate::observe::log::SparseLog;
use crate::path::worker::{CurrentWorker, Worker};
use crate::rt::health::Activity;

/// Binds one socket for each worker to the same address (`SO_REUSEPORT`). The kernel distributes connections over the
/// workers, which share no lock.
///
/// With `SO_REUSEPORT` any process of the same user could bind the address too. Unless `shared` is true, the first
/// socket therefore listens before it sets this option. Listening fails if another process listens on the address. If
/// two processes start at the same moment, one of them fails. `SO_REUSEADDR` is always set, so that old connections in
/// TIME_WAIT do not prevent a start.
pub(crate) fn bind(addr: SocketAddr, workers: usize, shared: bool) -> io::Result<Vec<OwnedFd>> {
    let first = if shared {
        bind_one(addr)?
    } else {
        bind_alone(addr)?
    };
    // With port 0 the kernel chooses the port of the first socket, and the others bind the same port.
    let addr = local_addr(&first)?;
    let mut all = vec![first.into()];
    for _ in 1..workers {
        all.push(bind_one(addr)?.into());
    }
    Ok(all)
}

/// Opens a Unix socket, to which every user may connect as to a port of TCP, and returns it once for each worker.
pub(crate) fn bind_path(path: &Path, workers: usize) -> io::Result<Vec<OwnedFd>> {
    let socket = bind_unix(path, UNIX_MODE)?;
    let copies = (1..workers).map(|_| socket.try_clone());
    let mut all = copies.collect::<Result<Vec<_>, _>>()?;
    all.push(socket);
    Ok(all)
}

fn local_addr(socket: &Socket) -> io::Result<SocketAddr> {
    let addr = socket.local_addr()?.as_socket();
    addr.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The address of a listening socket of TCP. `None` for a Unix socket.
pub(crate) fn tcp_addr(socket: &OwnedFd) -> io::Result<Option<SocketAddr>> {
    Ok(SockRef::from(socket).local_addr()?.as_socket())
}

/// Divides sockets of another process between the workers. The process may have another number of workers, or be
/// systemd, which opens one socket for each address. Each socket has a queue of connections of its own, so none is
/// dropped: a worker may have several sockets, and workers may share one.
pub(crate) fn adopt(sockets: Vec<OwnedFd>, workers: usize) -> io::Result<Vec<Vec<OwnedFd>>> {
    let addr = tcp_addr(&sockets[0])?;
    let mut divided: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
    for (socket, worker) in sockets.into_iter().zip((0..workers).cycle()) {
        match addr {
            Some(addr) => set_options(&SockRef::from(&socket), addr)?,
            None => SockRef::from(&socket).set_nonblocking(true)?,
        }
        divided[worker].push(socket);
    }
    for worker in 0..workers {
        if divided[worker].is_empty() {
            // Sockets of systemd or of another user do not share their address, and Unix sockets cannot share one.
            let socket = match addr.and_then(|addr| bind_one(addr).ok()) {
                Some(socket) => socket.into(),
                None => divided[0][0].try_clone()?,
            };
            divided[worker].push(socket);
        }
    }
    Ok(divided)
}

fn bind_one(addr: SocketAddr) -> io::Result<Socket> {
    let socket = new_socket(addr)?;
    socket.set_reuse_port(true)?;
    listen(socket, addr)
}

/// Like [`bind_one`], but fails if another socket listens on the address.
fn bind_alone(addr: SocketAddr) -> io::Result<Socket> {
    let socket = listen(new_socket(addr)?, addr)?;
    socket.set_reuse_port(true)?;
    Ok(socket)
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    set_options(&socket, addr)?;
    Ok(socket)
}

fn set_options(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    // Accepted sockets inherit this option and the next one. Nagle's algorithm would delay the end of a response.
    socket.set_tcp_nodelay(true)?;
    // Without this limit the kernel buffers up to 4 MB for a client that reads no bytes, outside of all budgets.
    _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    socket.set_nonblocking(true)?;
    disable_loopback_pacing(socket, addr.ip());
    Ok(())
}

fn listen(socket: Socket, addr: SocketAddr) -> io::Result<Socket> {
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Accepts connections until the future is dropped, or until `closing` is notified. Then accepts the connections that
/// wait in the kernel's queue and returns.
pub(crate) async fn accept(
    workers: Rc<CurrentWorker>,
    listener: OwnedFd,
    transport: Transport,
    closing: Rc<Notify>,
) {
    let listener = match Listener::new(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listener cannot be registered with the runtime");
            return;
        }
    };
    let failures = SparseLog::default();
    let mut is_closing = false;
    loop {
        let accepted = if is_closing {
            match poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await {
                Poll::Ready(accepted) => accepted,
                Poll::Pending => return,
            }
        } else {
            tokio::select! {
                accepted = listener.accept() => accepted,
                () = closing.notified() => {
                    is_closing = true;
                    continue;
                }
            }
        };
        let worker = workers.get();
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(_) if is_closing => return,
            Err(error) => {
                worker.counters.accept_errors.increment();
                if let Some(unlogged) = failures.record(worker.now()) {
                    tracing::warn!(%error, unlogged, "a connection could not be accepted");
                }
                if !is_of_connection(&error) {
                    // The process has no free descriptor or memory. A retry without a pause would fail again.
                    for _ in 0..CLOSED_AFTER_FAILURE {
                        worker.close_idle_client();
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        if !make_room(&worker).await {
            continue;
        }
        let (workers, transport) = (Rc::clone(&workers), transport.clone());
        match accepted {
            Accepted::Tcp(stream, peer) => worker
                .connection_tasks
                .spawn(|member| accepted::run_tcp(workers, stream, peer, transport, member)),
            Accepted::Unix(stream) => worker.connection_tasks.spawn(|member| {
                accepted::run_unix(workers, stream, UNIX_CLIENT, transport, member)
            }),
        };
    }
}

/// Makes room for a new connection. Returns false, and counts, if the connection must be refused.
pub(super) async fn make_room(worker: &Worker) -> bool {
    worker.heart().set_activity(Activity::Accept);
    if sheds_connection(worker) {
        return false;
    }
    worker.relieve_connections();
    if is_full(worker) {
        if !worker.close_idle_client() {
            worker.counters.closed[CloseReason::Limit].increment();
            return false;
        }
        // The closed connection's task runs now, and releases its descriptor.
        tokio::task::yield_now().await;
    }
    true
}

/// Returns true if a new connection needs the place of another one.
pub(super) fn is_full(worker: &Worker) -> bool {
    worker.connections.borrow().len() >= connections_max(worker)
}

/// Returns true if a new connection is closed because of overload. If only descriptors or memory are scarce, it may
/// take those of an idle connection.
fn sheds_connection(worker: &Worker) -> bool {
    let health = &worker.shared.health;
    if health.lacks_descriptors() && worker.close_idle_client() {
        return false;
    }
    // The sweep closes the connections that hold most memory, so a new one is shed only when misses are, too. It then
    // may take the place of an idle connection.
    if health.lacks_memory() && (health.level() < Level::Misses || worker.close_idle_client()) {
        return false;
    }
    worker.sheds(Work::Connection)
}

/// Returns this worker's share of `limits.connections_max`, rounded up.
fn connections_max(worker: &Worker) -> usize {
    let config = worker.config();
    let all = config.limits.connections_max.get();
    all.div_ceil(config.workers.get())
}

/// Returns true if the error is about one connection, which ended before it was accepted.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Bytes that the kernel buffers for a client in addition to the bytes in flight.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// Connections that the kernel queues for a busy worker. The kernel lowers the value to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The mode of Unix sockets. The mode of their folder can restrict it.
const UNIX_MODE: u32 = 0o666;

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The number of idle connections that a worker closes before each [`ACCEPT_PAUSE`]: at most 80 per second.
const CLOSED_AFTER_FAILURE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    use std::net::{TcpListener, TcpStream};

    /// Returns the congestion control of a socket that a listener at `addr` accepted.
    fn congestion_of_accepted(addr: &str) -> Vec<u8> {
        let addr = addr.parse().expect("the address is valid");
        let listener = TcpListener::from(bind_one(addr).expect("the port is bound"));
        let port = listener.local_addr().expect("the socket is bound").port();
        let client = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
        // The connection may arrive later than this call, so `accept` has to wait.
        listener.set_nonblocking(false).expect("the socket is open");
        let (accepted, _) = listener.accept().expect("a client has connected");
        drop(client);
        congestion(&SockRef::from(&accepted))
    }

    fn congestion(socket: &Socket) -> Vec<u8> {
        let mut name = socket.tcp_congestion().expect("the socket uses TCP");
        name.retain(|&byte| byte != 0);
        name
    }

    /// Returns the system's default congestion control.
    fn system_default() -> Vec<u8> {
        congestion(&Socket::new(Domain::IPV4, Type::STREAM, None).expect("the socket is created"))
    }

    #[test]
    fn the_workers_of_one_edge_share_an_address_with_no_other_edge() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let ours = bind(any_port, 2, false).expect("the port is bound");
        let ours: Vec<_> = ours.into_iter().map(TcpListener::from).collect();
        let addr = ours[0].local_addr().expect("the socket is bound");
        let refused = bind(addr, 2, false).expect_err("the address is in use");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        // The kernel spreads connections by their ports. Within 200 connections both workers get at least one.
        let mut clients = Vec::new();
        let mut reached = [false; 2];
        while reached != [true; 2] {
            assert!(clients.len() < 200, "one worker gets all connections");
            clients.push(TcpStream::connect(addr).expect("the server listens"));
            for (worker, listener) in ours.iter().enumerate() {
                reached[worker] |= listener.accept().is_ok();
            }
        }
        // Old connections in TIME_WAIT do not prevent the next edge from starting.
        drop((ours, clients));
        bind(addr, 2, false).expect("the address is free");
        let shared = bind(addr, 2, true).and_then(|first| {
            let second = bind(addr, 2, true)?;
            Ok((first, second))
        });
        shared.expect("both edges share the address");
    }

    #[test]
    fn on_loopback_bbr_is_not_used() {
        let expected = match system_default() {
            paced if paced.starts_with(b"bbr") => b"reno".to_vec(),
            other => other,
        };
        assert_eq!(congestion_of_accepted("127.0.0.1:0"), expected);
    }

    /// Without `UNSENT_BYTES_MAX` the kernel would buffer 2 to 4 MB.
    #[test]
    fn the_kernel_buffers_little_for_a_client_that_reads_nothing() {
        use std::io::Write as _;

        let listener = bind_one("127.0.0.1:0".parse().expect("the address is valid"));
        let listener = TcpListener::from(listener.expect("the port is bound"));
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("the socket is created");
        client.set_recv_buffer_size(4096).expect("the size is set");
        let addr = listener.local_addr().expect("the socket is bound");
        client.connect(&addr.into()).expect("the server listens");
        listener.set_nonblocking(false).expect("the socket is open");
        let (mut accepted, _) = listener.accept().expect("a client has connected");
        accepted.set_nonblocking(true).expect("the socket is open");
        let piece = vec![0; 1 << 20];
        let mut taken = 0;
        while taken < 16 << 20 {
            match accepted.write(&piece) {
                Ok(bytes) => taken += bytes,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        assert!(taken < 1 << 20, "{taken} bytes");
    }

    #[test]
    fn on_other_addresses_the_system_chooses_the_congestion_control() {
        assert_eq!(congestion_of_accepted("0.0.0.0:0"), system_default());
    }
}
