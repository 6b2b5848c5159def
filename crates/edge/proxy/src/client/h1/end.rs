//! The end of a connection that the fast path serves.

use super::{FastPath, Mode};

impl FastPath {
    /// Returns true if the edge reads no more bytes and no response is pending in the fast path or in hyper.
    pub(crate) fn is_over(&self) -> bool {
        self.read_ended && self.inbox.is_empty() && self.mode == Mode::Passthrough
    }

    /// Counts bytes of bodies that hyper has written to the socket.
    pub(crate) fn count_response_bytes(&self, bytes: u64) {
        self.worker.counters.response_bytes.add(bytes);
    }

    /// Returns true if unread bytes follow the last request that the edge answers on this connection.
    pub(crate) fn has_surplus(&self) -> bool {
        self.has_surplus
    }
}
