//! Interim responses (RFC 9110 §15.2) to an HTTP/1.1 client.

use std::rc::Rc;

use super::ConnState;

/// Takes the interim responses to one request. Those that arrive after the request has ended are dropped.
#[derive(Debug)]
pub(crate) struct InterimSink {
    pub(super) conn: Rc<ConnState>,
    pub(super) request: u64,
}

impl InterimSink {
    /// Appends the lines of one interim response. The caller must be the request's task, which writes the lines after
    /// it has polled the fetch.
    pub(crate) fn push(&self, lines: &[u8]) {
        let mut waiting = self.conn.interims.borrow_mut();
        if self.conn.interims_of.get() == Some(self.request)
            && waiting.len() + lines.len() <= INTERIM_BYTES_MAX
        {
            waiting.extend_from_slice(lines);
        }
    }
}

/// Bytes of interim responses that may wait for one client: the default of one head. Further responses are dropped,
/// as RFC 9110 §15.2 allows for those that the client did not request.
pub(crate) const INTERIM_BYTES_MAX: usize = 64 << 10;
