//! The state of an HTTP/1.1 connection, and the progress of hyper's writes on it.

use std::cell::{Cell, RefCell};

use crate::observe::observation::Observation;

/// The state of HTTP/1.1 in a connection. `http1` changes it.
#[derive(Debug, Default)]
pub(super) struct Http1State {
    /// True if hyper has the complete response to the last request that it got.
    pub(super) response_ended: Cell<bool>,
    /// True if hyper has also flushed that response.
    pub(super) response_flushed: Cell<bool>,
    /// True while the fast path, which answers simple HTTP/1.1 requests without hyper, has unsent bytes of a response.
    pub(super) fast_path_writes: Cell<bool>,
    /// Interim responses for the fast path to write.
    pub(super) interims: RefCell<Vec<u8>>,
    /// The number of HTTP/1.1 requests so far.
    pub(super) requests: Cell<u64>,
    /// The number of the HTTP/1.1 request that waits for its final response, and may get interim responses.
    pub(super) interim_request: Cell<Option<u64>>,
    /// True if the record of a request waits until its response is flushed: for HTTP/1.1.
    pub(super) holds_observations: Cell<bool>,
    pub(super) held_observations: RefCell<Vec<Observation>>,
    pub(super) fast_path_gone: Cell<bool>,
    /// The progress of hyper's current response, if records are held.
    pub(super) hyper_writes: Cell<HyperWrites>,
    /// The body bytes of this response that hyper got, and those of them that were counted as sent.
    pub(super) hyper_given_bytes: Cell<u64>,
    pub(super) hyper_counted_bytes: Cell<u64>,
}

/// The status and the number of body bytes that hyper has written of the current response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyperWrites {
    /// The status of the response, or 0 before hyper has written the status line. The line must be in one piece.
    pub(super) status: u16,
    /// How many of the four bytes CR LF CR LF, which end a head, the last written bytes match. 4 after the head.
    end_matched: u8,
    /// The number of bytes written after the head.
    pub(super) body_bytes: u64,
}

impl HyperWrites {
    pub(super) fn record(&mut self, mut bytes: &[u8]) {
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
