//! The unsent pieces of bodies of a connection, by address and length, and the memory that they keep alive.

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
    /// The piece was read from disk or from the origin for this client alone.
    Private,
    /// The piece is a copy of a part of a fill. Its readers share the copy, which has a charge of its own.
    SharedCopy,
}

/// The unsent pieces of one connection. A slot is `None` after its piece was sent.
#[derive(Debug, Default)]
pub(crate) struct UnsentPieces {
    pub(crate) slots: RefCell<Vec<Option<UnsentPiece>>>,
    /// Set while the sweep of pinned bytes watches the connection: the watch's start, and the bytes written before it.
    pub(crate) watch_start: Cell<Option<(Timestamp, u64)>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct UnsentPiece {
    pub(crate) memory: PieceMemory,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
}
