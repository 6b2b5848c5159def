//! The state of an HTTP/1.1 connection, which two codecs share: the fast path and hyper. It has the progress of hyper's
//! responses, records of requests that wait for their last byte, and interim responses (RFC 9110 §15.2).

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::task::Poll;

use http::StatusCode;

use super::ConnState;
use crate::observe::observation::Observation;

#[derive(Debug, Default)]
pub(super) struct Http1State {
    /// True if hyper has the complete response to the last request that it got.
    pub(super) response_ended: Cell<bool>,
    /// True if hyper has also flushed that response.
    response_flushed: Cell<bool>,
    /// True while the fast path, which answers simple HTTP/1.1 requests without hyper, has unsent bytes of a response.
    pub(super) fast_path_writes: Cell<bool>,
    /// Interim responses for the fast path to write.
    interims: RefCell<Vec<u8>>,
    /// The number of HTTP/1.1 requests so far.
    requests: Cell<u64>,
    /// The number of the HTTP/1.1 request that waits for its final response, and may get interim responses.
    interim_request: Cell<Option<u64>>,
    /// True if the record of a request waits until its response is flushed: for HTTP/1.1.
    holds_observations: Cell<bool>,
    held_observations: RefCell<Vec<Observation>>,
    fast_path_gone: Cell<bool>,
    /// The progress of hyper's current response, if records are held.
    hyper_writes: Cell<HyperWrites>,
    /// The body bytes of this response that hyper got, and those of them that were counted as sent.
    hyper_given_bytes: Cell<u64>,
    hyper_counted_bytes: Cell<u64>,
}

impl ConnState {
    /// Records that hyper gets a request.
    pub(crate) fn record_hyper_request(&self) {
        self.http1.response_ended.set(false);
        self.http1.response_flushed.set(false);
    }

    /// Records that hyper has flushed its output. If its response was complete, hyper is done with the request.
    pub(crate) fn record_hyper_flush(&self) {
        self.http1
            .response_flushed
            .set(self.http1.response_ended.get());
    }

    /// Returns true if hyper has answered the last request that it got, and has flushed the response.
    pub(crate) fn hyper_is_done(&self) -> bool {
        self.http1.response_flushed.get()
    }

    pub(crate) fn set_fast_path_writes(&self, writes: bool) {
        self.http1.fast_path_writes.set(writes);
    }

    pub(crate) fn fast_path_writes(&self) -> bool {
        self.http1.fast_path_writes.get()
    }

    /// Begins a request. Its interim responses are accepted until [`end_interims`](Self::end_interims).
    pub(crate) fn begin_interims(self: &Rc<Self>) -> InterimSink {
        let request = self.http1.requests.get() + 1;
        self.http1.requests.set(request);
        // Interim responses that remain belong to an older request.
        self.http1.interims.borrow_mut().clear();
        self.http1.interim_request.set(Some(request));
        InterimSink {
            conn: Rc::clone(self),
            request,
        }
    }

    /// Records that the final response begins.
    pub(crate) fn end_interims(&self) {
        self.http1.interim_request.set(None);
    }

    /// Takes the interim responses that have arrived, if any.
    pub(crate) fn take_interims(&self) -> Option<Vec<u8>> {
        let mut interims = self.http1.interims.borrow_mut();
        (!interims.is_empty()).then(|| std::mem::take(&mut *interims))
    }

    /// Makes the records of requests wait until their response is sent.
    pub(crate) fn hold_observations(&self) {
        self.http1.holds_observations.set(true);
    }

    /// Resets the progress of hyper's writes, because the record of the next response counts its own bytes.
    /// Returns the body bytes of the previous response that hyper still has: they are counted as sent now.
    pub(crate) fn begin_response(&self) -> u64 {
        self.http1.hyper_writes.set(HyperWrites::default());
        self.http1.hyper_given_bytes.take() - self.http1.hyper_counted_bytes.take()
    }

    /// Keeps the record of a request whose response body has ended until the response is sent. Returns the record if it
    /// is not kept.
    pub(crate) fn hold(&self, mut observation: Observation) -> Option<Observation> {
        if self.http1.fast_path_gone.get() {
            // hyper drops the socket before the body, so the written bytes are final.
            observation.truncate(|_| self.body_bytes_written());
            return Some(observation);
        }
        if !self.http1.holds_observations.get() {
            return Some(observation);
        }
        let mut held = self.http1.held_observations.borrow_mut();
        // Usually one record is held, and its memory is used again.
        held.reserve_exact(1);
        held.push(observation);
        None
    }

    /// Takes the oldest record that [`hold`](Self::hold) has kept.
    pub(crate) fn take_held(&self) -> Option<Observation> {
        let mut held = self.http1.held_observations.borrow_mut();
        (!held.is_empty()).then(|| held.remove(0))
    }

    /// Records that the fast path was dropped with the socket, if records are held. No more bytes can be written.
    pub(crate) fn set_fast_path_gone(&self) {
        self.http1
            .fast_path_gone
            .set(self.http1.holds_observations.get());
    }

    /// Returns the number of body bytes that hyper has written after the last head.
    pub(crate) fn body_bytes_written(&self) -> u64 {
        self.http1.hyper_writes.get().body_bytes
    }

    /// Returns the status of the last head that hyper wrote, if records are held.
    pub(crate) fn status_written(&self) -> Option<StatusCode> {
        StatusCode::from_u16(self.http1.hyper_writes.get().status).ok()
    }

    /// Records that hyper gets bytes of a body. Returns true if they are counted when the socket accepts them.
    pub(crate) fn counts_written(&self, bytes: u64) -> bool {
        if !self.http1.holds_observations.get() {
            return false;
        }
        let given = self.http1.hyper_given_bytes.get() + bytes;
        self.http1.hyper_given_bytes.set(given);
        true
    }

    /// Records how many bytes of hyper's `pieces` the socket accepted. Returns how many body bytes these are. The bytes
    /// after a head include the lines of chunks, so no more bytes are counted than hyper got.
    pub(crate) fn record_hyper_write<'a>(
        &self,
        written: &Poll<io::Result<usize>>,
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> u64 {
        let Poll::Ready(Ok(written)) = written else {
            return 0;
        };
        let mut left = *written;
        let mut writes = self.http1.hyper_writes.get();
        for piece in pieces {
            let part = &piece[..piece.len().min(left)];
            left -= part.len();
            writes.record(part);
        }
        self.http1.hyper_writes.set(writes);
        let counted = writes.body_bytes.min(self.http1.hyper_given_bytes.get());
        counted - self.http1.hyper_counted_bytes.replace(counted)
    }
}

/// Passes interim responses for one request to the client. Drops them if the final response has begun.
#[derive(Debug)]
pub(crate) struct InterimSink {
    conn: Rc<ConnState>,
    /// The number of the request on this connection.
    request: u64,
}

impl InterimSink {
    /// Appends the lines of one interim response. Only the connection's task may call this, while it polls the fetch:
    /// the task writes the lines after this poll.
    pub(crate) fn push(&self, lines: &[u8]) {
        let mut waiting = self.conn.http1.interims.borrow_mut();
        if self.conn.http1.interim_request.get() == Some(self.request)
            && waiting.len() + lines.len() <= INTERIM_BYTES_MAX
        {
            waiting.extend_from_slice(lines);
        }
    }
}

/// The status and the number of body bytes that hyper has written of the current response.
#[derive(Clone, Copy, Debug, Default)]
struct HyperWrites {
    /// The status of the response, or 0 before hyper has written the status line. The line must be in one piece.
    status: u16,
    /// How many of the four bytes CR LF CR LF, which end a head, the last written bytes match. 4 after the head.
    end_matched: u8,
    /// The number of bytes written after the head.
    body_bytes: u64,
}

impl HyperWrites {
    fn record(&mut self, mut bytes: &[u8]) {
        if self.end_matched == 0
            && let Some(digits) = bytes
                .strip_prefix(b"HTTP/1.")
                .and_then(|rest| rest.get(2..5))
        {
            let number = digits
                .iter()
                .fold(0, |n, digit| n * 10 + u16::from(digit.wrapping_sub(b'0')));
            self.status = number;
        }
        // Nearly always the whole head is in one piece.
        if self.end_matched == 0
            && let Some(at) = memchr::memmem::find(bytes, b"\r\n\r\n")
        {
            self.end_matched = 4;
            bytes = &bytes[at + 4..];
        }
        while self.end_matched < 4 {
            let Some((&byte, rest)) = bytes.split_first() else {
                return;
            };
            bytes = rest;
            self.end_matched = match (self.end_matched, byte) {
                (0 | 2, b'\r') => self.end_matched + 1,
                (1 | 3, b'\n') => self.end_matched + 1,
                (_, b'\r') => 1,
                _ => 0,
            };
        }
        self.body_bytes += bytes.len() as u64;
    }
}

/// Bytes of interim responses that may wait for one client: the default limit of a head. Further interim responses are
/// dropped: RFC 9110 §15.2 requires proxies to forward them, but the edge is a gateway (§3.7).
pub(crate) const INTERIM_BYTES_MAX: usize = 64 << 10;
