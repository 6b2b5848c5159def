//! The state of one incoming stream: puts pieces in order, delivers them to the user, and stores their chunks.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::Violation;
use crate::id::BodyDigest;
use crate::sender::TAIL_BYTES_MIN;
use crate::wire::{PIECE_BYTES_MAX, StreamId};

use super::assembler::{EarlyPieces, push_unread};

/// A piece of a body. If it was sent as references, its bytes were read from the chunk store.
#[derive(Debug)]
pub(super) struct ReceivedPiece {
    pub(super) bytes: Bytes,
    pub(super) kind: PieceContent,
}

/// How a piece was sent, which decides what is stored.
#[derive(Debug)]
pub(super) enum PieceContent {
    /// Without deduplication: the bytes are not stored.
    Plain,
    /// As new chunks, which are stored. `cuts` are the lengths of the chunks that end in this piece.
    Chunks { cuts: Vec<u32> },
    /// As references to stored chunks. `prefix` is the part of the first chunk that belongs to earlier pieces.
    References { prefix: Vec<u8> },
}

#[derive(Debug)]
pub(super) struct IncomingStream {
    /// All bytes before this offset are delivered: they were added to `unread` in order.
    pub(super) delivered: u64,
    /// The sender may send up to this offset.
    pub(super) limit: u64,
    /// The user of the stream has read up to this offset.
    pub(super) read_up_to: u64,
    /// The length and the digest of the body, from the CLOSE frame.
    pub(super) expected_end: Option<(u64, u128)>,
    /// Delivered bytes that are not read yet.
    pub(super) unread: VecDeque<Bytes>,
    /// How the body ended: complete, or with a code from [`crate::reason`].
    pub(super) outcome: Option<Result<(), u32>>,
    /// True if an event has reported that bytes can be read, and the user has not read all of them.
    pub(super) reported: bool,
    /// Pieces that arrived before earlier bytes of the body.
    early_pieces: EarlyPieces,
    /// The received bytes of a chunk whose end is not received yet, unless they were
    /// [released](Self::release_partial_chunk).
    partial_chunk: Vec<u8>,
    /// The number of released bytes of this chunk.
    released_bytes: usize,
    digest: BodyDigest,
}

impl IncomingStream {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            delivered: 0,
            limit,
            read_up_to: 0,
            expected_end: None,
            unread: VecDeque::new(),
            outcome: None,
            reported: false,
            early_pieces: EarlyPieces::default(),
            partial_chunk: Vec::new(),
            released_bytes: 0,
            digest: BodyDigest::default(),
        }
    }

    /// Returns the size of the flow-control window: how many bytes the sender may send beyond the offset `read_up_to`.
    pub(super) fn granted(&self) -> u64 {
        self.limit - self.read_up_to
    }

    /// Returns true if this piece was already received.
    pub(super) fn has(&self, offset: u64, end: u64) -> bool {
        end <= self.delivered || self.early_pieces.contains(offset, end)
    }

    /// Adds a piece, and delivers all pieces that follow the delivered bytes without a gap. Adds the received chunks,
    /// which are to be stored, to `chunks`. Returns the offset of a piece whose references are not usable, so that the
    /// sender must send its bytes.
    pub(super) fn add_piece(
        &mut self,
        stream: StreamId,
        offset: u64,
        piece: ReceivedPiece,
        chunks: &mut Vec<Bytes>,
    ) -> Result<Option<u64>, Violation> {
        if offset > self.delivered {
            let window = self.limit - self.delivered;
            self.early_pieces.insert(stream, offset, piece, window)?;
            return Ok(None);
        }
        if let Some(refused) = self.deliver(stream, offset, piece, chunks)? {
            return Ok(Some(refused));
        }
        while let Some(piece) = self.early_pieces.take(self.delivered) {
            if let Some(refused) = self.deliver(stream, self.delivered, piece, chunks)? {
                return Ok(Some(refused));
            }
        }
        Ok(None)
    }

    /// Delivers a piece whose offset is at most the delivered offset. Returns the offset if the references of
    /// the piece are not usable.
    fn deliver(
        &mut self,
        stream: StreamId,
        offset: u64,
        piece: ReceivedPiece,
        chunks: &mut Vec<Bytes>,
    ) -> Result<Option<u64>, Violation> {
        let end = offset + piece.bytes.len() as u64;
        if end <= self.delivered {
            return Ok(None);
        }
        if offset < self.delivered {
            // Senders divide a body into pieces only once, so a piece never begins within another one.
            return Err(Violation::Overlap(stream));
        }
        match &piece.kind {
            // The stored chunk begins with other bytes than those received before, for example because two
            // different chunks have the same hash. The sender must send the bytes of this piece.
            PieceContent::References { prefix }
                if self.released_bytes > 0 || *prefix != self.partial_chunk =>
            {
                return Ok(Some(offset));
            }
            PieceContent::Plain | PieceContent::References { .. } => {
                self.partial_chunk.clear();
                self.released_bytes = 0;
            }
            PieceContent::Chunks { cuts } => self.add_chunks(stream, &piece.bytes, cuts, chunks)?,
        }
        self.digest.update(&piece.bytes);
        self.delivered = end;
        push_unread(&mut self.unread, piece.bytes);
        Ok(None)
    }

    fn add_chunks(
        &mut self,
        stream: StreamId,
        bytes: &Bytes,
        cuts: &[u32],
        chunks: &mut Vec<Bytes>,
    ) -> Result<(), Violation> {
        let mut rest = bytes.clone();
        let mut partial_bytes = self.released_bytes + self.partial_chunk.len();
        for &cut in cuts {
            let missing = (cut as usize).checked_sub(partial_bytes);
            let missing = missing.filter(|missing| *missing <= rest.len());
            let mut chunk = rest.split_to(missing.ok_or(Violation::Cut(stream))?);
            if !self.partial_chunk.is_empty() {
                self.partial_chunk.extend_from_slice(&chunk);
                chunk = Bytes::copy_from_slice(&self.partial_chunk);
                self.partial_chunk.clear();
            }
            // A chunk cannot be stored if a part of it was released.
            if std::mem::take(&mut self.released_bytes) == 0 {
                chunks.push(chunk);
            }
            partial_bytes = 0;
        }
        // A chunk is not longer than the longest piece.
        if partial_bytes + rest.len() > PIECE_BYTES_MAX {
            return Err(Violation::Cut(stream));
        }
        if self.released_bytes > 0 {
            self.released_bytes += rest.len();
        } else {
            self.partial_chunk.extend_from_slice(&rest);
        }
        Ok(())
    }

    /// Returns the number of bytes that are kept of a chunk whose end is not received yet.
    pub(super) fn partial_chunk_bytes(&self) -> usize {
        self.partial_chunk.capacity()
    }

    /// Releases the memory of a chunk whose end is not received yet. The chunk will not be stored.
    pub(super) fn release_partial_chunk(&mut self) {
        self.released_bytes += self.partial_chunk.len();
        self.partial_chunk = Vec::new();
    }

    /// Ends the body if CLOSE and all bytes were received.
    pub(super) fn end_if_complete(&mut self, chunks: &mut Vec<Bytes>) {
        let Some((length, digest)) = self.expected_end else {
            return;
        };
        if self.outcome.is_some() || self.delivered < length {
            return;
        }
        let outcome = if self.delivered > length {
            Err(crate::reason::LENGTH)
        } else if self.digest.value() != digest {
            Err(crate::reason::DIGEST)
        } else {
            // A shorter last chunk is not stored, because its entries in the store would be too large for it.
            if self.released_bytes == 0 && self.partial_chunk.len() >= TAIL_BYTES_MIN {
                chunks.push(std::mem::take(&mut self.partial_chunk).into());
            }
            Ok(())
        };
        self.finish(outcome);
    }

    /// Ends the body and frees the memory that is not needed any more.
    pub(super) fn finish(&mut self, outcome: Result<(), u32>) {
        self.outcome = Some(outcome);
        self.early_pieces.clear();
        self.partial_chunk = Vec::new();
        if outcome.is_err() {
            self.unread.clear();
        }
    }
}
