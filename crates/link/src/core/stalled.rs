//! Outgoing streams that are stalled until a disk read shows whether the store has a chunk.
//!
//! The writer of a stalled stream waits, and a connection performs the pending reads on a blocking thread. If that
//! connection ends before the stream is resumed, another one takes over.

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
    /// How many times the store was queried.
    pub(crate) attempts: u32,
}

/// The stalled streams. Each stream is in at most one of the lists.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Streams whose reads no connection performs yet.
    waiting: VecDeque<Stall>,
    /// Streams whose reads are being performed: the connection, the stream, the number of attempts.
    reading: Vec<(ConnectionId, StreamId, u32)>,
    /// The number of stalls so far.
    count: u64,
}

impl Stalls {
    /// Called after bytes of a stream were processed that was not stalled before. Returns true if the stream is
    /// stalled now; `pending` are its pending reads.
    pub(super) fn add(
        &mut self,
        sender: &Sender,
        stream: StreamId,
        pending: PendingReads,
        attempts: u32,
    ) -> bool {
        let stalled = !pending.is_empty() && sender.is_stalled(stream);
        let is_news = |it: &Self| {
            !it.waiting.iter().any(|stall| stall.stream == stream)
                && !it.reading.iter().any(|(_, other, _)| *other == stream)
        };
        if stalled && is_news(self) {
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
    /// Returns how many times a stream was stalled.
    pub(crate) fn late_bodies(&self) -> u64 {
        self.stalls.count
    }

    /// Takes the next stalled stream, for which the connection performs the reads.
    pub(crate) fn take_stall(&mut self, connection: ConnectionId) -> Option<Stall> {
        if self.stalls.reading.is_empty() && self.stalls.waiting.is_empty() {
            return None;
        }
        let connections = &self.connections;
        let is_lost = |reads: &mut (ConnectionId, StreamId, u32)| {
            !connections.iter().any(|up| up.id == reads.0)
        };
        for (_, stream, attempts) in self.stalls.reading.extract_if(.., is_lost) {
            // Resuming the stream determines its pending reads again.
            self.stalls.waiting.push_back(Stall {
                stream,
                pending: PendingReads::default(),
                attempts,
            });
        }
        let stall = self.stalls.waiting.pop_front()?;
        self.stalls
            .reading
            .push((connection, stall.stream, stall.attempts));
        Some(stall)
    }

    /// Resumes a stream whose pending reads were performed.
    pub(crate) fn resume(&mut self, connection: ConnectionId, stream: StreamId, attempts: u32) {
        let reading = &mut self.stalls.reading;
        let Some(at) = reading
            .iter()
            .position(|(by, of, _)| (*by, *of) == (connection, stream))
        else {
            return;
        };
        reading.swap_remove(at);
        let (endpoint, codec) = (&mut self.endpoint, &mut self.codec);
        let pending = if attempts < NON_BLOCKING_ATTEMPTS_MAX {
            let mut store = self.store.non_blocking();
            endpoint.resume(stream, &mut store, codec);
            store.into_pending()
        } else {
            endpoint.resume(stream, &mut self.store, codec);
            PendingReads::default()
        };
        self.stalls
            .add(endpoint.sender(), stream, pending, attempts + 1);
        self.wake_writers(vec![stream]);
        self.wake_idle();
    }
}
