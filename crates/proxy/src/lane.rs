//! The fast lane: hits on an HTTP/1.1 connection answered beneath hyper.
//!
//! A hit of a kilobyte costs hyper 6.8 µs, most of it the kernel's; what hyper adds (a map for the
//! request, a map for the response, a walk over it to write it down) is most of the rest. The lane
//! sits in the connection's [`ClientIo`](crate::client_io::ClientIo), where hyper asks for bytes. As
//! long as hyper owes no response it looks at the next head itself: a plain GET for something fresh
//! in memory is answered from there, its head copied from the block that was written when the
//! response was stored, and hyper never hears of it. Anything else is handed to hyper byte for byte,
//! one request at a time, so that the lane knows when hyper is done with it.
//!
//! Three states. At the *boundary* every byte given to hyper has been answered and flushed. *Handed*:
//! hyper has one request, whose end is known, and owes its response; what arrives meanwhile waits
//! here. *Through*: something came whose end only hyper can find (a body, an upgrade, a bad head);
//! from then on all bytes go straight through, for as long as the connection lives.

mod glance;

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use edgeward_semantics::{CacheStatus, Target};
use edgeward_types::Timestamp;
use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::client_io::{ConnState, InFlight};
use crate::request::plain_hit;
use crate::stored::StoredResponse;
use crate::worker::Worker;
use glance::{Glance, Plain, glance};

/// One connection's lane.
pub(crate) struct Lane {
    worker: Rc<Worker>,
    state: Rc<ConnState>,
    scheme: &'static str,
    mode: Mode,
    /// What has arrived and is not yet hyper's.
    inbox: BytesMut,
    /// The client will send no more.
    ended: bool,
    outbox: Outbox,
    /// Held while the client is slow to take what is in the outbox.
    writing: Option<InFlight>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Boundary,
    /// So many bytes of the request are still to be given.
    Handed {
        left: usize,
    },
    Through,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("mode", &self.mode)
            .field("inbox_bytes", &self.inbox.len())
            .finish_non_exhaustive()
    }
}

impl Lane {
    /// `read_ahead` is what was read before the protocol was known.
    pub(crate) fn new(
        worker: Rc<Worker>,
        state: Rc<ConnState>,
        scheme: &'static str,
        read_ahead: Bytes,
    ) -> Self {
        if !read_ahead.is_empty() {
            state.received();
        }
        Self {
            worker,
            state,
            scheme,
            mode: Mode::Boundary,
            inbox: BytesMut::from(read_ahead),
            ended: false,
            outbox: Outbox::default(),
            writing: None,
        }
    }

    /// hyper asks for bytes.
    pub(crate) fn poll_read<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut answers_left = ANSWERS_A_TURN;
        loop {
            if !self.outbox.is_empty() {
                ready!(self.poll_outbox(stream, cx))?;
            }
            if let Mode::Handed { left: 0 } = self.mode
                && self.state.is_settled()
            {
                self.mode = Mode::Boundary;
                self.next_head_began();
            }
            match self.mode {
                Mode::Through => return self.give(usize::MAX, stream, cx, buffer),
                Mode::Handed { left: 0 } => {
                    // hyper only wants to know whether the client is still there.
                    if self.inbox.len() >= INBOX_BYTES_MAX {
                        return Poll::Pending;
                    }
                    ready!(self.poll_fill(stream, cx))?;
                    if self.ended {
                        return Poll::Ready(Ok(()));
                    }
                }
                Mode::Handed { left } => {
                    let before = buffer.filled().len();
                    ready!(self.give(left, stream, cx, buffer))?;
                    let left = left - (buffer.filled().len() - before);
                    self.mode = Mode::Handed { left };
                    return Poll::Ready(Ok(()));
                }
                Mode::Boundary => {
                    if answers_left == 0 {
                        // Others' connections want their turn; this one comes back.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    ready!(self.poll_boundary(stream, cx, &mut answers_left))?;
                }
            }
        }
    }

    /// hyper has flushed all it had.
    pub(crate) fn flushed(&mut self, cx: &Context<'_>) {
        self.state.settle();
        // hyper reads ahead of its own answer and takes a "not now" for "when more arrives": what
        // has arrived already would wait for ever.
        if matches!(self.mode, Mode::Handed { left: 0 })
            && self.state.is_settled()
            && (!self.inbox.is_empty() || self.ended)
        {
            cx.waker().wake_by_ref();
        }
    }

    /// Looks at what has arrived between two of hyper's requests.
    fn poll_boundary<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        answers_left: &mut u32,
    ) -> Poll<io::Result<()>> {
        let found = if self.inbox.is_empty() {
            Glance::Partial
        } else {
            glance(&self.inbox)
        };
        match found {
            Glance::Plain(plain) => {
                let head_bytes = plain.head_bytes;
                if !self.state.is_draining()
                    && answer(&self.worker, self.scheme, &plain, &mut self.outbox)
                {
                    self.inbox.advance(head_bytes);
                    self.state.answered_at_once();
                    self.next_head_began();
                    *answers_left -= 1;
                } else {
                    self.hand(head_bytes);
                }
            }
            Glance::Bodyless { head_bytes } => self.hand(head_bytes),
            Glance::Other => self.mode = Mode::Through,
            Glance::Partial if self.ended || self.inbox.len() >= INBOX_BYTES_MAX => {
                self.mode = Mode::Through;
            }
            Glance::Partial => return self.poll_fill(stream, cx),
        }
        Poll::Ready(Ok(()))
    }

    /// What is left in the inbox after an answer is the start of a head, and has a head's time.
    fn next_head_began(&self) {
        if !self.inbox.is_empty() {
            self.state.received();
        }
    }

    /// Writes what is in the outbox. While the client is slow the request counts as under way.
    fn poll_outbox<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let written = self.outbox.poll_write(stream, &self.state, cx);
        if written.is_pending() {
            if self.writing.is_none() {
                self.writing = Some(self.state.begin());
                self.state.set_lane_writes(true);
            }
        } else if self.writing.take().is_some() {
            self.state.set_lane_writes(false);
            if self.state.is_draining() {
                // The connection's task waited for this with hyper's shutdown.
                cx.waker().wake_by_ref();
            }
        }
        written
    }

    /// The next `head_bytes` are one request, for hyper.
    fn hand(&mut self, head_bytes: usize) {
        self.state.unsettle();
        self.mode = Mode::Handed { left: head_bytes };
    }

    /// Reads from the client into the inbox.
    fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        // On the stack and copied: an idle connection then holds no buffer at all.
        let mut space = [std::mem::MaybeUninit::uninit(); READ_BYTES];
        let mut space = ReadBuf::uninit(&mut space);
        ready!(Pin::new(stream).poll_read(cx, &mut space))?;
        if space.filled().is_empty() {
            self.ended = true;
        } else {
            self.inbox.extend_from_slice(space.filled());
            self.state.received();
        }
        Poll::Ready(Ok(()))
    }

    /// Gives hyper what is in the inbox, `most` bytes of it, or what comes from the client.
    fn give<S: AsyncRead + Unpin>(
        &mut self,
        most: usize,
        stream: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.inbox.is_empty() {
            if self.ended {
                return Poll::Ready(Ok(()));
            }
            let before = buffer.filled().len();
            ready!(Pin::new(stream).poll_read(cx, buffer))?;
            if buffer.filled().len() > before {
                self.state.received();
            }
            return Poll::Ready(Ok(()));
        }
        let n = self.inbox.len().min(buffer.remaining()).min(most);
        buffer.put_slice(&self.inbox[..n]);
        self.inbox.advance(n);
        if self.inbox.is_empty() {
            self.inbox = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

/// Answers a plain request into `outbox` if a fresh response to it is in memory.
fn answer(worker: &Worker, scheme: &'static str, plain: &Plain<'_>, outbox: &mut Outbox) -> bool {
    if worker.logs() {
        // A line of the access log wants fields that were not looked at here.
        return false;
    }
    let Ok(target) = Target::new(scheme, plain.host, plain.target) else {
        return false;
    };
    let now = worker.now();
    plain_hit(worker, &target, now, |response| {
        outbox.push(worker, response, now, plain.head_only);
    })
}

/// What is on its way to the client.
#[derive(Default)]
struct Outbox {
    head: Vec<u8>,
    head_written: usize,
    body: Bytes,
    /// The most of the body that one call offers the kernel.
    piece_bytes: usize,
}

impl Outbox {
    fn push(
        &mut self,
        worker: &Worker,
        response: &StoredResponse,
        now: Timestamp,
        head_only: bool,
    ) {
        let head = &mut self.head;
        if response.status == StatusCode::OK {
            head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            let reason = response.status.canonical_reason().unwrap_or("");
            head.extend_from_slice(b"HTTP/1.1 ");
            head.extend_from_slice(response.status.as_str().as_bytes());
            head.extend_from_slice(b" ");
            head.extend_from_slice(reason.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(&response.head);
        head.extend_from_slice(b"age: ");
        let mut digits = itoa::Buffer::new();
        head.extend_from_slice(digits.format(response.policy.age_secs(now)).as_bytes());
        head.extend_from_slice(b"\r\ncache-status: ");
        let mut line = worker.line.borrow_mut();
        line.clear();
        CacheStatus::hit(response.policy.ttl_secs(now)).write(&worker.config().name, &mut line);
        head.extend_from_slice(line.as_bytes());
        head.extend_from_slice(b"\r\n\r\n");
        if !head_only {
            self.body = response.body.clone();
            self.piece_bytes = if self.body.len() <= MIDDLING_BYTES_MAX {
                MIDDLING_PIECE_BYTES
            } else {
                LARGE_PIECE_BYTES
            };
            worker.counters.response_bytes.add(self.body.len() as u64);
        }
    }

    /// Writes until nothing is left.
    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        state: &ConnState,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let head = &self.head[self.head_written..];
            let body = &self.body[..self.body.len().min(self.piece_bytes)];
            let stream = Pin::new(&mut *stream);
            let written = if head.is_empty() {
                stream.poll_write(cx, body)
            } else if body.is_empty() {
                stream.poll_write(cx, head)
            } else {
                stream.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(body)])
            };
            state.note_write(&written);
            let mut written = ready!(written)?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = written.min(head.len());
            self.head_written += of_head;
            written -= of_head;
            self.body.advance(written);
            if self.body.is_empty() {
                // Lets go of the object, which may have been evicted meanwhile.
                self.body = Bytes::new();
            }
        }
        self.head.clear();
        self.head_written = 0;
        Poll::Ready(Ok(()))
    }

    fn is_empty(&self) -> bool {
        self.head_written == self.head.len() && self.body.is_empty()
    }
}

/// Responses in a row before other connections get their turn: a client that pipelines must not
/// keep a core to itself. hyper's own limit is 16 turns.
const ANSWERS_A_TURN: u32 = 32;

/// Bytes that may wait here. A head that is longer goes to hyper, which has the configured limits.
const INBOX_BYTES_MAX: usize = 16 * 1024;

/// Bytes of one read: a head with everything browsers put in it is about 2 KiB.
const READ_BYTES: usize = 8 * 1024;

/// Bodies up to here go out in pieces of 64 KiB, larger ones as far as the kernel takes them.
///
/// Thousand hits per CPU-second on loopback by the size of a write, medians of two: 128 KiB bodies
/// in writes of 32, 64, 128 KiB: 24.0, 26.1, 16.9; 1 MiB bodies in writes of 64, 256 KiB, 1 MiB: 2.7,
/// 3.2, 3.5. Where the two meet was not measured.
const MIDDLING_BYTES_MAX: usize = 256 * 1024;
const MIDDLING_PIECE_BYTES: usize = 64 * 1024;
const LARGE_PIECE_BYTES: usize = 1024 * 1024;
