//! Bodies on their way out that wait for the disk: for whether a chunk of theirs is there.
//!
//! Whoever writes such a body waits, and a connection has read what is wanted, on a blocking thread. Until the body is resumed the connection may be
//! gone; then another takes its place.

use std::collections::VecDeque;

use edgeward_chunk_store::Wanted;
use edgeward_dedup::sender::Sender;
use edgeward_dedup::wire::StreamId;

use super::{Core, HASTY_TIMES_MAX, LineId};

/// A body, and what is wanted for it.
#[derive(Debug)]
pub(crate) struct Stall {
    pub(crate) stream: StreamId,
    pub(crate) wanted: Wanted,
    /// How often the store was asked.
    pub(crate) times: u32,
}

/// Each stalled body once.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    /// Nobody reads for them yet.
    waiting: VecDeque<Stall>,
    /// Who does.
    reading: Vec<(LineId, StreamId, u32)>,
    /// How many there were.
    count: u64,
}

impl Stalls {
    /// After a body was worked on: whether it is stalled now, for want of this. It was not before.
    pub(super) fn add(
        &mut self,
        sender: &Sender,
        stream: StreamId,
        wanted: Wanted,
        times: u32,
    ) -> bool {
        let stalled = !wanted.is_empty() && sender.is_stalled(stream);
        let is_news = |it: &Self| {
            !it.waiting.iter().any(|stall| stall.stream == stream)
                && !it.reading.iter().any(|(_, other, _)| *other == stream)
        };
        if stalled && is_news(self) {
            self.count += u64::from(times == 1);
            self.waiting.push_back(Stall {
                stream,
                wanted,
                times,
            });
        }
        stalled
    }
}

impl Core {
    /// How often a body waited for the disk.
    pub(crate) fn late_bodies(&self) -> u64 {
        self.stalls.count
    }

    /// The next body for which a connection has something read.
    pub(crate) fn stall(&mut self, line: LineId) -> Option<Stall> {
        if self.stalls.reading.is_empty() && self.stalls.waiting.is_empty() {
            return None;
        }
        let lines = &self.lines;
        let is_lost =
            |reads: &mut (LineId, StreamId, u32)| !lines.iter().any(|up| up.id == reads.0);
        for (_, stream, times) in self.stalls.reading.extract_if(.., is_lost) {
            // It finds out anew what it wants.
            self.stalls.waiting.push_back(Stall {
                stream,
                wanted: Wanted::default(),
                times,
            });
        }
        let stall = self.stalls.waiting.pop_front()?;
        self.stalls.reading.push((line, stall.stream, stall.times));
        Some(stall)
    }

    /// What was wanted for a body was read.
    pub(crate) fn resume(&mut self, line: LineId, stream: StreamId, times: u32) {
        let reading = &mut self.stalls.reading;
        let Some(at) = reading
            .iter()
            .position(|(by, of, _)| (*by, *of) == (line, stream))
        else {
            return;
        };
        reading.swap_remove(at);
        let (endpoint, codec) = (&mut self.endpoint, &mut self.codec);
        let wanted = if times < HASTY_TIMES_MAX {
            let mut store = self.store.hasty();
            endpoint.resume(stream, &mut store, codec);
            store.into_wanted()
        } else {
            endpoint.resume(stream, &mut self.store, codec);
            Wanted::default()
        };
        self.stalls
            .add(endpoint.sender(), stream, wanted, times + 1);
        self.wake_writers(vec![stream]);
        self.kick();
    }
}
