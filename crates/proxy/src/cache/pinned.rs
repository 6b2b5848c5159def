//! Memory that clients keep the edge from freeing, by connection.
//!
//! A body that a client reads slowly stays in memory after its object has left the cache. The cache charges such bytes to its
//! budget (`edgeward_store::hot`) and admits nothing above a bound. Each connection lists the pieces of memory that were handed
//! to it and that its client has not taken. While the bound is exceeded, a worker's sweep compares the connections and closes
//! those that take longest to free what they pin.

use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use edgeward_store::hot::Hold;

use super::stored::{Hot, StoredBody, StoredKind};
use crate::exchange::ConnState;
use crate::exchange::pieces::{PieceMemory, UnsentPiece, UnsentPieces};

/// Lists a piece with its connection until dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    conn: Rc<ConnState>,
    place: usize,
    /// Of a piece with memory of its own.
    _charge: Option<Hold>,
}

impl Holding {
    /// Lists `bytes`, unless they are nobody's worth counting.
    pub(crate) fn new(
        hot: &Arc<Hot>,
        conn: &Rc<ConnState>,
        memory: PieceMemory,
        bytes: &Bytes,
    ) -> Option<Self> {
        let charge = match memory {
            _ if bytes.is_empty() => return None,
            PieceMemory::Uncounted => return None,
            PieceMemory::Cached { .. } => None,
            PieceMemory::Private => Some(hot.hold(bytes.len() as u64)),
        };
        let piece = UnsentPiece {
            memory,
            address: bytes.as_ptr().addr(),
            bytes: bytes.len(),
        };
        let mut places = conn.pieces().places.borrow_mut();
        let place = match places.iter().position(Option::is_none) {
            Some(free) => {
                places[free] = Some(piece);
                free
            }
            None => {
                places.push(Some(piece));
                places.len() - 1
            }
        };
        Some(Self {
            conn: Rc::clone(conn),
            place,
            _charge: charge,
        })
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut places = self.conn.pieces().places.borrow_mut();
        places[self.place] = None;
        while let Some(None) = places.last() {
            places.pop();
        }
    }
}

/// A piece of a body on its way through hyper, listed with its connection until hyper has written or dropped it.
#[derive(Debug)]
pub(crate) struct ClientBytes {
    bytes: Bytes,
    _holding: Option<Rc<Holding>>,
}

impl ClientBytes {
    pub(crate) fn new(bytes: Bytes, holding: Option<Rc<Holding>>) -> Self {
        Self {
            bytes,
            _holding: holding,
        }
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

/// Bytes that a connection keeps from being freed: bodies that have left the cache, and pieces with memory of their own.
pub(crate) fn pinned_bytes(pieces: &UnsentPieces, hot: &Hot) -> u64 {
    let places = pieces.places.borrow();
    places
        .iter()
        .flatten()
        .map(|piece| bytes_kept(piece, hot))
        .sum()
}

fn bytes_kept(piece: &UnsentPiece, hot: &Hot) -> u64 {
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
