//! Stream ids of QUIC (RFC 9000 §2.1).

use std::fmt;

/// The id of a stream. The two low bits state which endpoint has opened it, and its directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

impl StreamId {
    /// The largest id of a request.
    pub const REQUEST_MAX: Self = Self((1 << 62) - 4);

    /// Returns true for bidirectional streams of the client, which carry requests.
    pub const fn is_request(self) -> bool {
        self.0 & 3 == 0
    }

    /// Returns the id of the next stream of the same type.
    pub(crate) const fn next(self) -> Self {
        Self(self.0 + 4)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
