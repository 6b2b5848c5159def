//! The fast path: plain requests on an HTTP/1.1 connection, served beneath hyper.
//!
//! A hit of a kilobyte costs hyper 6.8 µs, and most of what hyper adds to the kernel's work are two maps of header fields. The
//! fast path is part of the connection's [`ClientIo`](crate::client::io::ClientIo). It parses the head of the next request itself.
//! A plain GET or HEAD is looked up from its bytes. A hit is answered from the block that was written when the response was
//! stored; for any other outcome a request is built, and the [`response`] is written here too. Every other request is handed
//! to hyper byte by byte, one at a time. A connection with plain requests only never becomes hyper's.
//!
//! A connection is in one of four modes. *Boundary*: every request was answered, and the next head is parsed here. *Serving*: a
//! response is awaited or written here. *Handed*: hyper has one request, whose end is known or is [found](body_end) as its
//! body passes; bytes behind it wait here. *Through*: only hyper can find the end of a request (a tunnel, a bad head, an unusual
//! length), so it gets all further bytes of the connection.

mod body_end;
mod handover;
mod head;
mod head_parts;
mod hit;
mod hostile;
mod outbox;
mod response;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::Method;
use tokio::io::ReadBuf;

use crate::base::partial_head::PartialHead;
use crate::cache::disk_body::BrokenRead;
use crate::cache::pinned::Holding;
use crate::client::stream::ClientStream;
use crate::exchange::InFlight;
use crate::exchange::{ClientLink, Refusal};
use crate::path::lookup::Outcome;
use crate::path::worker::Worker;
use body_end::BodyEnd;
use head::{ParsedHead, no_fields, parse};
use head_parts::HeadParts;
use hit::{Answer, Site, answer};
pub(crate) use hostile::check_request;
use outbox::Outbox;
use response::{Progress, ResponseWriter};

/// One connection's fast path.
pub(crate) struct FastPath {
    worker: Rc<Worker>,
    link: ClientLink,
    mode: Mode,
    /// The request that is being served here, in [`Mode::Serving`].
    response: Option<Box<ResponseWriter>>,
    /// Whom the last plain request was for: the next one's mostly is the same.
    site: Option<Site>,
    /// What has arrived and is not yet hyper's.
    inbox: BytesMut,
    /// How far the head at the front of the inbox was parsed.
    partial: PartialHead,
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
    Serving,
    /// The request is given to hyper up to its end.
    Handed(BodyEnd),
    Through,
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
    /// `read_ahead` is what was read before the protocol was known.
    pub(crate) fn new(worker: Rc<Worker>, link: ClientLink, read_ahead: Bytes) -> Self {
        if !read_ahead.is_empty() {
            link.conn.received();
        }
        Self {
            worker,
            link,
            mode: Mode::Boundary,
            response: None,
            site: None,
            inbox: BytesMut::from(read_ahead),
            partial: PartialHead::default(),
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
                && self.link.conn.hyper_is_done()
            {
                self.mode = Mode::Boundary;
                self.next_head_began();
            }
            match self.mode {
                Mode::Through | Mode::Handed(_) => return Poll::Ready(Ok(())),
                Mode::Serving => {
                    ready!(self.poll_response(stream, cx))?;
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
        self.link.conn.hyper_flushed();
        self.log_ended();
        // hyper reads ahead of its own answer and takes a "not now" for "when more arrives": what
        // has arrived already would wait for ever.
        if matches!(self.mode, Mode::Handed(end) if end.is_reached())
            && self.link.conn.hyper_is_done()
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
        let found = if self.inbox.is_empty() || !self.partial.may_be_complete(&self.inbox) {
            ParsedHead::Partial
        } else {
            parse(&self.inbox, &mut fields)
        };
        match found {
            ParsedHead::Partial if !self.inbox.is_empty() => {
                self.partial.mark_incomplete(self.inbox.len());
            }
            _ => self.partial.reset(),
        }
        match found {
            ParsedHead::Plain(plain) => {
                let (head_bytes, closes) = (plain.bytes.len(), plain.closes);
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
                        self.link.conn.fast_path_answered();
                        if closes {
                            self.read_no_more();
                        }
                        self.next_head_began();
                    }
                    Answer::Begun(response) => {
                        self.inbox.advance(head_bytes);
                        self.begin_response(response);
                    }
                    Answer::Open(outcome) => {
                        let is_canonical = |site: &Site| site.is_canonical(plain.host);
                        let parts =
                            HeadParts::of(&plain, self.site.as_ref().is_some_and(is_canonical));
                        self.take_on(head_bytes, &parts, outcome);
                    }
                }
            }
            ParsedHead::Bounded { end, .. } => self.hand(end),
            ParsedHead::Fragment(method) => self.refuse(method, &Refusal::fragment()),
            ParsedHead::Other if self.is_other_protocol() => {
                self.worker.counters.closed_protocol.increment();
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            ParsedHead::Other => self.mode = Mode::Through,
            ParsedHead::Partial if self.ended => self.mode = Mode::Through,
            ParsedHead::Partial if self.inbox.len() >= INBOX_BYTES_MAX => {
                // Before its line has ended a target may grow as long as is allowed, and no longer.
                if memchr::memchr(b'\n', &self.inbox).is_some() {
                    self.mode = Mode::Through;
                } else if self.inbox.len() as u64 > self.request_line_bytes_max() {
                    self.refuse(Method::GET, &Refusal::target_too_long());
                } else {
                    return self.poll_fill(stream, cx);
                }
            }
            ParsedHead::Partial => return self.poll_fill(stream, cx),
        }
        Poll::Ready(Ok(()))
    }

    /// The next `head_bytes` are one plain request: serves it here. `outcome` is that of its lookup, if it was looked up.
    fn take_on(&mut self, head_bytes: usize, parts: &HeadParts, outcome: Option<Outcome>) {
        let head = self.inbox.split_to(head_bytes).freeze();
        match ResponseWriter::begin(&self.worker, &self.link, &head, parts, outcome) {
            Some(response) => self.begin_response(Box::new(response)),
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
        let response = ResponseWriter::refuse(&self.worker, &self.link, method, refusal);
        self.begin_response(Box::new(response));
    }

    /// A target as long as allowed, and room for what stands around it: a method, an absolute target's authority.
    fn request_line_bytes_max(&self) -> u64 {
        let target = self.worker.config().limits.target_bytes_max.bytes();
        target + REQUEST_LINE_BYTES
    }

    fn begin_response(&mut self, response: Box<ResponseWriter>) {
        self.response = Some(response);
        self.mode = Mode::Serving;
        // A draining edge waits for the response.
        self.link.conn.set_fast_path_writes(true);
    }

    /// Serves the request that was taken on.
    fn poll_response<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let response = self.response.as_mut().expect("the mode says so");
        match response.poll_fill(&self.worker, &self.link, &mut self.outbox, cx) {
            Poll::Ready(Ok(Progress::Bytes)) => Poll::Ready(Ok(())),
            Poll::Ready(Ok(Progress::End { closes })) => {
                self.end_response(cx);
                self.log_ended();
                if closes {
                    self.read_no_more();
                }
                self.next_head_began();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                // The client sees its response cut short, as it was.
                self.end_response(cx);
                Poll::Ready(Err(error))
            }
            Poll::Pending => {
                // No other code listens meanwhile: a reset is noticed here, and the request given up. A client that
                // only half-closes has said all it will and waits for its response (RFC 9112 §9.6).
                while self.inbox.len() < INBOX_BYTES_MAX && !self.ended {
                    match self.poll_fill(stream, cx) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => {
                            self.end_response(cx);
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

    fn end_response(&mut self, cx: &Context<'_>) {
        self.response = None;
        self.mode = Mode::Boundary;
        self.link.conn.set_fast_path_writes(false);
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
            match &mut self.response {
                Some(response) => response.cut(&self.worker),
                None => self.worker.counters.disk_body_cut.increment(),
            }
        }
        if written.is_pending() {
            if self.writing.is_none() {
                let (body, memory) = self.outbox.held();
                let conn = &self.link.conn;
                let holding = Holding::new(&self.worker.cache.hot, conn, memory, body);
                self.writing = Some((conn.begin(), holding));
                self.link.conn.set_fast_path_writes(true);
            }
        } else if self.writing.take().is_some() && self.response.is_none() {
            self.link.conn.set_fast_path_writes(false);
            if self.link.conn.is_draining() {
                // The connection's task waited for this with hyper's shutdown.
                cx.waker().wake_by_ref();
            }
        }
        written
    }

    /// The bytes up to `end` are one request, for hyper.
    fn hand(&mut self, end: BodyEnd) {
        self.link.conn.hyper_begins();
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
}

impl Drop for FastPath {
    /// Logs what has not left whole, as far as it came.
    fn drop(&mut self) {
        // Its line is held from here on.
        self.response = None;
        self.link.conn.set_fast_path_gone();
        if !self.link.conn.has_logs() {
            return;
        }
        let is_hypers = matches!(self.mode, Mode::Handed { .. } | Mode::Through);
        for mut log in self.link.conn.take_logs() {
            log.truncate(|given| {
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
