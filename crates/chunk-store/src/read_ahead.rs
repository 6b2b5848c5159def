//! Read-ahead of trailers.
//!
//! The next containers to be overwritten are known, and a body whose chunks were found in two consecutive
//! containers continues in the third. A query for a trailer that is not in memory would block under the lock. So
//! such trailers are announced early, for a caller that can [fetch](crate::Chunks::fetch) them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::chunks::{Shared, State};
use crate::non_blocking::{Access, PendingRead, PendingReads};

impl Shared {
    /// Announces the trailer after this one, because this one followed the previous one.
    pub(crate) fn announce_next(&self, position: u32, state: &mut State) {
        self.announce((position + 1) % self.containers, state);
    }

    /// Announces the trailers of the containers that are overwritten after the open one.
    pub(crate) fn announce_evictions(&self, state: &mut State) {
        let open = state.open.number;
        for number in (1..=EVICTIONS).filter_map(|nth| open.checked_add(nth)) {
            // In the first lap no container is overwritten.
            if number >= self.containers {
                self.announce(self.position(number), state);
            }
        }
    }

    fn announce(&self, position: u32, state: &mut State) {
        let is_news = !state.trailers.contains(position) && !state.announced.contains(&position);
        if is_news && state.announced.len() < ANNOUNCED_MAX && self.device.supports_read_now() {
            state.announced.push(position);
            self.has_announced.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the reads announced since the last call, except trailers that can be read without blocking.
    pub(crate) fn read_ahead(&self) -> Option<PendingReads> {
        if !self.has_announced.load(Ordering::Relaxed) {
            return None;
        }
        let state = &mut *self.state();
        self.has_announced.store(false, Ordering::Relaxed);
        let mut pending = PendingReads::default();
        for position in std::mem::take(&mut state.announced) {
            let mut unread = PendingReads::default();
            if state.trailers.contains(position) || self.position(state.open.number) == position {
                continue;
            }
            if let Some(listing) =
                self.read_trailer(position, state, &mut Access::NonBlocking(&mut unread))
            {
                state.counters.trailers_read += 1;
                state.trailers.insert_ahead(position, Arc::new(listing));
            } else if !unread.is_empty() {
                pending.add(PendingRead::ReadAhead(position));
            }
        }
        (!pending.is_empty()).then_some(pending)
    }
}

/// Two containers take 16 ms to fill at one gigabit per second, about as long as a disk takes to read.
const EVICTIONS: u32 = 2;

/// Few bodies are received at the same time. Without a caller that performs the reads, no more need be remembered.
const ANNOUNCED_MAX: usize = 32;
