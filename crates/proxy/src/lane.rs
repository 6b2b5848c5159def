//! The fast lane: hits on an HTTP/1.1 connection answered beneath hyper.
//!
//! A hit of a kilobyte costs hyper 6.8 µs, most of it the kernel's; what hyper adds (a map for the
//! request, a map for the response, a walk over it to write it down) is most of the rest. The lane
//! sits in the connection's [`ClientIo`](crate::client_io::ClientIo), where hyper asks for bytes. As
//! long as hyper owes no response it looks at the next head itself: a plain GET for something fresh
//! in memory is answered from there, its head copied from the block that was written when the
//! response was stored, and hyper never hears of it. A plain GET for anything else takes the common way
//! through the edge, but its head is read and its response written [here](own) too. Anything else is handed to
//! hyper byte for byte, one request at a time, so that the lane knows when hyper is done with it.
//!
//! Four states. At the *boundary* every byte given to hyper has been answered and flushed. *Own*: a response is
//! awaited or written by the lane itself. *Handed*:
//! hyper has one request, whose end is known, and owes its response; what arrives meanwhile waits
//! here. *Through*: something came whose end only hyper can find (a body, an upgrade, a bad head);
//! from then on all bytes go straight through, for as long as the connection lives.

mod glance;
mod own;

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use edgeward_semantics::{CacheStatus, StoredPolicy, Target};
use edgeward_store::arena::Arena;
use edgeward_store::disk::{Piece, Span};
use edgeward_types::{KeyHash, Timestamp};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderName};
use tokio::io::ReadBuf;

use crate::body::{EdgeBody, Source};
use crate::client_io::{ConnState, InFlight};
use crate::client_stream::{ClientStream, FilePart};
use crate::disk::Looked;
use crate::disk::body::BrokenRead;
use crate::request::{self, ClientLink, DiskHit};
use crate::stored::StoredResponse;
use crate::worker::Worker;
use glance::{Glance, Plain, glance, no_fields};
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
    /// The client will send no more.
    ended: bool,
    outbox: Outbox,
    /// Held while the client is slow to take what is in the outbox.
    writing: Option<InFlight>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Boundary,
    Own,
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
            outbox: Outbox::default(),
            writing: None,
        }
    }

    /// hyper asks for bytes.
    pub(crate) fn poll_read<S: ClientStream>(
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
                && self.link.conn.is_settled()
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

    /// hyper has flushed all it had.
    pub(crate) fn flushed(&mut self, cx: &Context<'_>) {
        self.link.conn.settle();
        // hyper reads ahead of its own answer and takes a "not now" for "when more arrives": what
        // has arrived already would wait for ever.
        if matches!(self.mode, Mode::Handed { left: 0 })
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
                let head_bytes = plain.head_bytes;
                if self.link.conn.is_draining() {
                    // hyper knows how to say goodbye.
                    self.hand(head_bytes);
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
                        self.next_head_began();
                    }
                    Answer::Begun(own) => {
                        self.inbox.advance(head_bytes);
                        self.serve_own(own);
                    }
                    Answer::None(looked) => {
                        let places = Places::of(&plain, &self.inbox);
                        self.take_on(head_bytes, &places, looked);
                    }
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

    /// The next `head_bytes` are one plain request: serves it here. `looked`: its key's hash and what lies under it, if that was
    /// looked up.
    fn take_on(&mut self, head_bytes: usize, places: &Places, looked: Option<(KeyHash, Looked)>) {
        let head = self.inbox.split_to(head_bytes).freeze();
        match Own::begin(&self.worker, &self.link, &head, places, looked) {
            Some(own) => self.serve_own(Box::new(own)),
            None => {
                let rest = std::mem::replace(&mut self.inbox, BytesMut::from(head));
                self.inbox.extend_from_slice(&rest);
                self.hand(head_bytes);
            }
        }
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
                if closes {
                    // hyper sees an end where a request would begin, and closes in good order.
                    self.inbox.clear();
                    self.ended = true;
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
                // Nobody else listens meanwhile: a client who hangs up is noticed here, and its request given up.
                if self.inbox.len() < INBOX_BYTES_MAX && !self.ended {
                    while self.poll_fill(stream, cx)?.is_ready() {
                        if self.ended {
                            self.leave_own(cx);
                            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                        }
                        if self.inbox.len() >= INBOX_BYTES_MAX {
                            break;
                        }
                    }
                }
                Poll::Pending
            }
        }
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
        let arena = self.worker.shared.arena.as_deref();
        let written = self.outbox.poll_write(stream, &self.link.conn, arena, cx);
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
                self.writing = Some(self.link.conn.begin());
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

    /// The next `head_bytes` are one request, for hyper.
    fn hand(&mut self, head_bytes: usize) {
        self.link.conn.unsettle();
        self.mode = Mode::Handed { left: head_bytes };
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

    /// Gives hyper what is in the inbox, `most` bytes of it, or what comes from the client.
    fn give<S: ClientStream>(
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
                self.link.conn.received();
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

/// What a plain request got at once.
enum Answer {
    /// All of its response is in the outbox.
    Whole,
    /// The response's head is, and perhaps more; the rest has to be waited for, or is to go to RAM as well.
    Begun(Box<Own>),
    /// Nothing. Its key's hash and what lies under it, if that was looked up.
    None(Option<(KeyHash, Looked)>),
}

/// Answers a plain request into `outbox` if a fresh response to it is in memory, or on a disk that need not be waited for.
fn answer(
    worker: &Rc<Worker>,
    link: &ClientLink,
    plain: &Plain<'_, '_>,
    site: &mut Option<Site>,
    outbox: &mut Outbox,
) -> Answer {
    if worker.logs() {
        // A line of the access log wants fields that were not looked at here.
        return Answer::None(None);
    }
    let site = match site {
        Some(site) if *site.host == *plain.host => site,
        other => {
            let Some(next) = Site::of(link.scheme(), plain.host) else {
                return Answer::None(None);
            };
            other.insert(next)
        }
    };
    let now = worker.now();
    let write_key = |key: &mut Vec<u8>| {
        key.extend_from_slice(&site.key);
        key.extend_from_slice(plain.target.as_bytes());
    };
    let found = request::plain(worker, write_key, now, |response, body| {
        let body = (!plain.head_only).then_some(body);
        outbox.push(worker, response, body, now);
    });
    match found {
        request::Plain::Answered => Answer::Whole,
        request::Plain::Disk(hit) => answer_from_disk(worker, link, &hit, plain.head_only, outbox),
        request::Plain::Elsewhere(hash, looked) => Answer::None(Some((hash, looked))),
    }
}

fn answer_from_disk(
    worker: &Rc<Worker>,
    link: &ClientLink,
    hit: &DiskHit,
    head_only: bool,
    outbox: &mut Outbox,
) -> Answer {
    let body = if head_only || hit.length() == 0 {
        hit.pass_by(worker);
        None
    } else {
        // Before anything is sent: what the disk has lost can still be had from the origin.
        match hit.body(worker, !link.tls) {
            Ok(body) => Some(body),
            Err(looked) => return Answer::None(Some((hit.hash(), looked))),
        }
    };
    worker.counters.hit.one();
    worker.counters.disk_hit.one();
    outbox.push_disk_head(worker, hit);
    let Some((front, rest)) = body else {
        return Answer::Whole;
    };
    if let Some(front) = front {
        worker.counters.response_bytes.add(front.len());
        outbox.push_piece(front);
    }
    match rest.left() {
        0 => Answer::Whole,
        left => {
            let source = Source::Disk(Box::new(rest));
            let body = EdgeBody::new(source, Rc::clone(worker), link.conn.begin(), None);
            Answer::Begun(Box::new(Own::rest(body, left)))
        }
    }
}

/// A host as clients name it, and what the keys of its resources begin with.
struct Site {
    host: Box<str>,
    key: Box<[u8]>,
}

impl Site {
    /// Nothing if it cannot be the name of a host.
    fn of(scheme: &'static str, host: &str) -> Option<Self> {
        let mut key = Target::new(scheme, host, "/").ok()?.key();
        // A target brings its own slash.
        key.pop();
        Some(Self {
            host: host.into(),
            key: key.into(),
        })
    }
}

/// What is on its way to the client.
#[derive(Default)]
struct Outbox {
    head: Vec<u8>,
    head_written: usize,
    body: Bytes,
    /// A body that the kernel takes from the page cache. There is no other then.
    span: Option<Span>,
    /// The most of the body that one call offers the kernel.
    piece_bytes: usize,
    /// Something was written and not yet seen out.
    unflushed: bool,
}

impl Outbox {
    fn push(
        &mut self,
        worker: &Worker,
        response: &StoredResponse,
        body: Option<&Bytes>,
        now: Timestamp,
    ) {
        self.push_status(response.status);
        self.head.extend_from_slice(&response.head);
        let status = CacheStatus::hit(response.policy.ttl_secs(now));
        self.end_hit_head(worker, &response.policy, &status, now);
        if let Some(body) = body {
            self.push_body(body);
            worker.counters.response_bytes.add(body.len() as u64);
        }
    }

    fn push_disk_head(&mut self, worker: &Worker, hit: &DiskHit) {
        let now = worker.now();
        self.push_status(hit.status);
        self.head.extend_from_slice(&hit.fields);
        if let Some(length) = hit.content_length() {
            let mut digits = itoa::Buffer::new();
            self.push_field(&CONTENT_LENGTH, digits.format(length).as_bytes());
        }
        // RFC 9211 §2.8: which tier it was.
        let status = CacheStatus::hit(hit.policy.ttl_secs(now)).with_detail("disk");
        self.end_hit_head(worker, &hit.policy, &status, now);
    }

    fn end_hit_head(
        &mut self,
        worker: &Worker,
        policy: &StoredPolicy,
        status: &CacheStatus,
        now: Timestamp,
    ) {
        let head = &mut self.head;
        head.extend_from_slice(b"age: ");
        let mut digits = itoa::Buffer::new();
        head.extend_from_slice(digits.format(policy.age_secs(now)).as_bytes());
        head.extend_from_slice(b"\r\ncache-status: ");
        let mut line = worker.line.borrow_mut();
        line.clear();
        status.write(&worker.config().name, &mut line);
        head.extend_from_slice(line.as_bytes());
        head.extend_from_slice(b"\r\n\r\n");
    }

    fn push_status(&mut self, status: StatusCode) {
        let head = &mut self.head;
        if status == StatusCode::OK {
            head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        } else {
            let reason = status.canonical_reason().unwrap_or("");
            head.extend_from_slice(b"HTTP/1.1 ");
            head.extend_from_slice(status.as_str().as_bytes());
            head.extend_from_slice(b" ");
            head.extend_from_slice(reason.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
    }

    fn push_field(&mut self, name: &HeaderName, value: &[u8]) {
        self.head.extend_from_slice(name.as_str().as_bytes());
        self.head.extend_from_slice(b": ");
        self.head.extend_from_slice(value);
        self.head.extend_from_slice(b"\r\n");
    }

    fn end_head(&mut self) {
        self.head.extend_from_slice(b"\r\n");
    }

    /// The line before a chunk, and the end of the chunk before it (RFC 9112 §7.1).
    fn push_chunk(&mut self, bytes: u64, first: bool) {
        if !first {
            self.head.extend_from_slice(b"\r\n");
        }
        self.head
            .extend_from_slice(format!("{bytes:x}\r\n").as_bytes());
    }

    fn push_last_chunk(&mut self, first: bool) {
        if !first {
            self.head.extend_from_slice(b"\r\n");
        }
        self.head.extend_from_slice(b"0\r\n\r\n");
    }

    fn push_body(&mut self, body: &Bytes) {
        if body.len() <= COPIED_BYTES_MAX {
            self.head.extend_from_slice(body);
            return;
        }
        self.piece_bytes = piece_bytes(body.len() as u64);
        self.body = body.clone();
    }

    fn push_piece(&mut self, piece: Piece) {
        match piece {
            Piece::Bytes(bytes) => self.push_body(&bytes),
            Piece::Span(span) => {
                self.piece_bytes = piece_bytes(span.len());
                self.span = Some(span);
            }
        }
    }

    /// Writes until nothing is left.
    fn poll_write<S: ClientStream>(
        &mut self,
        stream: &mut S,
        state: &ConnState,
        arena: Option<&Arena>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_written() {
            let head = &self.head[self.head_written..];
            if let Some(span) = &mut self.span {
                let most = self.piece_bytes as u64;
                let written = Pin::new(&mut *stream).poll_send_span(cx, head, span, most);
                state.note_write(&written);
                let written = ready!(written)?;
                self.unflushed = true;
                let of_head = written.min(head.len());
                self.head_written += of_head;
                span.advance((written - of_head) as u64);
                if span.is_empty() {
                    self.span = None;
                }
                continue;
            }
            let body = &self.body[..self.body.len().min(self.piece_bytes)];
            let stream = Pin::new(&mut *stream);
            let file = arena.filter(|_| S::SENDS_FILES && body.len() >= SENT_BYTES_MIN);
            let place = file.and_then(|arena| Some((arena.file(), arena.place_of(body)?)));
            let written = if let Some((file, offset)) = place {
                let bytes = body.len();
                let part = FilePart {
                    file,
                    offset,
                    bytes,
                };
                stream.poll_send_file(cx, head, part)
            } else if head.is_empty() {
                stream.poll_write(cx, body)
            } else if body.is_empty() {
                stream.poll_write(cx, head)
            } else {
                stream.poll_write_vectored(cx, &[IoSlice::new(head), IoSlice::new(body)])
            };
            state.note_write(&written);
            let mut written = ready!(written)?;
            self.unflushed = true;
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
        // TLS keeps what the socket did not take, and nobody else would remind it.
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.head.clear();
        self.head_written = 0;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    fn is_written(&self) -> bool {
        self.head_written == self.head.len() && self.body.is_empty() && self.span.is_none()
    }

    fn is_empty(&self) -> bool {
        self.is_written() && !self.unflushed
    }
}

/// The most of a body that one call offers the kernel.
fn piece_bytes(body_bytes: u64) -> usize {
    if body_bytes <= MIDDLING_BYTES_MAX {
        MIDDLING_PIECE_BYTES
    } else {
        LARGE_PIECE_BYTES
    }
}

/// Responses in a row before other connections get their turn: a client that pipelines must not
/// keep a core to itself. hyper's own limit is 16 turns.
const ANSWERS_A_TURN: u32 = 32;

/// Bytes that may wait here. A head that is longer goes to hyper, which has the configured limits.
const INBOX_BYTES_MAX: usize = 16 * 1024;

/// Bytes of one read: a head with everything browsers put in it is about 2 KiB.
const READ_BYTES: usize = 8 * 1024;

/// A body up to here goes out in one piece with its head: copying it costs less than telling the kernel of two pieces.
const COPIED_BYTES_MAX: usize = 2 * 1024;

/// What is left of a body below this is copied rather than sent from its file.
const SENT_BYTES_MIN: usize = 32 * 1024;

/// Bodies up to here go out in pieces of 64 KiB, larger ones as far as the kernel takes them.
///
/// Thousand hits per CPU-second on loopback by the size of a write, medians of two: 128 KiB bodies
/// in writes of 32, 64, 128 KiB: 24.0, 26.1, 16.9; 1 MiB bodies in writes of 64, 256 KiB, 1 MiB: 2.7,
/// 3.2, 3.5. Where the two meet was not measured.
const MIDDLING_BYTES_MAX: u64 = 256 * 1024;
const MIDDLING_PIECE_BYTES: usize = 64 * 1024;
const LARGE_PIECE_BYTES: usize = 1024 * 1024;
