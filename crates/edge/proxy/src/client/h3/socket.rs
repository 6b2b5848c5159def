//! The socket of an endpoint, which also receives datagrams that other endpoints pass on.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::bound::{SharedSocket, Sockets};
use super::forwarded::DatagramHead;
use super::routes::{Inbox, Owner, Passed, Routes};
use super::steering::Slot;
use crate::observe::counters::Counters;

/// The parts of an endpoint that a worker has not opened yet.
#[derive(Debug)]
pub(crate) struct EndpointParts {
    pub(super) socket: Arc<SharedSocket>,
    pub(crate) inbox: Arc<Inbox>,
}

impl EndpointParts {
    /// Gives each socket of `listener` an inbox. Returns the parts of each worker.
    pub(crate) fn of_listener(
        listener: &str,
        sockets: &Sockets,
        routes: &Arc<Routes>,
    ) -> io::Result<Vec<Vec<Self>>> {
        let (workers, all) = (sockets.len(), sockets.iter().flatten().count());
        let of_workers = sockets.iter().enumerate().map(|(worker, sockets)| {
            let parts = sockets.iter().enumerate().map(|(round, socket)| {
                // The order of the slots is that in which `divide` has taken the sockets.
                let slot = Slot::new(worker + round * workers, all);
                let inbox = Arc::new(routes.open_inbox(slot)?);
                routes.add_socket(listener, slot, socket);
                let socket = Arc::clone(socket);
                Ok(Self { socket, inbox })
            });
            parts.collect()
        });
        of_workers.collect()
    }
}

/// The socket and the inbox of an endpoint, which quinn uses as one socket. Datagrams of other endpoints are passed on.
#[derive(Debug)]
pub(crate) struct EndpointSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    /// The same one, which [`Routes`] pass to another process while the endpoint is open.
    shared: Arc<SharedSocket>,
    inbox: AsyncFd<Arc<Inbox>>,
    counters: Arc<Counters>,
}

impl EndpointSocket {
    pub(crate) fn open(parts: &EndpointParts, counters: &Arc<Counters>) -> io::Result<Arc<Self>> {
        let socket = parts.socket.fd.try_clone()?;
        #[expect(
            deprecated,
            reason = "the replacement is an unsafe fn, because some types may change their descriptor; an Inbox keeps \
                      its descriptor, so the safe function is sound here"
        )]
        let inbox = AsyncFd::with_interest(Arc::clone(&parts.inbox), Interest::READABLE)?;
        // An earlier endpoint gets the datagrams of its connections through its inbox from now on.
        let reader = parts.inbox.endpoint.number.into();
        parts.socket.reader.store(reader, Ordering::Relaxed);
        Ok(Arc::new(Self {
            socket: TokioRuntime.wrap_udp_socket(socket.into())?,
            shared: Arc::clone(&parts.socket),
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

    fn reads_socket(&self) -> bool {
        let inbox = self.inbox.get_ref();
        let is_reader =
            self.shared.reader.load(Ordering::Relaxed) == u32::from(inbox.endpoint.number);
        is_reader && inbox.routes.reads_sockets()
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
        if !self.reads_socket() {
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

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use socket2::SockRef;

    use super::*;
    use crate::client::h3::bound::{bind, each};
    use crate::client::h3::connection_id::EndpointName;

    /// Returns the parts of one endpoint for each socket.
    fn parts(sockets: Vec<OwnedFd>, routes: &Arc<Routes>) -> Vec<EndpointParts> {
        let of_workers = each(sockets);
        let parts = EndpointParts::of_listener("udp", &of_workers, routes);
        parts
            .expect("descriptors are free")
            .into_iter()
            .flatten()
            .collect()
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
        let parts = parts(sockets, &routes);
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
        let addr = SockRef::from(&sockets[0]).local_addr();
        let addr = addr.expect("the socket is bound").as_socket();
        let addr = addr.expect("an address of IP");
        let parts = parts(sockets, &routes);
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
        let parts = parts(sockets, &routes);
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
}
