//! The fast path: it serves plain requests on an HTTP/1.1 connection without hyper. A *plain* request is a GET or HEAD
//! for one host, without conditions, ranges, directives or credentials.
//!
//! A hit of a kilobyte takes 6.8 µs in hyper, mostly for two maps of header fields. The fast path is part of the
//! connection's [`ClientIo`](crate::client::io::ClientIo). It makes the cache key from the bytes of a request's head,
//! and answers a hit with the stored header block. Otherwise the module `path` gets the request, and the fast path
//! writes the [`response`]. hyper gets the bytes of requests that are not plain, one request at a time.
//!
//! A connection has four modes. *Boundary*: earlier requests were answered, and the fast path parses the next head.
//! *Serving*: the fast path waits for a response or writes it. *HandedOver*: hyper serves one request. The end of the
//! request is known or is [found](request_end) in its body, and later bytes wait in the inbox. *Passthrough*: the end
//! of a request is unknown (a tunnel, a bad head, an unusual length), so hyper gets all further bytes.

mod fast_path;
mod handover;
mod head;
mod head_parts;
mod hit;
mod hostile;
mod outbox;
mod plain_settings; // the settings of a request by site and rules
mod request_end;
mod response;

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use edgeward_semantics::encode_delimiters;
use http::Method;

use super::stream::ClientStream;
use crate::cache::disk_body::BrokenRead;
use crate::cache::pinned::PinnedPiece;
use crate::exchange::field_bytes::Span;
use crate::exchange::{CloseReason, RequestError};
use crate::path::lookup::Outcome;
pub(crate) use fast_path::FastPath;
use fast_path::{INBOX_BYTES_MAX, Mode};
use head::{ParsedHead, no_fields, parse};
use head_parts::HeadParts;
use hit::{HitResult, HostPrefix, try_hit};
pub use hostile::check_request;
use request_end::RequestEndScan;
use response::{FillProgress, ResponseWriter};

impl FastPath {
    /// Serves plain requests. Resolves when hyper has to read the next bytes, or at an error.
    pub(crate) fn poll_serve<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut responses_left = RESPONSES_PER_POLL;
        loop {
            if !self.outbox.is_empty() {
                ready!(self.poll_outbox(stream, cx))?;
            }
            if let Some(observation) = self.sent_hit.take() {
                self.worker.finish(observation);
            }
            if let Mode::HandedOver(scan) = self.mode
                && scan.is_at_end()
                && self.client.conn.hyper_is_done()
            {
                self.mode = Mode::Boundary;
                self.begin_next_head();
            }
            match self.mode {
                Mode::Passthrough | Mode::HandedOver(_) => return Poll::Ready(Ok(())),
                Mode::Serving => {
                    ready!(self.poll_response(stream, cx))?;
                }
                Mode::Boundary => {
                    if responses_left == 0 {
                        // Other connections are served before this one continues.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    ready!(self.poll_boundary(stream, cx, &mut responses_left))?;
                }
            }
        }
    }

    /// Writes the interim responses to the request that hyper serves. Must not be called while a message of hyper is
    /// written in part. In [`Mode::Passthrough`] the end of a message is unknown, so interim responses are not written.
    pub(crate) fn poll_interims<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if !matches!(self.mode, Mode::HandedOver(_)) {
            return Poll::Ready(Ok(()));
        }
        if let Some(lines) = self.client.conn.take_interims() {
            self.outbox.push_lines(&lines);
        }
        while !self.outbox.is_empty() {
            ready!(self.poll_outbox(stream, cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends the records of sent responses after hyper has flushed its output, and wakes hyper if a further request has
    /// arrived.
    pub(crate) fn flushed(&mut self, cx: &Context<'_>) {
        self.client.conn.record_hyper_flush();
        self.finish_sent();
        // hyper got `Pending` for the next request, and reads the bytes in the inbox only after this wake-up.
        if matches!(self.mode, Mode::HandedOver(scan) if scan.is_at_end())
            && self.client.conn.hyper_is_done()
            && (!self.inbox.is_empty() || self.read_ended)
        {
            cx.waker().wake_by_ref();
        }
    }

    /// Parses the next head, and decides whether the fast path or hyper serves its request.
    fn poll_boundary<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        responses_left: &mut u32,
    ) -> Poll<io::Result<()>> {
        self.workers.update(&mut self.worker);
        let mut fields = no_fields();
        let parsed = if self.inbox.is_empty() || !self.partial_head.may_be_complete(&self.inbox) {
            ParsedHead::Partial
        } else {
            parse(&self.inbox, &mut fields)
        };
        match parsed {
            ParsedHead::Partial if !self.inbox.is_empty() => {
                self.partial_head.mark_incomplete(self.inbox.len());
            }
            _ => self.partial_head.reset(),
        }
        match parsed {
            ParsedHead::Plain(plain) => {
                let (head_bytes, closes) = (plain.bytes.len(), plain.closes);
                if self.client.conn.is_draining() || self.client.conn.is_leaving() {
                    // hyper answers with `Connection: close`, and ends a connection that is draining.
                    self.hand_over(RequestEndScan::sized(head_bytes, 0));
                    return Poll::Ready(Ok(()));
                }
                *responses_left -= 1;
                match try_hit(
                    &self.worker,
                    &self.client,
                    &plain,
                    &mut self.last_host,
                    &mut self.last_codings,
                    &mut self.outbox,
                ) {
                    HitResult::Complete(observation) => {
                        self.sent_hit = Some(observation);
                        self.inbox.advance(head_bytes);
                        self.client.conn.record_fast_path_response();
                        if closes {
                            self.stop_reading();
                        }
                        self.begin_next_head();
                    }
                    HitResult::Started(response) => {
                        self.inbox.advance(head_bytes);
                        self.begin_response(response);
                    }
                    HitResult::NotServed(outcome) => {
                        let is_canonical = |host: &HostPrefix| host.is_canonical(plain.host);
                        let is_canonical = self.last_host.as_ref().is_some_and(is_canonical);
                        let parts = HeadParts::of(&plain, is_canonical);
                        self.begin_plain(head_bytes, &parts, outcome);
                    }
                }
            }
            ParsedHead::Bounded { scan, .. } => self.hand_over(scan),
            ParsedHead::Delimiters(place) => self.encode_target(place),
            ParsedHead::Fragment(method) => self.refuse(method, &RequestError::fragment()),
            ParsedHead::Other if self.is_other_protocol() => {
                self.worker.counters.closed[CloseReason::Protocol].increment();
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            ParsedHead::Other => self.mode = Mode::Passthrough,
            ParsedHead::Partial if self.read_ended => self.mode = Mode::Passthrough,
            ParsedHead::Partial if self.inbox.len() >= INBOX_BYTES_MAX => {
                // Without a line feed, the request line is incomplete. The target may be as long as its limit.
                if memchr::memchr(b'\n', &self.inbox).is_some() {
                    self.mode = Mode::Passthrough;
                } else if self.inbox.len() as u64 > self.request_line_bytes_max() {
                    self.refuse(Method::GET, &RequestError::target_too_long());
                } else {
                    return self.poll_inbox(stream, cx);
                }
            }
            ParsedHead::Partial => return self.poll_inbox(stream, cx),
        }
        Poll::Ready(Ok(()))
    }

    /// Starts to serve the plain request whose head is the next `head_bytes` of the inbox. `outcome` is the result of
    /// its lookup, if it was looked up.
    fn begin_plain(&mut self, head_bytes: usize, parts: &HeadParts, outcome: Option<Outcome>) {
        let head = self.inbox.split_to(head_bytes).freeze();
        self.charge(head_bytes + self.inbox.capacity());
        match ResponseWriter::begin(&self.worker, &self.client, &head, parts, outcome) {
            Some(response) => self.begin_response(Box::new(response)),
            None => {
                let rest = std::mem::replace(&mut self.inbox, BytesMut::from(head));
                self.inbox.extend_from_slice(&rest);
                self.hand_over(RequestEndScan::sized(head_bytes, 0));
            }
        }
    }

    /// Encodes the target at this place of the inbox.
    fn encode_target(&mut self, (start, length): Span) {
        let target = str::from_utf8(&self.inbox[start..][..length]).expect("the parser checked it");
        let encoded = encode_delimiters(target).into_owned();
        let rest = self.inbox.split_off(start).split_off(length);
        self.inbox.extend_from_slice(encoded.as_bytes());
        self.inbox.extend_from_slice(&rest);
        self.charge(self.inbox.capacity());
    }

    /// Returns true if a connection without TLS begins with a line of three or more words, and the last word is not a
    /// version of HTTP. The client uses another protocol, and might parse a response wrongly.
    fn is_other_protocol(&self) -> bool {
        if self.client.tls || self.last_host.is_some() {
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

    /// Answers an invalid request with an error, without hyper. The bytes after the head are ignored.
    fn refuse(&mut self, method: Method, error: &RequestError) {
        let response = ResponseWriter::refuse(&self.worker, &self.client, method, error);
        self.begin_response(Box::new(response));
    }

    /// Returns the longest request line: the limit of targets, plus the method and an authority.
    fn request_line_bytes_max(&self) -> u64 {
        let target = self.worker.config().limits.target_bytes_max.bytes();
        target + REQUEST_LINE_BYTES
    }

    fn begin_response(&mut self, response: Box<ResponseWriter>) {
        self.response = Some(response);
        self.mode = Mode::Serving;
        // A draining connection stays open for the response.
        self.client.conn.set_fast_path_writes(true);
    }

    /// Writes the response of [`Mode::Serving`].
    fn poll_response<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let response = self
            .response
            .as_mut()
            .expect("`Mode::Serving` has a response");
        match response.poll_fill(&self.worker, &self.client, &mut self.outbox, cx) {
            Poll::Ready(Ok(FillProgress::Bytes)) => Poll::Ready(Ok(())),
            Poll::Ready(Ok(FillProgress::End { closes })) => {
                self.end_response(cx);
                self.finish_sent();
                if closes {
                    self.stop_reading();
                }
                self.begin_next_head();
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => {
                // The connection is closed, so the client sees that the response is incomplete.
                self.end_response(cx);
                Poll::Ready(Err(error))
            }
            Poll::Pending => {
                // Reading detects that the client has reset or half-closed the connection.
                while self.inbox.len() < INBOX_BYTES_MAX && !self.read_ended {
                    match self.poll_inbox(stream, cx) {
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

    /// Stops reading: the connection ends with the last response.
    fn stop_reading(&mut self) {
        self.has_surplus = !self.inbox.is_empty();
        self.inbox.clear();
        self.read_ended = true;
    }

    fn end_response(&mut self, cx: &Context<'_>) {
        self.response = None;
        self.mode = Mode::Boundary;
        self.end_writes(cx);
    }

    fn end_writes(&self, cx: &Context<'_>) {
        self.client.conn.set_fast_path_writes(false);
        if self.client.conn.is_draining() {
            // The connection's task starts hyper's shutdown only after the fast path has written its response.
            cx.waker().wake_by_ref();
        }
    }

    /// Ends the records of responses that were sent completely.
    fn finish_sent(&self) {
        while let Some(observation) = self.client.conn.take_held() {
            self.worker.finish(observation);
        }
    }

    /// Starts the timeout of the next head if its first bytes are in the inbox.
    fn begin_next_head(&mut self) {
        self.hyper_bytes = 0;
        self.charge(self.inbox.capacity());
        if !self.inbox.is_empty() {
            self.client.conn.record_received();
        }
    }

    /// Writes the outbox. While bytes are unsent, the request counts as under way.
    fn poll_outbox<S: ClientStream>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let arena = self.worker.cache.arena.as_deref();
        let written = self.outbox.poll_write(stream, &self.client.conn, arena, cx);
        self.worker
            .counters
            .response_bytes
            .add(self.outbox.take_body_written());
        if let Poll::Ready(Err(error)) = &written
            && let Some(error) = error.get_ref()
            && error.is::<BrokenRead>()
        {
            // The rest of the body is no longer on disk.
            match &mut self.response {
                Some(response) => response.cut(&self.worker),
                None => self.worker.counters.disk_body_cut.increment(),
            }
        }
        if written.is_pending() {
            if self.pending_write.is_none() {
                let (body, memory) = self.outbox.unsent_body();
                let conn = &self.client.conn;
                let pinned_piece = PinnedPiece::new(&self.worker.cache.hot, conn, memory, body);
                let unsent = conn.holding(S::UNSENT_BYTES_MAX);
                self.pending_write = Some((conn.begin_request(), pinned_piece, unsent));
                self.client.conn.set_fast_path_writes(true);
            }
        } else if self.pending_write.take().is_some() && self.response.is_none() {
            self.end_writes(cx);
        }
        written
    }

    /// Lets hyper serve one request, whose end `scan` finds.
    fn hand_over(&mut self, scan: RequestEndScan) {
        self.client.conn.record_hyper_request();
        self.mode = Mode::HandedOver(scan);
    }
}

impl Drop for FastPath {
    /// Ends the records of responses that were sent in part.
    fn drop(&mut self) {
        let unsent_bytes = self.outbox.unsent_body_bytes();
        if let Some(mut observation) = self.sent_hit.take() {
            observation.truncate(|given| given.saturating_sub(unsent_bytes));
            self.worker.finish(observation);
        }
        // Dropping the response passes its record to the connection, which holds it.
        self.response = None;
        self.client.conn.set_fast_path_gone();
        let hyper_writes = matches!(self.mode, Mode::HandedOver { .. } | Mode::Passthrough);
        while let Some(mut observation) = self.client.conn.take_held() {
            observation.truncate(|given| match hyper_writes {
                true => self.client.conn.body_bytes_written(),
                false => given.saturating_sub(unsent_bytes),
            });
            self.worker.finish(observation);
        }
    }
}

/// The most responses of one connection before the worker serves other connections. This keeps a client that
/// pipelines requests from occupying a core. hyper's limit is 16.
const RESPONSES_PER_POLL: u32 = 32;

/// Bytes of a request line besides the target: the method, the version, and the authority of an absolute target.
const REQUEST_LINE_BYTES: u64 = 1024;
