//! Interim responses (RFC 9110 §15.2) to an HTTP/1.1 client.

use std::rc::Rc;

use super::ConnState;

/// Passes interim responses for one request to the client. Drops them if the final response has begun.
#[derive(Debug)]
pub(crate) struct InterimSink {
    pub(super) conn: Rc<ConnState>,
    /// The number of the request on this connection.
    pub(super) request: u64,
}

impl InterimSink {
    /// Appends the lines of one interim response. Only the connection's task may call this, while it polls the fetch:
    /// the task writes the lines after this poll.
    pub(crate) fn push(&self, lines: &[u8]) {
        let mut waiting = self.conn.interims.borrow_mut();
        if self.conn.interim_request.get() == Some(self.request)
            && waiting.len() + lines.len() <= INTERIM_BYTES_MAX
        {
            waiting.extend_from_slice(lines);
        }
    }
}

/// Bytes of interim responses that may wait for one client: the default limit of a head. Further interim responses are
/// dropped: RFC 9110 §15.2 requires proxies to forward them, but the edge is a gateway (§3.7).
pub(crate) const INTERIM_BYTES_MAX: usize = 64 << 10;
