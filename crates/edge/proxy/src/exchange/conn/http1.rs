//! The state of an HTTP/1.1 connection, which two codecs share: the fast path and hyper. It has the progress of hyper's
//! responses, records of requests that wait for their last byte, and interim responses (RFC 9110 §15.2).

use std::io;
use std::rc::Rc;
use std::task::Poll;

use http::StatusCode;

use super::conn_state::ConnState;
use super::http1_state::HyperWrites;
use crate::observe::observation::Observation;

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

/// Bytes of interim responses that may wait for one client: the default limit of a head. Further interim responses are
/// dropped: RFC 9110 §15.2 requires proxies to forward them, but the edge is a gateway (§3.7).
pub(crate) const INTERIM_BYTES_MAX: usize = 64 << 10;
