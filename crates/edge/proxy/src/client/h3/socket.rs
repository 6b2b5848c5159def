//! The sockets of QUIC: one of UDP for each worker.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::forwarded::DatagramHead;
use super::routes::{Inbox, Owner, Passed, Routes};
use crate::observe::counters::Counters;

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
/// then has several sockets, or one that is new and not [bound](bind_rest) yet.
pub(crate) fn adopt(sockets: Vec<OwnedFd>, workers: usize) -> io::Result<Vec<Vec<OwnedFd>>> {
    let addr = SockRef::from(&sockets[0]).local_addr()?.as_socket();
    let mut divided: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
    for (socket, worker) in sockets.into_iter().zip((0..workers).cycle()) {
        divided[worker].push(socket);
    }
    for of_worker in divided.iter_mut().filter(|sockets| sockets.is_empty()) {
        let addr = addr.ok_or(io::ErrorKind::InvalidInput)?;
        of_worker.push(new_socket(addr)?.into());
    }
    Ok(divided)
}

/// Binds the new sockets of [`adopt`] to the addresses of the other sockets of their listeners. The kernel then chooses
/// them for some datagrams of all connections. Call this function when the other process has stopped reading: its
/// connections would lose these datagrams before. Workers do not share a socket instead, because the two datagrams of a
/// large ClientHello would reach two endpoints.
pub(crate) fn bind_rest(sockets: &[(String, Arc<OwnedFd>)]) {
    for (listener, socket) in sockets {
        let mut of_listener = sockets.iter().filter(|(other, _)| other == listener);
        if bound_addr(socket).is_none()
            && let Some(addr) = of_listener.find_map(|(_, socket)| bound_addr(socket))
            && let Err(error) = bind_shared(&SockRef::from(socket), addr)
        {
            tracing::error!(listener, %error, "a worker accepts no QUIC connections");
        }
    }
}

/// Returns the address of a socket. `None` if it is not bound.
fn bound_addr(socket: &OwnedFd) -> Option<SocketAddr> {
    let addr = SockRef::from(socket).local_addr().ok()?.as_socket();
    addr.filter(|addr| addr.port() != 0)
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

/// The parts of an endpoint that a worker has not opened yet.
#[derive(Debug)]
pub(crate) struct EndpointParts {
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) inbox: Arc<Inbox>,
}

impl EndpointParts {
    /// Gives each socket of `listener` an inbox.
    pub(crate) fn of_sockets(
        listener: &str,
        sockets: Vec<OwnedFd>,
        routes: &Arc<Routes>,
    ) -> io::Result<Vec<Self>> {
        let parts = sockets.into_iter().map(|socket| {
            let inbox = Arc::new(routes.open_inbox()?);
            let socket = Arc::new(socket);
            routes.add_socket(listener, &socket);
            Ok(Self { socket, inbox })
        });
        parts.collect()
    }
}

/// The socket and the inbox of an endpoint, which quinn uses as one socket. Datagrams of other endpoints are passed on.
#[derive(Debug)]
pub(crate) struct EndpointSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    /// The same one, which [`Routes`] pass to another process while the endpoint is open.
    _passed: Arc<OwnedFd>,
    inbox: AsyncFd<Arc<Inbox>>,
    counters: Arc<Counters>,
}

impl EndpointSocket {
    pub(crate) fn open(parts: &EndpointParts, counters: &Arc<Counters>) -> io::Result<Arc<Self>> {
        let socket = parts.socket.try_clone()?;
        #[expect(
            deprecated,
            reason = "the replacement is an unsafe fn, because some types may change their descriptor; an Inbox keeps \
                      its descriptor, so the safe function is sound here"
        )]
        let inbox = AsyncFd::with_interest(Arc::clone(&parts.inbox), Interest::READABLE)?;
        Ok(Arc::new(Self {
            socket: TokioRuntime.wrap_udp_socket(socket.into())?,
            _passed: Arc::clone(&parts.socket),
            inbox,
            counters: Arc::clone(counters),
        }))
    }

    /// Receives datagrams that other endpoints have passed on, and returns their number. If it is less than that of the
    /// buffers, the task is woken by the next one.
    fn receive_passed(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [RecvMeta],
    ) -> usize {
        let mut count = 0;
        while count < buffers.len() {
            let Poll::Ready(Ok(mut ready)) = self.inbox.poll_read_ready(cx) else {
                break;
            };
            match ready.try_io(|inbox| inbox.get_ref().receive(&mut buffers[count])) {
                Ok(Ok(Some(meta))) => {
                    received[count] = meta;
                    count += 1;
                }
                // Not a datagram, or nothing was left to receive. In the latter case, the next poll registers the task.
                Ok(Ok(None)) | Err(_) => {}
                Ok(Err(_)) => break,
            }
        }
        count
    }

    /// Passes on the datagrams of a buffer that belong to other endpoints, and closes the gaps.
    fn keep_own(&self, buffer: &mut [u8], meta: &mut RecvMeta) {
        let head = DatagramHead::of(meta);
        let (mut kept, mut at) = (0, 0);
        while at < meta.len {
            let end = (at + meta.stride.max(1)).min(meta.len);
            if self.is_own(head, &buffer[at..end]) {
                buffer.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        meta.len = kept;
    }

    /// Returns true if the endpoint shall answer a datagram. Others are passed on or dropped.
    fn is_own(&self, head: DatagramHead, datagram: &[u8]) -> bool {
        let inbox = self.inbox.get_ref();
        let owner = match inbox.routes.owner(inbox.endpoint, datagram) {
            Owner::Receiver => return true,
            Owner::Unknown => return false,
            Owner::Other(owner) => owner,
        };
        let counter = match inbox.routes.pass(owner, head, datagram) {
            Passed::ToWorker => &self.counters.quic_to_worker,
            Passed::ToProcess => &self.counters.quic_to_process,
            Passed::Full => &self.counters.quic_dropped,
            // The client gets a stateless reset.
            Passed::Gone => return true,
        };
        counter.increment();
        false
    }
}

impl AsyncUdpSocket for EndpointSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        received: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        // A flood of the socket or of the inbox leaves half of the buffers to the other.
        let half = buffers.len().div_ceil(2);
        let passed = self.receive_passed(cx, &mut buffers[..half], &mut received[..half]);
        if !self.inbox.get_ref().routes.reads_sockets() {
            return match passed {
                0 => Poll::Pending,
                passed => Poll::Ready(Ok(passed)),
            };
        }
        let (buffers, received) = (&mut buffers[passed..], &mut received[passed..]);
        match self.socket.poll_recv(cx, buffers, received) {
            Poll::Ready(Ok(count)) => {
                for (buffer, meta) in buffers.iter_mut().zip(received).take(count) {
                    self.keep_own(buffer, meta);
                }
                Poll::Ready(Ok(passed + count))
            }
            _ if passed > 0 => Poll::Ready(Ok(passed)),
            other => other,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

/// The size of the kernel's buffers of a socket. The default of Linux, 208 KiB, is full after 2 ms at 1 Gbit/s, and
/// datagrams that arrive then are lost.
const BUFFER_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::client::h3::connection_id::EndpointName;

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

    fn runtime() -> tokio::runtime::Runtime {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build();
        runtime.expect("the runtime can be built")
    }

    /// An endpoint answers a datagram whose connection it does not know with a stateless reset.
    #[test]
    fn datagrams_of_ended_endpoints_are_answered_and_those_of_later_processes_are_not() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let routes = Routes::new();
        let sockets = bind(any_port, 1, false).expect("a port is free");
        let parts =
            EndpointParts::of_sockets("udp", sockets, &routes).expect("descriptors are free");
        let runtime = runtime();
        let _entered = runtime.enter();
        let endpoint = EndpointSocket::open(&parts[0], &Arc::default());
        let endpoint = endpoint.expect("the socket is open");
        let head = DatagramHead {
            source: any_port,
            destination: None,
            ecn: None,
        };
        for (generation, number, is_answered) in [(0, 1, true), (255, 0, true), (1, 0, false)] {
            let id = routes.new_id(EndpointName { generation, number });
            let datagram = [&[0x40], &id[..]].concat();
            assert_eq!(endpoint.is_own(head, &datagram), is_answered);
        }
    }

    /// The first datagrams of many clients arrive together when their process has ended.
    #[test]
    fn each_datagram_of_an_ended_endpoint_is_answered_by_a_stateless_reset() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let routes = Routes::new();
        let sockets = bind(any_port, 1, false).expect("a port is free");
        let addr = bound_addr(&sockets[0]).expect("the socket is bound");
        let parts =
            EndpointParts::of_sockets("udp", sockets, &routes).expect("descriptors are free");
        let ended = EndpointName {
            generation: 0,
            number: 1,
        };
        let client = UdpSocket::bind(any_port).expect("a port is free");
        let timeout = Some(Duration::from_secs(10));
        client.set_read_timeout(timeout).expect("not zero");
        for _ in 0..CLIENTS {
            let datagram = [&[0x40], &routes.new_id(ended)[..], &[0; 40]].concat();
            client.send_to(&datagram, addr).expect("the buffer is free");
        }
        runtime().block_on(async {
            let socket = EndpointSocket::open(&parts[0], &Arc::default());
            let endpoint = quinn::Endpoint::new_with_abstract_socket(
                routes.endpoint_config(&parts[0].inbox),
                None,
                socket.expect("the socket is open"),
                Arc::new(TokioRuntime),
            );
            let endpoint = endpoint.expect("the endpoint is open");
            let resets = tokio::task::spawn_blocking(move || {
                let mut buffer = [0; 64];
                let mut receive = || client.recv(&mut buffer).ok();
                std::iter::from_fn(|| receive().filter(|bytes| *bytes < 49))
                    .take(CLIENTS)
                    .count()
            });
            assert_eq!(resets.await.expect("joined"), CLIENTS);
            drop(endpoint);
        });
    }

    const CLIENTS: usize = 50;

    /// Method: the datagrams of one buffer belong to two endpoints, as if a NAT had given one port to two clients.
    #[test]
    fn datagrams_of_others_are_removed_from_a_buffer_and_reach_their_endpoint() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let routes = Routes::new();
        let sockets = bind(any_port, 2, false).expect("a port is free");
        let parts =
            EndpointParts::of_sockets("udp", sockets, &routes).expect("descriptors are free");
        let runtime = runtime();
        let _entered = runtime.enter();
        let counters = Arc::default();
        let open = |parts| EndpointSocket::open(parts, &counters).expect("the socket is open");
        let (receiver, other) = (open(&parts[0]), open(&parts[1]));
        let datagram = |of: &EndpointParts, text: u8| {
            let id = routes.new_id(of.inbox.endpoint);
            [&[0x40], &id[..], &[text; 7]].concat()
        };
        let [a, b, c] = [0, 1, 0].map(|of| datagram(&parts[of], b'a' + u8::from(of == 1)));
        let mut buffer = [&a[..], &b, &c[..12]].concat();
        let mut meta = RecvMeta {
            addr: any_port,
            len: buffer.len(),
            stride: a.len(),
            ecn: None,
            dst_ip: None,
        };
        receiver.keep_own(&mut buffer, &mut meta);
        assert_eq!(buffer[..meta.len], [&a[..], &c[..12]].concat());
        assert_eq!(counters.quic_to_worker.value(), 1);
        let mut passed = [0; 64];
        let received = other.inbox.get_ref().receive(&mut passed);
        let meta = received.expect("a message arrived").expect("a datagram");
        assert_eq!(passed[..meta.len], b);
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

    /// The kernel would send a bound socket datagrams of connections of the process before.
    #[test]
    fn the_sockets_of_additional_workers_are_bound_by_a_second_step() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let routes = Routes::after(Routes::new().identity(), []);
        let mut expected = Vec::new();
        let mut parts = Vec::new();
        for listener in ["first", "second"] {
            let inherited = bind(any_port, 1, false).expect("a port is free");
            expected.extend([bound_addr(&inherited[0]); 3]);
            let divided = adopt(inherited, 3).expect("the socket is bound");
            let sockets = divided.into_iter().flatten().collect();
            let of_listener = EndpointParts::of_sockets(listener, sockets, &routes);
            parts.extend(of_listener.expect("descriptors are free"));
        }
        let addrs = || parts.iter().map(|parts| bound_addr(&parts.socket));
        assert_eq!(addrs().flatten().count(), 2);
        bind_rest(&routes.open_sockets());
        assert_eq!(addrs().collect::<Vec<_>>(), expected);
    }
}
