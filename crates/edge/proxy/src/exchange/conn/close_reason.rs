//! The order in which the edge closes client connections for new ones.

use edgeward_types::Timestamp;

use super::ConnState;
use crate::observe::causes::CloseReason;

/// See [`ConnState::close_rank`]: true if a head is incomplete, and the start of the wait for bytes of the client.
pub(crate) type CloseRank = (bool, Timestamp);

impl ConnState {
    /// Returns the rank in which connections are closed for new ones, lowest first. `None` if the connection is busy or
    /// closing. Idle connections come before connections with an incomplete head, and long waits before short ones.
    pub(crate) fn close_rank(&self) -> Option<CloseRank> {
        let is_busy = self.in_flight.get() > 0
            || self.fast_path_writes.get()
            || self.write_blocked_since.get().is_some()
            || self.close_reason.get().is_some();
        if is_busy {
            return None;
        }
        Some(match self.head_since.get() {
            None => (false, self.idle_since.get()),
            Some(since) => (true, since),
        })
    }

    /// Returns the reason to close the connection at once, if there is one.
    pub(crate) fn must_leave(&self) -> Option<CloseReason> {
        self.close_reason.get().filter(|reason| reason.is_urgent())
    }
}
