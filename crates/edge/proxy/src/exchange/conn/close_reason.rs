//! The reasons why the edge closes client connections, and the order in which it closes them for new ones.

use edgeward_types::Timestamp;

use super::ConnState;

/// The reason why the edge closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The connection was idle for too long.
    Idle,
    /// The limit of connections is reached, and this connection has no request under way.
    Crowded,
    /// A request's head did not arrive in time.
    Head,
    /// The client reads no bytes of its response.
    Response,
    /// The client reads its response slower than the minimum rate.
    Slow,
    /// The client sends no bytes of its upload.
    Upload,
    /// The client has closed its sending direction, and the origin has sent no byte for it.
    Left,
    /// Slow clients keep too much memory of evicted objects in use, and this client frees memory most slowly.
    Pinned,
    /// All connections together hold too much memory, and this is one of the heaviest.
    Memory,
}

impl CloseReason {
    /// Returns true if the memory or the descriptor of the connection is needed at once, also before its first request.
    pub(crate) const fn is_urgent(self) -> bool {
        matches!(self, Self::Crowded | Self::Memory)
    }
}

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
