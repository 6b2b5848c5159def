//! Memory that slow clients pin, by connection.
//!
//! A body that a client reads slowly stays in memory after its object was evicted. The cache charges such bytes to
//! its budget (`edgeward_store::hot`), and admits no object while they exceed a limit. Each connection records the
//! pieces of bodies that its client has not accepted yet. While the limit is exceeded, a worker's sweep closes the
//! connections that free their pinned bytes most slowly.

use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use edgeward_store::hot::ChargeGuard;

use super::stored::{Hot, StoredBody, StoredKind};
use crate::exchange::ConnState;
use crate::exchange::pieces::{PieceMemory, UnsentPiece, UnsentPieces};

/// Keeps an unsent piece in the list of its connection until dropped.
#[derive(Debug)]
pub(crate) struct PinnedPiece {
    conn: Rc<ConnState>,
    slot: usize,
    /// The charge for a piece that is not part of a cached body.
    _charge: Option<ChargeGuard>,
}

impl PinnedPiece {
    /// Records `bytes` as unsent. Returns `None` if `bytes` are empty or their memory is not counted.
    pub(crate) fn new(
        hot: &Arc<Hot>,
        conn: &Rc<ConnState>,
        memory: PieceMemory,
        bytes: &Bytes,
    ) -> Option<Self> {
        let charge = match memory {
            PieceMemory::Uncounted => return None,
            _ if bytes.is_empty() => return None,
            PieceMemory::Cached { .. } | PieceMemory::SharedCopy => None,
            PieceMemory::Private => Some(hot.charge(bytes.len() as u64)),
        };
        let piece = UnsentPiece {
            memory,
            address: bytes.as_ptr().addr(),
            bytes: bytes.len(),
        };
        let mut slots = conn.pieces().slots.borrow_mut();
        let slot = match slots.iter().position(Option::is_none) {
            Some(free) => {
                slots[free] = Some(piece);
                free
            }
            None => {
                slots.push(Some(piece));
                slots.len() - 1
            }
        };
        Some(Self {
            conn: Rc::clone(conn),
            slot,
            _charge: charge,
        })
    }
}

impl Drop for PinnedPiece {
    fn drop(&mut self) {
        let mut slots = self.conn.pieces().slots.borrow_mut();
        slots[self.slot] = None;
        while let Some(None) = slots.last() {
            slots.pop();
        }
    }
}

/// A piece of a body in hyper's buffers. The connection records the piece until hyper has written or dropped it.
#[derive(Debug)]
pub(crate) struct ClientBytes {
    bytes: Bytes,
    pinned_piece: Option<Rc<PinnedPiece>>,
}

impl ClientBytes {
    pub(crate) fn new(bytes: Bytes, pinned_piece: Option<Rc<PinnedPiece>>) -> Self {
        Self {
            bytes,
            pinned_piece,
        }
    }

    /// Returns the bytes, and the record of the piece.
    pub(crate) fn into_parts(self) -> (Bytes, Option<Rc<PinnedPiece>>) {
        (self.bytes, self.pinned_piece)
    }
}

impl Buf for ClientBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// Returns the number of bytes that a connection pins: the unsent pieces that are not part of a cached body, and the
/// whole body of each evicted object that has an unsent piece.
pub(crate) fn pinned_bytes(pieces: &UnsentPieces, hot: &Hot) -> u64 {
    let slots = pieces.slots.borrow();
    slots
        .iter()
        .flatten()
        .map(|piece| pinned_by(piece, hot))
        .sum()
}

fn pinned_by(piece: &UnsentPiece, hot: &Hot) -> u64 {
    let PieceMemory::Cached { key, body_bytes } = piece.memory else {
        return piece.bytes as u64;
    };
    let is_resident = hot.peek(key).is_some_and(|stored| {
        let StoredKind::Response(response) = &stored.kind else {
            return false;
        };
        let StoredBody::Memory(body) = &response.body else {
            return false;
        };
        body.as_ptr_range()
            .contains(&std::ptr::without_provenance(piece.address))
    });
    if is_resident { 0 } else { body_bytes }
}
