//! The fast lane: hits on an HTTP/1.1 connection answered beneath hyper.
//!
//! A hit of a kilobyte costs hyper 6.8 µs, most of it the kernel's; what hyper adds (a map for the
//! request, a map for the response, a walk over it to write it down) is most of the rest. The lane
//! sits in the connection's [`ClientIo`](crate::client::io::ClientIo). It serves the connection alone until something comes that is
//! not for it; from then on hyper does, and asks for its bytes here. As
//! long as hyper owes no response the lane looks at the next head itself: a plain GET for something fresh
//! in memory is answered from there, its head copied from the block that was written when the
//! response was stored, and hyper never hears of it. A plain GET for anything else takes the common way
//! through the edge, but its head is read and its response written [here](own) too. Anything else is handed to
//! hyper byte for byte, one request at a time, so that the lane knows when hyper is done with it.
//!
//! Four states. At the *boundary* every byte given to hyper has been answered and flushed. *Own*: a response is
//! awaited or written by the lane itself. *Handed*:
//! hyper has one request, whose end is known or is [found](body_end) as its body passes, and owes its response; what
//! arrives meanwhile waits here. *Through*: something came whose end only hyper can find (a tunnel, a bad or very long
//! head, an unusual length); from then on all bytes go straight through, for as long as the connection lives.

mod at_once;
mod body_end;
mod glance;
mod outbox;
mod own;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use edgeward_types::KeyHash;
use http::Method;
use tokio::io::ReadBuf;

use crate::cache::disk::Looked;
use crate::cache::disk_body::BrokenRead;
use crate::cache::pinned::Holding;
use crate::client::stream::ClientStream;
use crate::exchange::InFlight;
use crate::exchange::{ClientLink, Refusal};
use crate::path::worker::Worker;
use at_once::{Answer, Site, answer};
use body_end::BodyEnd;
use glance::{Glance, glance, no_fields};
use outbox::Outbox;
use own::{Own, Places, Put};

/// One connection's lane.
pub(crate) struct Lane {
    worker: Rc<Worker>,
    link: ClientLink,
    mode: Mode,
    /// The request that is being served here, in [`Mode::Own`].
    own: Option<Box<Own>>,
    /// Whom the last plain request was for: the next one's mostly is the same.
    site: Option<Site>,
    /// What has arrived and is not yet hyper's.
    inbox: BytesMut,
    /// The client will send no more, or no more is read from it.
    ended: bool,
    /// The client has sent more than the last request.
    overran: bool,
    outbox: Outbox,
    /// Held while the client is slow to take what is in the outbox; with it the connection lists what the client has not taken.
    writing: Option<(InFlight, Option<Holding>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Boundary,
    Own,
    /// The request is given to hyper up to its end.
    Handed(BodyEnd),
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
    pub(crate) fn new(worker: Rc<Worker>, link: ClientLink, read_ahead: Bytes) -> Self {
        if !read_ahead.is_empty() {
            link.conn.received();
        }
        Self {
            worker,
            link,
            mode: Mode::Boundary,
            own: None,
            site: None,
            inbox: BytesMut::from(read_ahead),
            ended: false,
            overran: false,
            outbox: Outbox::default(),
            writing: None,
        }
    }

    /// Serves what it can by itself; ready when it is hyper's turn to read, or at an error.
    pub(crate) fn poll_serve<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut answers_left = ANSWERS_A_TURN;
        loop {
            if !self.outbox.is_empty() {
                ready!(self.poll_outbox(stream, cx))?;
            }
            if let Mode::Handed(end) = self.mode
                && end.is_reached()
                && self.link.conn.is_settled()
            {
                self.mode = Mode::Boundary;
                self.next_head_began();
            }
            match self.mode {
                Mode::Through | Mode::Handed(_) => return Poll::Ready(Ok(())),
                Mode::Own => {
                    ready!(self.poll_own(stream, cx))?;
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

    /// hyper asks for bytes.
    pub(crate) fn poll_read<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_serve(stream, cx))?;
            match self.mode {
                Mode::Handed(end) if end.is_reached() => {
                    // hyper only wants to know whether the client is still there.
                    if self.inbox.len() >= INBOX_BYTES_MAX {
                        return Poll::Pending;
                    }
                    ready!(self.poll_fill(stream, cx))?;
                    if self.ended {
                        return Poll::Ready(Ok(()));
                    }
                }
                Mode::Handed(end) => return self.give_up_to(end, stream, cx, buffer),
                _ => return self.give(stream, cx, buffer),
            }
        }
    }

    /// Writes interim responses to the request that hyper serves. Must not be called while a part of hyper's last message is
    /// unwritten.
    ///
    /// Where hyper takes requests [through](Mode::Through), the end of its last message is unknown here.
    pub(crate) fn poll_interims<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !matches!(self.mode, Mode::Handed(_)) {
            return Poll::Ready(Ok(()));
        }
        if let Some(lines) = self.link.conn.take_interims() {
            self.outbox.push_lines(&lines);
        }
        while !self.outbox.is_empty() {
            ready!(self.poll_outbox(stream, cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// hyper has flushed all it had.
    pub(crate) fn flushed(&mut self, cx: &Context<'_>) {
        self.link.conn.settle();
        self.log_ended();
        // hyper reads ahead of its own answer and takes a "not now" for "when more arrives": what
        // has arrived already would wait for ever.
        if matches!(self.mode, Mode::Handed(end) if end.is_reached())
            && self.link.conn.is_settled()
            && (!self.inbox.is_empty() || self.ended)
        {
            cx.waker().wake_by_ref();
        }
    }

    /// Looks at what has arrived between two of hyper's requests.
    fn poll_boundary<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        answers_left: &mut u32,
    ) -> Poll<io::Result<()>> {
        let mut fields = no_fields();
        let found = if self.inbox.is_empty() {
            Glance::Partial
        } else {
            glance(&self.inbox, &mut fields)
        };
        match found {
            Glance::Plain(plain) => {
                let (head_bytes, closes) = (plain.head_bytes, plain.closes);
                if self.link.conn.is_draining() {
                    // hyper knows how to say goodbye.
                    self.hand(BodyEnd::length(head_bytes, 0));
                    return Poll::Ready(Ok(()));
                }
                *answers_left -= 1;
                match answer(
                    &self.worker,
                    &self.link,
                    &plain,
                    &mut self.site,
                    &mut self.outbox,
                ) {
                    Answer::Whole => {
                        self.inbox.advance(head_bytes);
                        self.link.conn.answered_at_once();
                        if closes {
                            self.read_no_more();
                        }
                        self.next_head_began();
                    }
                    Answer::Begun(own) => {
                        self.inbox.advance(head_bytes);
                        self.serve_own(own);
                    }
                    Answer::None(looked) => {
                        let places = Places::of(&plain, &self.inbox, self.site.as_ref());
                        self.take_on(head_bytes, &places, looked);
                    }
                }
            }
            Glance::Bounded { end, .. } => self.hand(end),
            Glance::Fragment(method) => self.refuse(method, &Refusal::fragment()),
            Glance::Other if self.is_other_protocol() => {
                self.worker.counters.closed_protocol.one();
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            Glance::Other => self.mode = Mode::Through,
            Glance::Partial if self.ended => self.mode = Mode::Through,
            Glance::Partial if self.inbox.len() >= INBOX_BYTES_MAX => {
                // Before its line has ended a target may grow as long as is allowed, and no longer.
                if memchr::memchr(b'\n', &self.inbox).is_some() {
                    self.mode = Mode::Through;
                } else if self.inbox.len() as u64 > self.request_line_bytes_max() {
                    self.refuse(Method::GET, &Refusal::target_too_long());
                } else {
                    return self.poll_fill(stream, cx);
                }
            }
            Glance::Partial => return self.poll_fill(stream, cx),
        }
        Poll::Ready(Ok(()))
    }

    /// The next `head_bytes` are one plain request: serves it here. `looked`: its key's hash and what lies under it, if that was
    /// looked up.
    fn take_on(&mut self, head_bytes: usize, places: &Places, looked: Option<(KeyHash, Looked)>) {
        let head = self.inbox.split_to(head_bytes).freeze();
        match Own::begin(&self.worker, &self.link, &head, places, looked) {
            Some(own) => self.serve_own(Box::new(own)),
            None => {
                let rest = std::mem::replace(&mut self.inbox, BytesMut::from(head));
                self.inbox.extend_from_slice(&rest);
                self.hand(BodyEnd::length(head_bytes, 0));
            }
        }
    }

    /// Whether a connection without TLS begins with a line whose third word is no version of HTTP. Its client does not
    /// speak HTTP/1.1, and may take an answer for frames of its own protocol.
    fn is_other_protocol(&self) -> bool {
        if self.link.tls || self.site.is_some() {
            return false;
        }
        let Some(end) = memchr::memchr(b'\n', &self.inbox) else {
            return false;
        };
        let mut words = self.inbox[..end]
            .trim_ascii_end()
            .split(|&byte| byte == b' ');
        words
            .nth(2)
            .is_some_and(|word| !words.next_back().unwrap_or(word).starts_with(b"HTTP/"))
    }

    /// Answers a request that hyper would read otherwise. Nothing behind its head is read.
    fn refuse(&mut self, method: Method, refusal: &Refusal) {
        let own = Own::refuse(&self.worker, &self.link, method, refusal);
        self.serve_own(Box::new(own));
    }

    /// A target as long as allowed, and room for what stands around it: a method, an absolute target's authority.
    fn request_line_bytes_max(&self) -> u64 {
        let target = self.worker.config().limits.target_bytes_max.bytes();
        target + REQUEST_LINE_BYTES
    }

    fn serve_own(&mut self, own: Box<Own>) {
        self.own = Some(own);
        self.mode = Mode::Own;
        // A draining edge waits for the response.
        self.link.conn.set_lane_writes(true);
    }

    /// Serves the request that was taken on.
    fn poll_own<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.own.as_mut().expect("the mode says so");
        match own.poll_put(&self.worker, &self.link, &mut self.outbox, cx) {
            Poll::Ready(Ok(Put::Bytes)) => Poll::Ready(Ok(())),
            Poll::Ready(Ok(Put::End { closes })) => {
                self.leave_own(cx);
                self.log_ended();
                if closes {
                    self.read_no_more();
                }
                self.next_head_began();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                // The client sees its response cut short, as it was.
                self.leave_own(cx);
                Poll::Ready(Err(error))
            }
            Poll::Pending => {
                // No other code listens meanwhile: a reset is noticed here, and the request given up. A client that
                // only half-closes has said all it will and waits for its response (RFC 9112 §9.6).
                while self.inbox.len() < INBOX_BYTES_MAX && !self.ended {
                    match self.poll_fill(stream, cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            self.leave_own(cx);
                            return Poll::Ready(Err(error));
                        }
                        Poll::Pending => break,
                    }
                }
                Poll::Pending
            }
        }
    }

    /// The connection ends with the response that was made last.
    fn read_no_more(&mut self) {
        self.overran = !self.inbox.is_empty();
        self.inbox.clear();
        self.ended = true;
    }

    /// Returns true if no request is left, and hyper was given none whose response is due.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.inbox.is_empty() && self.mode == Mode::Through
    }

    /// Returns true if the client has sent more than was read as requests.
    pub(crate) fn overran(&self) -> bool {
        self.overran
    }

    fn leave_own(&mut self, cx: &Context<'_>) {
        self.own = None;
        self.mode = Mode::Boundary;
        self.link.conn.set_lane_writes(false);
        if self.link.conn.is_draining() {
            // The connection's task waited for this with hyper's shutdown.
            cx.waker().wake_by_ref();
        }
    }

    /// Logs responses that have left whole.
    fn log_ended(&self) {
        if self.link.conn.has_logs() {
            for log in self.link.conn.take_logs() {
                self.worker.log(log.finish());
            }
        }
    }

    /// What is left in the inbox after an answer is the start of a head, and has a head's time.
    fn next_head_began(&self) {
        if !self.inbox.is_empty() {
            self.link.conn.received();
        }
    }

    /// Writes what is in the outbox. While the client is slow the request counts as under way.
    fn poll_outbox<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let arena = self.worker.cache.arena.as_deref();
        let written = self.outbox.poll_write(stream, &self.link.conn, arena, cx);
        self.worker
            .counters
            .response_bytes
            .add(self.outbox.take_body_written());
        if let Poll::Ready(Err(error)) = &written
            && error
                .get_ref()
                .is_some_and(|error| error.is::<BrokenRead>())
        {
            // The disk no longer has what the head promised.
            match &mut self.own {
                Some(own) => own.cut(&self.worker),
                None => self.worker.counters.disk_body_cut.one(),
            }
        }
        if written.is_pending() {
            if self.writing.is_none() {
                let (body, memory) = self.outbox.held();
                let conn = &self.link.conn;
                let holding = Holding::new(&self.worker.cache.hot, conn, memory, body);
                self.writing = Some((conn.begin(), holding));
                self.link.conn.set_lane_writes(true);
            }
        } else if self.writing.take().is_some() && self.own.is_none() {
            self.link.conn.set_lane_writes(false);
            if self.link.conn.is_draining() {
                // The connection's task waited for this with hyper's shutdown.
                cx.waker().wake_by_ref();
            }
        }
        written
    }

    /// The bytes up to `end` are one request, for hyper.
    fn hand(&mut self, end: BodyEnd) {
        self.link.conn.unsettle();
        self.mode = Mode::Handed(end);
    }

    /// Reads from the client into the inbox.
    fn poll_fill<S: ClientStream>(
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
            self.link.conn.received();
        }
        Poll::Ready(Ok(()))
    }

    /// Gives hyper bytes of the request that ends at `end`. What lies behind waits here.
    fn give_up_to<S: ClientStream>(
        &mut self,
        mut end: BodyEnd,
        stream: &mut S,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(self.give(stream, cx, buffer))?;
        let given = &buffer.filled()[before..];
        let Ok(taken) = end.take(given) else {
            // hyper decides what this is.
            self.mode = Mode::Through;
            return Poll::Ready(Ok(()));
        };
        self.mode = Mode::Handed(end);
        if taken < given.len() {
            let mut inbox = BytesMut::from(&given[taken..]);
            inbox.extend_from_slice(&self.inbox);
            self.inbox = inbox;
            buffer.set_filled(before + taken);
        }
        Poll::Ready(Ok(()))
    }

    /// Gives hyper what is in the inbox, or what comes from the client.
    fn give<S: ClientStream>(
        &mut self,
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
                self.link.conn.received();
            }
            return Poll::Ready(Ok(()));
        }
        let n = self.inbox.len().min(buffer.remaining());
        buffer.put_slice(&self.inbox[..n]);
        self.inbox.advance(n);
        if self.inbox.is_empty() {
            self.inbox = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Lane {
    /// Logs what has not left whole, as far as it came.
    fn drop(&mut self) {
        // Its line is held from here on.
        self.own = None;
        self.link.conn.lane_is_gone();
        if !self.link.conn.has_logs() {
            return;
        }
        let is_hypers = matches!(self.mode, Mode::Handed { .. } | Mode::Through);
        for mut log in self.link.conn.take_logs() {
            log.cut(|given| {
                if is_hypers {
                    self.link.conn.body_bytes_written()
                } else {
                    given.saturating_sub(self.outbox.body_left())
                }
            });
            self.worker.log(log.finish());
        }
    }
}

/// Responses in a row before other connections get their turn: a client that pipelines must not
/// keep a core to itself. hyper's own limit is 16 turns.
const ANSWERS_A_TURN: u32 = 32;

/// What stands in a request line besides the target: the method, the version, and an absolute target's authority.
const REQUEST_LINE_BYTES: u64 = 1024;

/// Bytes that may wait here. A head that is longer goes to hyper, which has the configured limits.
const INBOX_BYTES_MAX: usize = 16 * 1024;

/// Bytes of one read: a head with everything browsers put in it is about 2 KiB.
const READ_BYTES: usize = 8 * 1024;

/// Reads a request's head as the lane does, for [`hostile`](crate::hostile).
pub(crate) fn check_request(bytes: &[u8]) {
    match glance(bytes, &mut no_fields()) {
        Glance::Plain(plain) => {
            assert!(plain.target.starts_with('/') && !plain.target.contains('#'));
            assert!(bytes[..plain.head_bytes].ends_with(b"\n"));
        }
        Glance::Bounded { head_bytes, end } => {
            assert!(bytes[..head_bytes].ends_with(b"\n"));
            // The end does not depend on how the bytes are cut.
            let mut by_one = end;
            let mut one_by_one = || {
                let mut taken = 0;
                for byte in bytes.chunks(1) {
                    taken += by_one.take(byte)?;
                }
                Ok((taken, by_one))
            };
            let mut at_once = end;
            let all = at_once.take(bytes).map(|taken| (taken, at_once));
            assert_eq!(one_by_one(), all);
        }
        Glance::Fragment(_) | Glance::Partial | Glance::Other => {}
    }
}
