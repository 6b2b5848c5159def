//! Pieces of memory that were handed to a connection and are not sent.

use std::cell::{Cell, RefCell};

use edgeward_types::{KeyHash, Timestamp};

/// The owner of the memory of a piece.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum PieceMemory {
    /// The memory is too small to be counted, or is counted elsewhere.
    #[default]
    Uncounted,
    /// The body is or was in the cache under this key. Each piece keeps the whole body in memory.
    Cached { key: KeyHash, body_bytes: u64 },
    /// The piece was read from the disk or the origin for this client.
    Private,
}

/// The pieces of one connection that are not sent.
#[derive(Debug, Default)]
pub(crate) struct UnsentPieces {
    pub(crate) places: RefCell<Vec<Option<UnsentPiece>>>,
    /// The time since which the sweep compares this connection with others, and the bytes written until then.
    pub(crate) watched: Cell<Option<(Timestamp, u64)>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsentPiece {
    pub(crate) memory: PieceMemory,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}
