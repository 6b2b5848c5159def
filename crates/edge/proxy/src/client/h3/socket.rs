//! The sockets of QUIC: one of UDP for each worker.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Binds one socket for each worker to the same address (`SO_REUSEPORT`). The kernel chooses the socket of a datagram
/// by the addresses and ports of client and edge, so all datagrams of a client reach one worker.
///
/// Unless `shared` is true, binding fails if another process has the address.
pub(crate) fn bind(addr: SocketAddr, workers: usize, shared: bool) -> io::Result<Vec<OwnedFd>> {
    let first = new_socket(addr)?;
    // As for TCP, another process that has the address with this option would not be noticed.
    first.set_reuse_port(shared)?;
    first.bind(&addr.into())?;
    first.set_reuse_port(true)?;
    let mut all = vec![first.into()];
    for _ in 1..workers {
        all.push(bind_another(addr)?);
    }
    Ok(all)
}

/// Divides sockets of another process between the workers. That process may have another number of workers: a worker
/// then has several sockets, or one that is new.
pub(crate) fn adopt(sockets: Vec<OwnedFd>, workers: usize) -> io::Result<Vec<Vec<OwnedFd>>> {
    let addr = SockRef::from(&sockets[0]).local_addr()?.as_socket();
    let mut divided: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
    for (socket, worker) in sockets.into_iter().zip((0..workers).cycle()) {
        divided[worker].push(socket);
    }
    for of_worker in divided.iter_mut().filter(|sockets| sockets.is_empty()) {
        let addr = addr.ok_or(io::ErrorKind::InvalidInput)?;
        of_worker.push(bind_another(addr)?);
    }
    Ok(divided)
}

fn bind_another(addr: SocketAddr) -> io::Result<OwnedFd> {
    let socket = new_socket(addr)?;
    socket.set_reuse_port(true)?;
    socket.bind(&addr.into())?;
    Ok(socket.into())
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // The kernel lowers the sizes to `net.core.rmem_max` and `net.core.wmem_max`.
    _ = socket.set_recv_buffer_size(BUFFER_BYTES);
    _ = socket.set_send_buffer_size(BUFFER_BYTES);
    Ok(socket)
}

/// A socket as quinn uses it. Another process that takes the socket over reads it alone.
#[derive(Debug)]
pub(crate) struct EndpointSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    is_read: AtomicBool,
}

impl EndpointSocket {
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            inner: TokioRuntime.wrap_udp_socket(socket.into())?,
            is_read: AtomicBool::new(true),
        }))
    }

    /// Reads no further datagrams. The socket can still send.
    pub(crate) fn stop_reading(&self) {
        self.is_read.store(false, Relaxed);
    }
}

impl AsyncUdpSocket for EndpointSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        match self.is_read.load(Relaxed) {
            true => self.inner.poll_recv(cx, buffers, received),
            false => Poll::Pending,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// The size of the kernel's buffers of a socket. The default of Linux, 208 KiB, is full after 2 ms at 1 Gbit/s, and
/// datagrams that arrive then are lost.
const BUFFER_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn the_workers_of_one_edge_share_an_address_with_no_other_edge() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let port_of = |socket: &OwnedFd| {
            let socket = UdpSocket::from(socket.try_clone().expect("a descriptor is free"));
            socket.local_addr().expect("the socket is bound")
        };
        let first = bind(any_port, 1, false).expect("a port is free");
        let addr = port_of(&first[0]);
        let refused = bind(addr, 2, false).expect_err("the address is in use");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let ours = bind(addr, 2, false).expect("the address is free");
        assert_eq!(ours.iter().map(port_of).collect::<Vec<_>>(), [addr; 2]);
        bind(addr, 1, true).expect("an edge that shares ports has the address too");
    }

    #[test]
    fn each_socket_of_another_process_has_a_worker_and_each_worker_a_socket() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        for (sockets, workers, expected) in [(2, 2, "1 1"), (3, 2, "2 1"), (1, 2, "1 1")] {
            let inherited = bind(any_port, sockets, false).expect("a port is free");
            let divided = adopt(inherited, workers).expect("the sockets are bound");
            let counts: Vec<_> = divided.iter().map(|all| all.len().to_string()).collect();
            assert_eq!(counts.join(" "), expected);
        }
    }
}
