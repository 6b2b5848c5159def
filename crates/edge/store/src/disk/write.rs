//! A write of an object: the caller pushes the body in parts and never waits for the device.

use std::sync::Arc;

use bytes::Bytes;
use edgeward_types::KeyHash;

use super::error::{BeginError, WriteError};
use super::message::Message;
use super::queue::NotQueued;
use super::volume::Volume;
use super::write_state::WriteState;

/// An object that is being written. If this value is dropped before [`finish`](Self::finish), lookups find no
/// part of the object.
#[derive(Debug)]
pub struct DiskWrite {
    volume: Arc<Volume>,
    state: Arc<WriteState>,
    /// The length that the caller announced.
    length: Option<u64>,
    /// The size of the largest object that the cache accepts.
    length_max: u64,
    /// The bytes pushed so far.
    pushed: u64,
    /// Pushed bytes that are not queued for the writer yet.
    gathered: Vec<Bytes>,
    /// The sum of the lengths of `gathered`.
    gathered_bytes: u64,
    /// True if pieces were queued, so that the object must end with a commit record.
    in_pieces: bool,
    /// True after the write was finished or dropped.
    ended: bool,
}

/// While the queue is more than half full, a piece of this size is queued although it could still grow. The writer
/// can then release the bytes of the piece sooner.
const EARLY_PIECE_BYTES: u64 = 256 << 10;

impl DiskWrite {
    pub(crate) fn begin(
        volume: &Arc<Volume>,
        hash: KeyHash,
        key: &[u8],
        head: Bytes,
        length: Option<u64>,
        length_max: u64,
    ) -> Result<Self, BeginError> {
        let key_and_head_bytes = (key.len() + head.len()) as u64;
        if !volume.queue.reserve_bytes(key_and_head_bytes) {
            volume.counters.dropped_queue_full.increment();
            return Err(BeginError::QueueFull);
        }
        let state = WriteState::new(hash, volume.next_object_id(), key, head);
        volume.register(&state);
        Ok(Self {
            volume: Arc::clone(volume),
            state,
            length,
            length_max,
            pushed: 0,
            gathered: Vec::new(),
            gathered_bytes: 0,
            in_pieces: false,
            ended: false,
        })
    }

    /// Appends bytes to the body. Never waits. `bytes` must not keep alive a buffer that is much larger than
    /// its own length, because the limit of the queue counts only the length.
    ///
    /// # Errors
    ///
    /// Fails if the write was dropped. The write has then ended, and later pushes return the same error.
    pub fn push(&mut self, bytes: Bytes) -> Result<(), WriteError> {
        if let Some(cause) = self.state.dropped() {
            return Err(self.abort(cause));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let more = bytes.len() as u64;
        let allowed = self.length.unwrap_or(self.length_max);
        if self.pushed + more > allowed {
            return Err(self.abort(WriteError::TooLong));
        }
        if !self.volume.queue.reserve_bytes(more) {
            return Err(self.abort(WriteError::QueueFull));
        }
        self.pushed += more;
        self.gathered.push(bytes);
        self.gathered_bytes += more;
        let piece_bytes = self.volume.shape.piece_bytes;
        // An object with a known small length stays in one record.
        if self.length.is_some_and(|length| length <= piece_bytes) {
            return Ok(());
        }
        while self.gathered_bytes > piece_bytes {
            self.send_piece(piece_bytes)?;
        }
        // An object of unknown length may still fit in one record, so its first piece is not queued early.
        let may_be_split = self.in_pieces || self.length.is_some();
        if may_be_split
            && self.gathered_bytes >= EARLY_PIECE_BYTES
            && self.volume.queue.is_half_full()
        {
            self.send_piece(self.gathered_bytes)?;
        }
        Ok(())
    }

    /// Ends the body. Lookups find an object of one record when the record is in the write buffer. They find an
    /// object in pieces when its commit record is written.
    ///
    /// # Errors
    ///
    /// Fails if the write was dropped.
    pub fn finish(mut self) -> Result<(), WriteError> {
        if let Some(cause) = self.state.dropped() {
            return Err(self.abort(cause));
        }
        if self.length.is_some_and(|length| self.pushed < length) {
            return Err(self.abort(WriteError::TooShort));
        }
        self.state.set_body_bytes(self.pushed);
        if self.in_pieces && self.gathered_bytes > 0 {
            self.send_piece(self.gathered_bytes)?;
        }
        let write = Arc::clone(&self.state);
        let message = if self.in_pieces {
            Message::Commit { write }
        } else {
            let body = std::mem::take(&mut self.gathered);
            Message::Object {
                write,
                body,
                body_bytes: self.gathered_bytes,
            }
        };
        self.send(message)?;
        self.gathered_bytes = 0;
        self.ended = true;
        Ok(())
    }

    fn send_piece(&mut self, piece_bytes: u64) -> Result<(), WriteError> {
        let mut body = Vec::with_capacity(self.gathered.len());
        let mut bytes_left = piece_bytes;
        let mut taken = 0;
        while bytes_left > 0 {
            let chunk = &mut self.gathered[taken];
            if chunk.len() as u64 <= bytes_left {
                bytes_left -= chunk.len() as u64;
                body.push(std::mem::take(chunk));
                taken += 1;
            } else {
                let part =
                    usize::try_from(bytes_left).expect("the part is less than a chunk's length");
                body.push(chunk.split_to(part));
                bytes_left = 0;
            }
        }
        self.gathered.drain(..taken);
        self.in_pieces = true;
        let message = Message::Piece {
            write: Arc::clone(&self.state),
            body,
            body_bytes: piece_bytes,
        };
        self.send(message)?;
        self.gathered_bytes -= piece_bytes;
        Ok(())
    }

    fn send(&mut self, message: Message) -> Result<(), WriteError> {
        self.volume.queue.push(message).map_err(|refused| {
            self.abort(match refused {
                NotQueued::Full => WriteError::QueueFull,
                NotQueued::Closed => WriteError::Closed,
            })
        })
    }

    fn abort(&mut self, cause: WriteError) -> WriteError {
        self.state.drop_as(cause);
        if !self.ended {
            self.ended = true;
            self.volume.count_dropped(cause);
            self.end();
        }
        cause
    }

    /// Releases the bytes that are not in a queued message, and unregisters the write.
    fn end(&mut self) {
        let key_and_head_bytes = (self.state.key.len() + self.state.head.len()) as u64;
        self.volume
            .queue
            .release_bytes(self.gathered_bytes + key_and_head_bytes);
        self.gathered.clear();
        self.gathered_bytes = 0;
        self.volume.unregister(&self.state);
    }
}

impl Drop for DiskWrite {
    fn drop(&mut self) {
        if !self.ended {
            self.ended = true;
            self.state.drop_as(WriteError::TooShort);
            self.volume.counters.dropped_aborted.increment();
            self.end();
        }
    }
}
