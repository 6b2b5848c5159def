//! Stalled outgoing streams: the sender needs a disk read to find out whether the store has the next chunk.
//!
//! The writer of a stalled stream waits while a connection performs the pending reads on a blocking thread. If the
//! connection ends before the stream is resumed, another connection resumes it, and the sender determines the pending
//! reads again.

use std::collections::VecDeque;

use edgeward_chunk_store::PendingReads;
use edgeward_dedup::sender::Sender;
use edgeward_dedup::wire::StreamId;

use super::{ConnectionId, Core, NON_BLOCKING_ATTEMPTS_MAX};

/// A stalled stream and its pending reads.
#[derive(Debug)]
pub(crate) struct Stall {
    pub(crate) stream: StreamId,
    pub(crate) pending: PendingReads,
    /// The number of times that the sender looked up the chunk and needed a disk read.
    pub(crate) attempts: u32,
}

/// The stalled streams. Each stream is in at most one of the lists.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Streams whose reads have not been started by a connection.
    waiting: VecDeque<Stall>,
    /// Streams whose reads a connection performs now: the connection, the stream, and the number of attempts.
    in_progress: Vec<(ConnectionId, StreamId, u32)>,
    /// The number of stalls since the start.
    count: u64,
}

impl Stalls {
    /// Called after bytes of a stream were processed. `pending` has the disk reads that the sender needs, if any.
    /// Returns true if the stream is stalled. Such a stream is added to `waiting`, unless it is already in a list.
    pub(super) fn add(
        &mut self,
        sender: &Sender,
        stream: StreamId,
        pending: PendingReads,
        attempts: u32,
    ) -> bool {
        let stalled = !pending.is_empty() && sender.is_stalled(stream);
        let is_unlisted = |stalls: &Self| {
            !stalls.waiting.iter().any(|stall| stall.stream == stream)
                && !stalls
                    .in_progress
                    .iter()
                    .any(|(_, other, _)| *other == stream)
        };
        if stalled && is_unlisted(self) {
            self.count += u64::from(attempts == 1);
            self.waiting.push_back(Stall {
                stream,
                pending,
                attempts,
            });
        }
        stalled
    }
}

impl Core {
    /// Returns how many times an outgoing stream was stalled.
    pub(crate) fn stall_count(&self) -> u64 {
        self.stalls.count
    }

    /// Returns the next stalled stream. The connection must perform its reads and then call [`resume`](Self::resume).
    pub(crate) fn take_stall(&mut self, connection: ConnectionId) -> Option<Stall> {
        if self.stalls.in_progress.is_empty() && self.stalls.waiting.is_empty() {
            return None;
        }
        let connections = &self.connections;
        let is_lost = |reads: &mut (ConnectionId, StreamId, u32)| {
            !connections.iter().any(|state| state.id == reads.0)
        };
        for (_, stream, attempts) in self.stalls.in_progress.extract_if(.., is_lost) {
            // The connection ended and its reads may not have been performed. The stream is listed without reads:
            // `resume` looks the chunk up and determines the reads again.
            self.stalls.waiting.push_back(Stall {
                stream,
                pending: PendingReads::default(),
                attempts,
            });
        }
        let stall = self.stalls.waiting.pop_front()?;
        self.stalls
            .in_progress
            .push((connection, stall.stream, stall.attempts));
        Some(stall)
    }

    /// Resumes a stream after the connection has performed its pending reads.
    pub(crate) fn resume(&mut self, connection: ConnectionId, stream: StreamId, attempts: u32) {
        let reading = &mut self.stalls.in_progress;
        let Some(index) = reading
            .iter()
            .position(|(reader, stalled, _)| (*reader, *stalled) == (connection, stream))
        else {
            return;
        };
        reading.swap_remove(index);
        let (endpoint, codec) = (&mut self.endpoint, &mut self.codec);
        let pending = if attempts < NON_BLOCKING_ATTEMPTS_MAX {
            let mut store = self.store.non_blocking();
            endpoint.resume(stream, &mut store, codec);
            store.into_pending()
        } else {
            // Many attempts have stalled: now the sender itself waits for the disk, so it cannot stall again.
            endpoint.resume(stream, &mut self.store, codec);
            PendingReads::default()
        };
        self.stalls
            .add(endpoint.sender(), stream, pending, attempts + 1);
        self.wake_writers(vec![stream]);
        self.wake_idle();
    }
}
