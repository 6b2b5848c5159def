//! Interim responses (RFC 9110 §15.2) on their way to a client of HTTP/1.1.

use std::rc::Rc;

use super::ConnState;

/// Takes the interim responses to one request. A fetch may outlive the request that began it; what comes then is
/// dropped.
#[derive(Debug)]
pub(crate) struct InterimSink {
    conn: Rc<ConnState>,
    request: u64,
}

impl InterimSink {
    pub(super) fn of(conn: &Rc<ConnState>, request: u64) -> Self {
        Self {
            conn: Rc::clone(conn),
            request,
        }
    }

    /// Takes the lines of one interim response. Must be called while the request's own task polls the fetch, which
    /// then sees the lines.
    pub(crate) fn push(&self, lines: &[u8]) {
        let mut waiting = self.conn.interims.borrow_mut();
        if self.conn.interims_of.get() == Some(self.request)
            && waiting.len() + lines.len() <= INTERIM_BYTES_MAX
        {
            waiting.extend_from_slice(lines);
        }
    }
}

/// Interim responses that may wait for one client: as much as the default of one head. Further ones are dropped, as
/// RFC 9110 §15.2 allows for those that were not asked for.
pub(crate) const INTERIM_BYTES_MAX: usize = 64 << 10;
