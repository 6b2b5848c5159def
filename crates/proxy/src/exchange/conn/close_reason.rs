//! [`CloseReason`], the reason why the edge closes a client's connection.

use edgeward_types::Timestamp;

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
}

/// See [`ConnState::close_rank`](super::ConnState::close_rank): true if a head is incomplete, and the start of the wait for bytes of the client.
pub(crate) type CloseRank = (bool, Timestamp);
