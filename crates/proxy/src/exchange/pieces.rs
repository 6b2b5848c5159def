//! The pieces of memory that a connection's client has not taken yet.

use std::cell::{Cell, RefCell};

use edgeward_types::{KeyHash, Timestamp};

/// Whose memory a piece of a body is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum PieceMemory {
    /// Nobody's worth counting.
    #[default]
    Uncounted,
    /// A body's that the cache has under this key, or had. All of it stays in memory with any part of it.
    Cached { key: KeyHash, body_bytes: u64 },
    /// The piece's own: read from the disk or the origin for this client.
    Private,
}

/// What a connection's client has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct UnsentPieces {
    pub(crate) places: RefCell<Vec<Option<UnsentPiece>>>,
    /// Since when the sweep compares this connection with others, and how many bytes it had written by then.
    pub(crate) watched: Cell<Option<(Timestamp, u64)>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsentPiece {
    pub(crate) memory: PieceMemory,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}
