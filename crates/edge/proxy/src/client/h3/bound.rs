//! The sockets of QUIC of a listener: one of UDP for each worker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::steering;

/// The sockets of each worker.
pub(crate) type Sockets = Vec<Vec<Arc<SharedSocket>>>;

/// A socket of one endpoint. After a reload that changes a listener, it is that of the new endpoint, too.
#[derive(Debug)]
pub(crate) struct SharedSocket {
    pub(super) fd: OwnedFd,
    /// The number of the endpoint that reads it: the newest one.
    pub(super) reader: AtomicU32,
}

impl From<OwnedFd> for SharedSocket {
    fn from(fd: OwnedFd) -> Self {
        let reader = AtomicU32::new(u32::MAX);
        Self { fd, reader }
    }
}

impl SharedSocket {
    /// Returns the address of the socket. `None` if it is not bound.
    pub(crate) fn addr(&self) -> Option<SocketAddr> {
        let addr = SockRef::from(&self.fd).local_addr().ok()?.as_socket();
        addr.filter(|addr| addr.port() != 0)
    }
}

/// Binds one socket for each worker to the same address (`SO_REUSEPORT`).
///
/// Unless `shared` is true, binding fails if another process has the address.
pub(crate) fn bind(addr: SocketAddr, workers: usize, shared: bool) -> io::Result<Vec<OwnedFd>> {
    let first = new_socket(addr)?;
    // As for TCP, another process that has the address with this option would not be noticed.
    first.set_reuse_port(shared)?;
    first.bind(&addr.into())?;
    first.set_reuse_port(true)?;
    // With port 0 the kernel chooses the port of the first socket, and the others bind the same port.
    let addr = first.local_addr()?.as_socket();
    let addr = addr.ok_or(io::ErrorKind::InvalidInput)?;
    let mut all = vec![first.into()];
    for _ in 1..workers {
        all.push(bind_another(addr)?);
    }
    Ok(all)
}

/// Gives each worker one socket.
pub(crate) fn each(sockets: Vec<OwnedFd>) -> Sockets {
    let sockets = sockets.into_iter();
    sockets.map(|fd| vec![Arc::new(fd.into())]).collect()
}

/// Divides the sockets of a listener between the workers. They may come from another process, with another number of
/// workers: a worker then has several sockets, or one that is new and not [bound](bind_rest) yet.
pub(crate) fn divide(sockets: Vec<Arc<SharedSocket>>, workers: usize) -> io::Result<Sockets> {
    let addr = sockets.iter().find_map(|socket| socket.addr());
    let mut divided: Sockets = (0..workers).map(|_| Vec::new()).collect();
    for (socket, worker) in sockets.into_iter().zip((0..workers).cycle()) {
        divided[worker].push(socket);
    }
    for of_worker in divided.iter_mut().filter(|sockets| sockets.is_empty()) {
        let addr = addr.ok_or(io::ErrorKind::InvalidInput)?;
        of_worker.push(Arc::new(OwnedFd::from(new_socket(addr)?).into()));
    }
    Ok(divided)
}

/// Binds the new sockets of [`divide`] to the addresses of the other sockets of their listeners. The kernel then
/// chooses them for some datagrams of all connections. Call this function when the other process has stopped reading:
/// its connections would lose these datagrams before. Workers do not share a socket instead, because the two
/// datagrams of a large ClientHello would reach two endpoints.
pub(crate) fn bind_rest(sockets: &[(String, Arc<SharedSocket>)], shared: bool) {
    for (listener, socket) in sockets.iter().filter(|(_, socket)| socket.addr().is_none()) {
        let of_listener: Vec<_> = sockets
            .iter()
            .filter(|(other, _)| other == listener)
            .collect();
        let Some(addr) = of_listener.iter().find_map(|(_, socket)| socket.addr()) else {
            continue;
        };
        match bind_shared(&SockRef::from(&socket.fd), addr) {
            Ok(()) => steer(&socket.fd, of_listener.len(), addr, shared),
            Err(error) => tracing::error!(listener, %error, "a worker accepts no QUIC connections"),
        }
    }
}

/// Lets the kernel choose among the sockets of a listener by connection ids, unless another process may share the
/// address. If the kernel refuses, workers pass datagrams on.
pub(crate) fn steer(socket: &OwnedFd, sockets: usize, addr: SocketAddr, shared: bool) {
    let steered = match shared {
        true => steering::choose_by_address(socket),
        false => steering::choose_by_id(socket, sockets),
    };
    if let Err(error) = steered {
        tracing::warn!(
            %addr,
            %error,
            "the kernel refuses to choose the worker of a QUIC datagram by its connection id: clients that \
             change their port cost more CPU"
        );
    }
}

fn bind_another(addr: SocketAddr) -> io::Result<OwnedFd> {
    let socket = new_socket(addr)?;
    bind_shared(&socket, addr)?;
    Ok(socket.into())
}

fn bind_shared(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    socket.set_reuse_port(true)?;
    socket.bind(&addr.into())
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // The kernel lowers the sizes to `net.core.rmem_max` and `net.core.wmem_max`.
    _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    _ = socket.set_send_buffer_size(BUFFER_BYTES);
    Ok(socket)
}

/// The size of the kernel's buffers of a socket. The default of Linux, 208 KiB, is full after 2 ms at 1 Gbit/s, and
/// datagrams that arrive then are lost.
const BUFFER_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::h3::routes::Routes;
    use crate::client::h3::socket::EndpointParts;

    fn addr_of(socket: &OwnedFd) -> SocketAddr {
        let addr = SockRef::from(socket).local_addr();
        let addr = addr.expect("the socket is bound").as_socket();
        addr.expect("an address of IP")
    }

    #[test]
    fn the_workers_of_one_edge_share_an_address_with_no_other_edge() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let first = bind(any_port, 1, false).expect("a port is free");
        let addr = addr_of(&first[0]);
        let refused = bind(addr, 2, false).expect_err("the address is in use");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let ours = bind(addr, 2, false).expect("the address is free");
        assert_eq!(ours.iter().map(addr_of).collect::<Vec<_>>(), [addr; 2]);
        bind(addr, 1, true).expect("an edge that shares ports has the address too");
    }

    #[test]
    fn each_socket_of_another_process_has_a_worker_and_each_worker_a_socket() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        for (sockets, workers, expected) in [(2, 2, "1 1"), (3, 2, "2 1"), (1, 2, "1 1")] {
            let inherited = bind(any_port, sockets, false).expect("a port is free");
            let inherited = inherited.into_iter().map(|fd| Arc::new(fd.into()));
            let divided = divide(inherited.collect(), workers).expect("the sockets are bound");
            let counts: Vec<_> = divided.iter().map(|all| all.len().to_string()).collect();
            assert_eq!(counts.join(" "), expected);
        }
    }

    /// The kernel would send a bound socket datagrams of connections of the process before.
    #[test]
    fn the_sockets_of_additional_workers_are_bound_by_a_second_step() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let routes = Routes::after(Routes::new().identity(), []);
        let mut expected = Vec::new();
        let mut parts = Vec::new();
        for listener in ["first", "second"] {
            let inherited = bind(any_port, 1, false).expect("a port is free");
            expected.extend([Some(addr_of(&inherited[0])); 3]);
            let inherited = inherited.into_iter().map(|fd| Arc::new(fd.into()));
            let divided = divide(inherited.collect(), 3).expect("the socket is bound");
            let of_listener = EndpointParts::of_listener(listener, &divided, &routes);
            parts.extend(
                of_listener
                    .expect("descriptors are free")
                    .into_iter()
                    .flatten(),
            );
        }
        let addrs = || parts.iter().map(|parts| parts.socket.addr());
        assert_eq!(addrs().flatten().count(), 2);
        bind_rest(&routes.open_sockets(), false);
        assert_eq!(addrs().collect::<Vec<_>>(), expected);
    }
}
