//! Predicts the next chunk of a body that was sent before. The store has put the chunks of that body one after another
//! into a container. The predicted chunk is therefore the chunk after the last matched one.
//!
//! If the bytes match the [fingerprint](crate::fingerprint) of the predicted chunk, the chunk need not be cut,
//! hashed or looked up. If they do not match, the sender does these three steps, and only the comparison was useless.

use crate::chunker::Chunker;
use crate::id::IdKey;
use crate::store::{ChunkLocation, Row, RowChunk};

use super::piece::PieceChunk;

/// A place in a row of chunks.
#[derive(Clone, Debug)]
pub(super) struct RowCursor {
    row: Row,
    /// The index of the next chunk.
    index: usize,
}

impl RowCursor {
    /// Returns a cursor before the first chunk of a row.
    pub(super) fn new(row: Row) -> Self {
        Self { row, index: 0 }
    }

    /// Returns the location of the next chunk.
    pub(super) fn location(&self) -> ChunkLocation {
        self.row.location.plus(self.index)
    }

    /// Returns the next chunk, or `None` at the end of the container.
    pub(super) fn next(&self) -> Option<&RowChunk> {
        self.row.chunks.get(self.index)
    }

    /// Returns the chunks from the next one on.
    pub(super) fn rest(&self) -> &[RowChunk] {
        &self.row.chunks[self.index..]
    }

    /// Moves the cursor by this many chunks.
    pub(super) fn advance(&mut self, chunks: usize) {
        self.index += chunks;
    }

    /// Returns the next chunk as a chunk of a piece.
    pub(super) fn piece_chunk(&self) -> Option<PieceChunk> {
        let chunk = self.next()?;
        Some(PieceChunk {
            id: chunk.entry.id,
            length: chunk.entry.length,
            location: Some(self.location()),
            is_last: self.index + 1 == self.row.chunks.len(),
            is_retained: self.row.is_retained && chunk.has_bytes,
        })
    }
}

/// The result of comparing bytes with the predicted chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prediction {
    /// The bytes start with this chunk.
    Chunk(PieceChunk),
    /// More bytes are needed to compare.
    Undecided,
    /// The container ends before the predicted chunk. The next container, which begins at this location, must be
    /// listed.
    Unlisted(ChunkLocation),
    /// No chunk was predicted, the bytes differ, or the predicted chunk cannot be used: it has no fingerprint, is too
    /// long, or the chunker would not end it here.
    Miss,
}

/// Predicts consecutive chunks.
#[derive(Debug, Default)]
pub(super) struct Predictor {
    /// The place of the predicted chunk; `None` without a prediction.
    cursor: Option<RowCursor>,
}

impl Predictor {
    /// Returns the location of the predicted chunk.
    pub(super) fn location(&self) -> Option<ChunkLocation> {
        self.cursor.as_ref().map(RowCursor::location)
    }

    /// Returns the place of the predicted chunk.
    pub(super) fn cursor(&self) -> Option<&RowCursor> {
        self.cursor.as_ref()
    }

    /// Predicts the chunk at the cursor.
    pub(super) fn set(&mut self, cursor: Option<RowCursor>) {
        self.cursor = cursor;
    }

    /// Records that the body continues with the predicted chunk. The chunk after it is predicted next.
    pub(super) fn record_match(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.advance(1);
        }
    }

    /// Compares the start of the bytes with the predicted chunk.
    pub(super) fn compare(
        &mut self,
        bytes: &[u8],
        chunker: &Chunker,
        id_key: &IdKey,
    ) -> Prediction {
        let Some(cursor) = &self.cursor else {
            return Prediction::Miss;
        };
        let Some(predicted) = cursor.next() else {
            return Prediction::Unlisted(cursor.location().next_container());
        };
        let length = predicted.entry.length as usize;
        if predicted.fingerprint.is_none() || length > chunker.params().max() {
            return Prediction::Miss;
        }
        let Some(chunk) = bytes.get(..length) else {
            return Prediction::Undecided;
        };
        if !id_key.matches_fingerprint(predicted.fingerprint, chunk) || !chunker.may_end(chunk) {
            self.cursor = None;
            return Prediction::Miss;
        }
        let chunk = cursor.piece_chunk().expect("the chunk was just compared");
        self.record_match();
        Prediction::Chunk(chunk)
    }
}
