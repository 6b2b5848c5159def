//! Predicts the next chunk of a body that was sent before. The store has put the chunks of that body one after another
//! into a container. The predicted chunk is therefore the chunk after the last matched one.
//!
//! If the bytes match the [fingerprint](crate::fingerprint) of the predicted chunk, the chunk need not be cut,
//! hashed or looked up. If they do not match, the sender does these three steps, and only the comparison was useless.

use crate::chunker::Chunker;
use crate::store::{ChunkLocation, ChunkStore, FingerprintedEntry};
use crate::wire::CHUNKS_MAX;

use super::piece::{ChunkFinder, PieceChunk};

/// Predicts consecutive chunks of one container.
#[derive(Debug, Default)]
pub(super) struct Predictor {
    /// The location of the predicted chunk; `None` without a prediction.
    location: Option<ChunkLocation>,
    /// Entries of the container, read from the store. Empty if they must be read.
    entries: Vec<FingerprintedEntry>,
    /// The index of the predicted chunk in `entries`.
    index: usize,
}

/// The result of comparing bytes with the predicted chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prediction {
    /// The bytes start with this chunk.
    Chunk(PieceChunk),
    /// More bytes are needed to compare.
    Undecided,
    /// No chunk was predicted, the bytes differ, or the predicted chunk cannot be used: it has no fingerprint, is too
    /// long, or the chunker would not end it here.
    Miss,
}

impl Predictor {
    /// Records the location of a chunk that was found in the body. The chunk after this location is predicted next.
    pub(super) fn record_match(&mut self, location: ChunkLocation) {
        if self.location == Some(location) {
            self.index += 1;
        } else {
            self.entries.clear();
            self.index = 0;
        }
        self.location = Some(location.plus(1));
    }

    /// Discards the prediction.
    pub(super) fn clear(&mut self) {
        self.location = None;
        self.entries.clear();
    }

    /// Compares the start of the bytes with the predicted chunk.
    pub(super) fn compare<S: ChunkStore>(
        &mut self,
        bytes: &[u8],
        chunker: &Chunker,
        finder: &mut ChunkFinder<'_, S>,
    ) -> Prediction {
        let Some((location, predicted)) = self.predicted_chunk(finder) else {
            self.clear();
            return Prediction::Miss;
        };
        let FingerprintedEntry { entry, fingerprint } = predicted;
        let length = entry.length as usize;
        if fingerprint.is_none() || length > chunker.params().max() {
            return Prediction::Miss;
        }
        let Some(chunk) = bytes.get(..length) else {
            return Prediction::Undecided;
        };
        if !finder.id_key.matches_fingerprint(fingerprint, chunk) || !chunker.may_end(chunk) {
            self.clear();
            return Prediction::Miss;
        }
        self.record_match(location);
        Prediction::Chunk(PieceChunk {
            id: entry.id,
            length: entry.length,
            location: Some(location),
        })
    }

    /// Returns the predicted chunk and its location.
    fn predicted_chunk<S: ChunkStore>(
        &mut self,
        finder: &mut ChunkFinder<'_, S>,
    ) -> Option<(ChunkLocation, FingerprintedEntry)> {
        let location = self.location?;
        if let Some(&predicted) = self.entries.get(self.index) {
            return Some((location, predicted));
        }
        // At the end of a container, the chunks of the body continue in the next container.
        let after = ChunkLocation {
            container: location.container.wrapping_add(1),
            slot: 0,
        };
        for location in [location, after] {
            (self.location, self.index) = (Some(location), 0);
            self.entries.clear();
            finder
                .store
                .entries_with_fingerprints(location, CHUNKS_MAX, &mut self.entries);
            if let Some(&predicted) = self.entries.first() {
                return Some((location, predicted));
            }
        }
        None
    }
}
