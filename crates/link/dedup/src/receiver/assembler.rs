//! The received pieces of a body that cannot be delivered yet, because earlier bytes are missing.
//!
//! The peer decides how many bytes a frame has, and a piece of one byte takes as much memory as one of a hundred. The
//! memory of the pieces is therefore counted, not their bytes. Short pieces are merged with the piece before them, so
//! that the pieces of a correct peer take little more memory than their bytes.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::Violation;
use crate::buffer;
use crate::wire::StreamId;

use super::stream::{PieceContent, ReceivedPiece};

/// The pieces of one stream, by offset. They do not overlap.
#[derive(Debug, Default)]
pub(super) struct EarlyPieces {
    pieces: BTreeMap<u64, ReceivedPiece>,
    /// The memory of the pieces in bytes.
    memory_bytes: u64,
}

impl EarlyPieces {
    /// Returns true if these bytes of the body are in one of the pieces.
    pub(super) fn contains(&self, offset: u64, end: u64) -> bool {
        let before = self.pieces.range(..=offset).next_back();
        before.is_some_and(|(start, piece)| end <= start + piece.bytes.len() as u64)
    }

    /// Adds a piece. `window` is the number of bytes of the body between the delivered offset and the limit of the
    /// stream, and thus the highest number of bytes of all pieces.
    pub(super) fn insert(
        &mut self,
        stream: StreamId,
        offset: u64,
        mut piece: ReceivedPiece,
        window: u64,
    ) -> Result<(), Violation> {
        let end = offset + piece.bytes.len() as u64;
        let next = self.pieces.range(offset..).next();
        let next_start = next.map_or(u64::MAX, |(start, _)| *start);
        let before = self.pieces.range_mut(..=offset).next_back();
        let before_end = before
            .as_ref()
            .map_or(0, |(start, piece)| *start + piece.bytes.len() as u64);
        if before_end > offset || next_start < end {
            // A sender divides a body into pieces only once.
            return Err(Violation::Overlap(stream));
        }
        piece.compact();
        match before {
            Some((_, before)) if before_end == offset && before.may_merge(&piece) => {
                self.memory_bytes -= before.memory_bytes();
                before.merge(piece);
                self.memory_bytes += before.memory_bytes();
            }
            _ => {
                self.memory_bytes += piece.memory_bytes();
                self.pieces.insert(offset, piece);
            }
        }
        if self.memory_bytes > window + window / 2 + MEMORY_BYTES_MIN {
            return Err(Violation::Pieces(stream));
        }
        Ok(())
    }

    /// Removes and returns the first piece, if it starts at this offset.
    pub(super) fn take(&mut self, offset: u64) -> Option<ReceivedPiece> {
        let first = self.pieces.first_entry();
        let piece = first.filter(|first| *first.key() == offset)?.remove();
        self.memory_bytes -= piece.memory_bytes();
        Some(piece)
    }

    /// Removes all pieces.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl ReceivedPiece {
    /// Returns the memory of the piece in bytes, with its place in the map.
    fn memory_bytes(&self) -> u64 {
        let content_bytes = match &self.kind {
            PieceContent::Plain => 0,
            PieceContent::Chunks { cuts } => size_of_val(&cuts[..]),
            PieceContent::References { prefix } => prefix.len(),
        };
        (OVERHEAD_BYTES + self.bytes.len() + content_bytes) as u64
    }

    /// Copies the bytes if they occupy a buffer that is much longer.
    fn compact(&mut self) {
        let bytes = self.bytes.len();
        if buffer::allocated_bytes(bytes) > bytes + bytes / 4 {
            self.bytes = Bytes::copy_from_slice(&self.bytes);
        }
    }

    /// Returns true if the next piece of the body can become a part of this piece. References are not merged, because
    /// the peer sends all bytes of one frame again if a reference is refused.
    fn may_merge(&self, next: &Self) -> bool {
        let is_short = self.bytes.len() + next.bytes.len() <= MERGED_BYTES_MAX;
        let is_same = matches!(
            (&self.kind, &next.kind),
            (PieceContent::Plain, PieceContent::Plain)
                | (PieceContent::Chunks { .. }, PieceContent::Chunks { .. })
        );
        is_short && is_same
    }

    /// Appends the next piece of the body, which [may](Self::may_merge) be merged.
    fn merge(&mut self, next: Self) {
        append(&mut self.bytes, &next.bytes);
        if let (PieceContent::Chunks { cuts }, PieceContent::Chunks { cuts: next_cuts }) =
            (&mut self.kind, next.kind)
        {
            cuts.extend(next_cuts);
        }
    }
}

/// Adds bytes to a queue of unread bytes. Short bytes are appended to the last element, because an element takes more
/// memory than a few bytes.
pub(super) fn push_unread(unread: &mut VecDeque<Bytes>, bytes: Bytes) {
    match unread.back_mut() {
        Some(last) if last.len() + bytes.len() <= MERGED_BYTES_MAX => append(last, &bytes),
        _ => unread.push_back(bytes),
    }
}

/// Appends bytes. If the memory of `bytes` is shared, copies it.
fn append(bytes: &mut Bytes, more: &[u8]) {
    let longer = std::mem::take(bytes).try_into_mut();
    let mut longer = longer.unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    longer.extend_from_slice(more);
    *bytes = longer.freeze();
}

/// The memory of a piece in addition to its bytes: its entry in the map, the header and the rounding of its
/// allocations.
const OVERHEAD_BYTES: usize = 256;

/// The longest bytes that are merged. Pieces of this length take 6 % more memory than their bytes.
const MERGED_BYTES_MAX: usize = 4 << 10;

/// The memory that the pieces of a stream may take, however small its window is.
const MEMORY_BYTES_MIN: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    const STREAM: StreamId = StreamId(1);

    fn piece(bytes: &[u8], is_plain: bool) -> ReceivedPiece {
        ReceivedPiece {
            bytes: Bytes::copy_from_slice(bytes),
            kind: if is_plain {
                PieceContent::Plain
            } else {
                PieceContent::Chunks { cuts: vec![7] }
            },
        }
    }

    proptest! {
        /// Pieces that arrive in any order are taken in the order of the body, with all of their bytes and cuts. A
        /// piece that arrives again is recognised.
        #[test]
        fn pieces_in_any_order_are_taken_in_order(
            lengths in vec((1_usize..3000, any::<bool>(), any::<u32>()), 1..40),
        ) {
            let body: Vec<u8> = (0..200_000_u32).map(|n| (n * 7 / 3) as u8).collect();
            let (mut end, mut order) = (0, Vec::new());
            for (length, is_plain, rank) in lengths {
                order.push((rank, end, length, is_plain));
                end += length;
            }
            order.sort_unstable();
            let mut early = EarlyPieces::default();
            for (_, offset, length, is_plain) in &order {
                let (start, stop) = (*offset as u64, (offset + length) as u64);
                prop_assert!(!early.contains(start, stop));
                let piece = piece(&body[*offset..offset + length], *is_plain);
                prop_assert_eq!(early.insert(STREAM, start, piece, 1 << 20), Ok(()));
                prop_assert!(early.contains(start, stop));
            }
            let (mut taken, mut cuts) = (Vec::new(), 0);
            while let Some(piece) = early.take(taken.len() as u64) {
                taken.extend_from_slice(&piece.bytes);
                if let PieceContent::Chunks { cuts: more } = piece.kind {
                    cuts += more.len();
                }
            }
            prop_assert_eq!(&taken, &body[..end]);
            prop_assert_eq!(cuts, order.iter().filter(|(.., is_plain)| !is_plain).count());
            prop_assert_eq!(early.memory_bytes, 0);
        }
    }

    /// Pieces of one byte that cannot be merged are a violation when they take one and a half times the memory of the
    /// window. Pieces of one byte that can be merged fill the window.
    #[test]
    fn the_memory_of_short_pieces_is_bounded() {
        let window = 256 << 10;
        let accepted = |step: u64, is_plain: fn(u64) -> bool| {
            let mut early = EarlyPieces::default();
            let pieces = (1..window / step).take_while(|nth| {
                let piece = piece(&[5], is_plain(*nth));
                early.insert(STREAM, nth * step, piece, window) == Ok(())
            });
            pieces.count() as u64
        };
        let most = (window * 3 / 2 + MEMORY_BYTES_MIN) / (OVERHEAD_BYTES as u64 + 1);
        assert_eq!(accepted(2, |_| true), most, "with gaps");
        assert!(
            accepted(1, |nth| nth % 2 == 0) <= most,
            "of different kinds"
        );
        assert_eq!(accepted(1, |_| true), window - 1, "merged");
    }

    /// A part of a large buffer is copied, so that it does not keep the buffer in memory.
    #[test]
    fn a_piece_does_not_keep_a_larger_buffer() {
        let pool = buffer::Pool::default();
        let mut buffer = pool.buffer(170 << 10);
        buffer.put(&[3; 170 << 10]);
        let bytes = buffer.freeze(0..170 << 10);
        let before = bytes.as_ptr();
        let mut early = EarlyPieces::default();
        let kind = PieceContent::Plain;
        let inserted = early.insert(STREAM, 5, ReceivedPiece { bytes, kind }, 1 << 20);
        assert_eq!(inserted, Ok(()));
        let piece = early.take(5).expect("the piece is the first");
        assert_ne!(piece.bytes.as_ptr(), before);
    }

    /// A piece that overlaps another one is a violation.
    #[test]
    fn overlapping_pieces_are_refused() {
        let mut early = EarlyPieces::default();
        let mut insert =
            |offset, length| early.insert(STREAM, offset, piece(&vec![1; length], false), 1 << 20);
        assert_eq!(insert(100, 10), Ok(()));
        for (offset, length) in [(95, 6), (100, 5), (105, 10), (109, 1), (90, 30)] {
            assert_eq!(insert(offset, length), Err(Violation::Overlap(STREAM)));
        }
        assert_eq!((insert(90, 10), insert(110, 1)), (Ok(()), Ok(())));
    }
}
