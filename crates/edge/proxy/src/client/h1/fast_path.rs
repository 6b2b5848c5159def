//! The state of a connection that the fast path serves, and the bytes that it has read, with the charge for them.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::ReadBuf;

use super::hit::{HostPrefix, LastCodings};
use super::outbox::Outbox;
use super::request_end::RequestEndScan;
use super::response::ResponseWriter;
use crate::cache::pinned::PinnedPiece;
use crate::client::stream::ClientStream;
use crate::exchange::partial_head::PartialHead;
use crate::exchange::{Client, Holding, InFlight};
use crate::observe::observation::Observation;
use crate::path::worker::{CurrentWorker, Worker};

/// One connection's fast path.
pub(crate) struct FastPath {
    pub(super) workers: Rc<CurrentWorker>,
    /// The generation of the last request.
    pub(super) worker: Rc<Worker>,
    pub(super) client: Client,
    pub(super) mode: Mode,
    /// The response that the fast path waits for or writes, in [`Mode::Serving`].
    pub(super) response: Option<Box<ResponseWriter>>,
    /// The host of the last plain request. The next request usually has the same host.
    pub(super) last_host: Option<HostPrefix>,
    pub(super) last_codings: LastCodings,
    /// Bytes that have arrived and that neither the fast path nor hyper has read.
    pub(super) inbox: BytesMut,
    /// The progress of parsing the head at the front of the inbox.
    pub(super) partial_head: PartialHead,
    /// True if the edge reads no more bytes, for example because the client has half-closed.
    pub(super) read_ended: bool,
    /// True if unread bytes follow the last request that the edge answers on this connection.
    pub(super) has_surplus: bool,
    pub(super) outbox: Outbox,
    /// The record of a hit whose whole response is in the outbox.
    pub(super) sent_hit: Option<Observation>,
    /// Set while the socket does not accept the outbox's bytes: counts the request as under way, and records the
    /// memory that the client pins and the records of TLS that the socket has not accepted.
    pub(super) pending_write: Option<(InFlight, Option<PinnedPiece>, Holding)>,
    /// The bytes of the current request that hyper got: at most those of the largest head.
    pub(super) hyper_bytes: usize,
    /// The charge for a large inbox or head.
    held: Holding,
}

/// The present task of the connection. [The fast path](super) explains the modes and their changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Boundary,
    Serving,
    /// hyper serves one request. The scan finds its end.
    HandedOver(RequestEndScan),
    Passthrough,
}

impl fmt::Debug for FastPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastPath")
            .field("mode", &self.mode)
            .field("inbox_bytes", &self.inbox.len())
            .finish_non_exhaustive()
    }
}

impl FastPath {
    /// Returns the fast path of a new connection. `read_ahead` has the bytes that were read to detect the protocol.
    pub(crate) fn new(workers: Rc<CurrentWorker>, client: Client, read_ahead: Bytes) -> Self {
        if !read_ahead.is_empty() {
            client.conn.record_received();
        }
        let held = client.conn.holding(0);
        Self {
            worker: workers.get(),
            workers,
            client,
            mode: Mode::Boundary,
            response: None,
            last_host: None,
            last_codings: LastCodings::default(),
            inbox: BytesMut::from(read_ahead),
            partial_head: PartialHead::default(),
            read_ended: false,
            has_surplus: false,
            outbox: Outbox::default(),
            sent_hit: None,
            pending_write: None,
            hyper_bytes: 0,
            held,
        }
    }

    /// Reads from the client into the inbox.
    pub(super) fn poll_inbox<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_ended {
            return Poll::Ready(Ok(()));
        }
        if self.inbox.is_empty() && self.held.bytes() > 0 && self.mode == Mode::Boundary {
            // A large head was here.
            self.inbox = BytesMut::new();
            self.charge(0);
        }
        // Bytes are read to the stack and copied, so that an idle connection has no buffer.
        let mut space = [std::mem::MaybeUninit::uninit(); READ_BYTES];
        let mut space = ReadBuf::uninit(&mut space);
        ready!(Pin::new(stream).poll_read(cx, &mut space))?;
        if space.filled().is_empty() {
            self.read_ended = true;
            self.client.conn.record_half_closed();
        } else {
            self.inbox.extend_from_slice(space.filled());
            self.client.conn.record_received();
            let held = usize::try_from(self.held.bytes()).unwrap_or(usize::MAX);
            self.charge(held.max(self.inbox.capacity() + self.hyper_bytes));
        }
        Poll::Ready(Ok(()))
    }

    /// Charges the bytes of heads and of the inbox, unless they are so few that each connection has them.
    pub(super) fn charge(&mut self, bytes: usize) {
        let bytes = if bytes > UNCHARGED_BYTES { bytes } else { 0 } as u64;
        if bytes != self.held.bytes() {
            self.held.set(bytes);
        }
    }

    /// Charges bytes that hyper got: it keeps a head until its request has ended, but not a body.
    pub(super) fn charge_given(&mut self, bytes: usize) {
        let head_max = self.worker.config().limits.head_len_max();
        self.hyper_bytes = (self.hyper_bytes + bytes).min(head_max);
        self.charge(self.hyper_bytes + self.inbox.capacity());
    }

    /// Returns true if the edge reads no more bytes and no response is pending in the fast path or in hyper.
    pub(crate) fn is_over(&self) -> bool {
        self.read_ended && self.inbox.is_empty() && self.mode == Mode::Passthrough
    }

    /// Counts bytes of bodies that hyper has written to the socket.
    pub(crate) fn count_response_bytes(&self, bytes: u64) {
        self.worker.counters.response_bytes.add(bytes);
    }

    /// Returns true if unread bytes follow the last request that the edge answers on this connection.
    pub(crate) fn has_surplus(&self) -> bool {
        self.has_surplus
    }
}

/// The bytes of a head and an inbox that are part of each connection's charge.
const UNCHARGED_BYTES: usize = 2 * 1024;

/// The most bytes of one read. The head of a browser's request has about 2 KiB.
const READ_BYTES: usize = 8 * 1024;

/// An incomplete head of this many bytes is passed to hyper, unless even its first line is incomplete.
pub(super) const INBOX_BYTES_MAX: usize = 16 * 1024;
