//! Datagrams reach the endpoint of their connection.
//!
//! After an upgrade, each datagram of an old connection reaches the new process. A datagram may also reach an endpoint
//! of another worker, if the number of workers has changed or the kernel chooses by addresses. Each endpoint has an
//! [`Inbox`], a socket pair through which others send it the datagrams that are its own. The kernel bounds the queue of
//! a pair. At an upgrade the new process gets the sending ends.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;

use quinn::EndpointConfig;
use quinn::crypto::HandshakeTokenKey;
use quinn::udp::RecvMeta;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType, recvmsg, sendmsg, socketpair,
};

use super::bound::SharedSocket;
#[cfg(test)]
use super::connection_id::Id;
use super::connection_id::{EndpointName, IdGenerator, IdName};
use super::forwarded::{DatagramHead, Destination, HEAD_BYTES};
use super::quic_keys::{QuicIdentity, QuicKeys};
use super::steering::Slot;
use crate::rt::panics::lock;

/// The endpoints that share sockets: those of this process, and those of processes before it.
pub(crate) struct Routes {
    identity: QuicIdentity,
    keys: QuicKeys,
    /// The sending ends of the inboxes of this process, by the numbers of the endpoints.
    own: RwLock<Vec<Option<OwnedFd>>>,
    /// Those of earlier processes that have not ended, as far as it is known.
    earlier: RwLock<HashMap<EndpointName, OwnedFd>>,
    /// The sockets of the endpoints of this process, with the names of their listeners and their slots. A listener may
    /// have been removed while its endpoints have connections.
    sockets: Mutex<Vec<(String, Slot, Weak<SharedSocket>)>>,
    /// True if this process reads the sockets, and no other one.
    reads_sockets: AtomicBool,
}

/// The endpoint to which a datagram belongs, as far as the receiving endpoint needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The endpoint that has received the datagram. It also gets datagrams of new connections.
    Receiver,
    Other(EndpointName),
    /// The id is not one of ours.
    Unknown,
}

/// The result of passing a datagram on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    ToWorker,
    ToProcess,
    /// The queue of the endpoint is full. The datagram is lost, as in a full buffer of a socket.
    Full,
    /// The endpoint has closed.
    Gone,
}

impl Routes {
    /// The routes of a process that no other one precedes.
    pub(crate) fn new() -> Arc<Self> {
        let identity = QuicIdentity::random().expect("AWS-LC has random bytes");
        Arc::new(Self::with(identity, HashMap::new(), true))
    }

    /// The routes of a process that replaces another one, with the inboxes of all earlier processes. It reads no
    /// socket before [`read_sockets`](Self::read_sockets).
    pub(crate) fn after(
        predecessor: &QuicIdentity,
        inboxes: impl IntoIterator<Item = (EndpointName, OwnedFd)>,
    ) -> Arc<Self> {
        let inboxes = inboxes.into_iter().collect();
        Arc::new(Self::with(predecessor.next(), inboxes, false))
    }

    fn with(
        identity: QuicIdentity,
        earlier: HashMap<EndpointName, OwnedFd>,
        reads_sockets: bool,
    ) -> Self {
        Self {
            keys: QuicKeys::new(&identity.secret),
            identity,
            own: RwLock::default(),
            earlier: RwLock::new(earlier),
            sockets: Mutex::default(),
            reads_sockets: AtomicBool::new(reads_sockets),
        }
    }

    pub(crate) fn identity(&self) -> &QuicIdentity {
        &self.identity
    }

    pub(super) fn token_key(&self) -> Arc<dyn HandshakeTokenKey> {
        Arc::clone(&self.keys.tokens)
    }

    /// Returns the settings of the endpoint of an inbox.
    pub(super) fn endpoint_config(&self, inbox: &Inbox) -> EndpointConfig {
        let (cipher, endpoint) = (Arc::clone(&self.keys.ids), inbox.endpoint);
        let (slot, makes_retry) = (inbox.slot, Arc::clone(&inbox.makes_retry));
        let mut config = EndpointConfig::new(Arc::clone(&self.keys.resets));
        config.min_reset_interval(RESET_INTERVAL);
        config.cid_generator(move || {
            let mut nonce = [0; 4];
            aws_lc_rs::rand::fill(&mut nonce).expect("AWS-LC has random bytes");
            Box::new(IdGenerator {
                cipher: Arc::clone(&cipher),
                endpoint,
                slot,
                makes_retry: Arc::clone(&makes_retry),
                nonce: u32::from_le_bytes(nonce),
            })
        });
        config
    }

    /// Returns an id of a connection of `endpoint`.
    #[cfg(test)]
    pub(super) fn new_id(&self, endpoint: EndpointName) -> Id {
        let is_retry = false;
        self.keys.ids.id(IdName { endpoint, is_retry }, 7)
    }

    /// Returns the first datagram of a client that answers a Retry of `endpoint`.
    #[cfg(test)]
    pub(super) fn answer_to_retry(&self, endpoint: EndpointName) -> Vec<u8> {
        let is_retry = true;
        let id = self.keys.ids.id(IdName { endpoint, is_retry }, 7);
        [b"\xc0\0\0\0\x01\x08", &id[..]].concat()
    }

    /// Opens the inbox of a new endpoint whose socket has this slot.
    pub(super) fn open_inbox(self: &Arc<Self>, slot: Slot) -> io::Result<Inbox> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // This kind of socket keeps the borders of messages, and reports that the other end has closed.
        let (sending, receiving) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_socket_send_buffer_size(&sending, INBOX_BYTES)?;
        let mut own = self.own.write().unwrap_or_else(PoisonError::into_inner);
        let free = own.iter().position(Option::is_none);
        let at = free.unwrap_or(own.len());
        let number = u16::try_from(at).map_err(|_| io::ErrorKind::QuotaExceeded)?;
        match free {
            Some(at) => own[at] = Some(sending),
            None => own.push(Some(sending)),
        }
        Ok(Inbox {
            receiving,
            endpoint: EndpointName {
                generation: self.identity.generation,
                number,
            },
            slot,
            makes_retry: Arc::default(),
            routes: Arc::clone(self),
        })
    }

    /// Adds the socket of a new endpoint of `listener`. An earlier endpoint may have had it.
    pub(super) fn add_socket(&self, listener: &str, slot: Slot, socket: &Arc<SharedSocket>) {
        let mut sockets = lock(&self.sockets);
        let added = Arc::downgrade(socket);
        sockets.retain(|(.., known)| known.strong_count() > 0 && !known.ptr_eq(&added));
        sockets.push((listener.into(), slot, added));
    }

    /// Returns copies of the sockets of all endpoints that have not closed, for the process that replaces this one.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let open = self.open_sockets().into_iter();
        open.map(|(listener, socket)| Ok((listener, socket.fd.try_clone()?)))
            .collect()
    }

    /// Returns the sockets of all endpoints that have not closed, with the names of their listeners. Those of an
    /// address have the order of their slots.
    pub(crate) fn open_sockets(&self) -> Vec<(String, Arc<SharedSocket>)> {
        let mut sockets = lock(&self.sockets);
        sockets.sort_by_key(|(_, slot, _)| slot.index);
        let open = sockets
            .iter()
            .filter_map(|(listener, _, socket)| Some((listener.clone(), socket.upgrade()?)));
        open.collect()
    }

    /// Returns copies of the sending ends of all open inboxes, for the process that replaces this one.
    pub(crate) fn inboxes(&self) -> io::Result<Vec<(EndpointName, OwnedFd)>> {
        let mut copies = Vec::new();
        self.close_ended();
        let earlier = self.earlier.read().unwrap_or_else(PoisonError::into_inner);
        for (name, inbox) in earlier.iter() {
            copies.push((*name, inbox.try_clone()?));
        }
        drop(earlier);
        let generation = self.identity.generation;
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        for (number, inbox) in (0..).zip(own.iter()) {
            if let Some(inbox) = inbox {
                copies.push((EndpointName { generation, number }, inbox.try_clone()?));
            }
        }
        Ok(copies)
    }

    pub(crate) fn reads_sockets(&self) -> bool {
        self.reads_sockets.load(Ordering::Relaxed)
    }

    /// Leaves the sockets to the process that replaces this one. Connections get their datagrams through their inboxes.
    pub(crate) fn leave_sockets(&self) {
        self.reads_sockets.store(false, Ordering::Relaxed);
    }

    /// Begins to read the sockets.
    pub(crate) fn read_sockets(&self) {
        self.reads_sockets.store(true, Ordering::Relaxed);
        // An empty datagram wakes the tasks of the endpoints, which wait for their inboxes alone.
        let head = DatagramHead {
            source: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            destination: None,
            ecn: None,
        };
        let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
        for inbox in own.iter().flatten() {
            _ = send(inbox, head, &[]);
        }
    }

    /// Closes the sending ends of endpoints of earlier processes that have ended.
    pub(crate) fn close_ended(&self) {
        let has_ended = || {
            let earlier = self.earlier.read().unwrap_or_else(PoisonError::into_inner);
            !earlier.values().all(is_open)
        };
        if has_ended() {
            let mut earlier = self.earlier.write().unwrap_or_else(PoisonError::into_inner);
            earlier.retain(|_, inbox| is_open(inbox));
        }
    }

    /// Returns the endpoint to which a datagram belongs that `receiver` has received.
    ///
    /// One in 128 ids that clients make up names some endpoint, half of these one of a later process. This process
    /// does not know it, so the datagram is handled as one whose id is not ours.
    ///
    /// An answer to a Retry belongs to the receiver: the token proves the address of the client to all endpoints, and
    /// the one that made the Retry perhaps accepts no connections any more. If it has accepted this one already, the
    /// client ignores the second response (RFC 9000 §7.2).
    pub(super) fn owner(&self, receiver: EndpointName, datagram: &[u8]) -> Owner {
        let (id, unknown) = match Destination::of(datagram) {
            Destination::Issued(id) => (id, Owner::Unknown),
            Destination::Long(id) => (id, Owner::Receiver),
            Destination::Other => return Owner::Receiver,
        };
        let Some(IdName { endpoint, is_retry }) = self.keys.ids.name(id) else {
            return unknown;
        };
        match endpoint {
            endpoint if endpoint == receiver => Owner::Receiver,
            _ if is_retry => unknown,
            endpoint if !self.is_later(endpoint) => Owner::Other(endpoint),
            _ => unknown,
        }
    }

    fn is_later(&self, endpoint: EndpointName) -> bool {
        self.identity.generation.wrapping_sub(endpoint.generation) > u8::MAX / 2
    }

    /// Passes a datagram on.
    pub(super) fn pass(&self, to: EndpointName, head: DatagramHead, datagram: &[u8]) -> Passed {
        let (sent, passed) = if to.generation == self.identity.generation {
            let own = self.own.read().unwrap_or_else(PoisonError::into_inner);
            let inbox = own.get(usize::from(to.number)).and_then(Option::as_ref);
            let Some(inbox) = inbox else {
                return Passed::Gone;
            };
            (send(inbox, head, datagram), Passed::ToWorker)
        } else {
            let earlier = self.earlier.read().unwrap_or_else(PoisonError::into_inner);
            let Some(inbox) = earlier.get(&to) else {
                return Passed::Gone;
            };
            (send(inbox, head, datagram), Passed::ToProcess)
        };
        match sent {
            Ok(()) => passed,
            Err(Errno::PIPE | Errno::CONNREFUSED | Errno::CONNRESET | Errno::NOTCONN) => {
                Passed::Gone
            }
            // The connection is alive, so its client must not get a stateless reset.
            Err(_) => Passed::Full,
        }
    }
}

impl std::fmt::Debug for Routes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routes")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Receives the datagrams of an endpoint that reached others. Dropping this value closes the endpoint for them.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiving: OwnedFd,
    pub(super) endpoint: EndpointName,
    slot: Slot,
    /// True while the endpoint makes a Retry, whose id then says so.
    pub(super) makes_retry: Arc<AtomicBool>,
    pub(crate) routes: Arc<Routes>,
}

impl Inbox {
    /// Receives a datagram, without waiting. `None` is a message that is no datagram.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<RecvMeta>> {
        let mut head = [0; HEAD_BYTES];
        let mut parts = [IoSliceMut::new(&mut head), IoSliceMut::new(buffer)];
        let mut no_control = RecvAncillaryBuffer::default();
        let flags = RecvFlags::DONTWAIT;
        let received = recvmsg(self.receiving.as_fd(), &mut parts, &mut no_control, flags)?;
        if received.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let len = received.bytes.checked_sub(HEAD_BYTES);
        Ok(len.and_then(|len| Some(DatagramHead::from_bytes(&head)?.meta(len))))
    }
}

impl AsRawFd for Inbox {
    fn as_raw_fd(&self) -> RawFd {
        self.receiving.as_raw_fd()
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let own = &self.routes.own;
        let mut own = own.write().unwrap_or_else(PoisonError::into_inner);
        own[usize::from(self.endpoint.number)] = None;
    }
}

fn send(inbox: &OwnedFd, head: DatagramHead, datagram: &[u8]) -> Result<(), Errno> {
    let head = head.to_bytes();
    let parts = [IoSlice::new(&head), IoSlice::new(datagram)];
    let mut no_control = SendAncillaryBuffer::default();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(inbox, &parts, &mut no_control, flags).map(drop)
}

/// Returns true unless the receiving end has closed.
fn is_open(inbox: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(inbox, PollFlags::empty())];
    let at_once = Timespec::default();
    let result = poll(&mut polled, Some(&at_once));
    result.is_err() || !polled[0].revents().contains(PollFlags::HUP)
}

/// Handles a message of an inbox, then its datagram as if a socket had received it. Panics unless heads have one form,
/// and ids are read as they were made. For the fuzz target.
pub fn check_datagram(message: &[u8]) {
    let Some((head, datagram)) = message.split_first_chunk::<HEAD_BYTES>() else {
        return;
    };
    if let Some(read) = DatagramHead::from_bytes(head) {
        assert_eq!(read.to_bytes(), *head);
    }
    let secret = [7; 32];
    let cipher = QuicKeys::new(&secret).ids;
    if let Destination::Issued(id) | Destination::Long(id) = Destination::of(datagram) {
        assert!(datagram.windows(id.len()).any(|bytes| bytes == id));
        cipher.check(id);
    }
}

/// The least time between two stateless resets of an endpoint: none. All clients of a process that has ended send
/// datagrams at the same time, and a client whose datagram is not answered tries again later and later. A reset is
/// shorter than its datagram, and hardly any datagram with an unknown id reaches an endpoint (`owner`).
const RESET_INTERVAL: Duration = Duration::ZERO;

/// The bound of the queue of an inbox, as that of the buffer of a socket. The kernel lowers it to
/// `net.core.wmem_max`, 208 KiB by default, and doubles it. It charges 2.3 KB for a datagram of 1.2 KB, so the queue
/// has 185 of these by default, and about 3600 at most.
const INBOX_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests;
