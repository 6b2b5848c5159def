//! Read-ahead of trailers.
//!
//! The next containers to be overwritten are known, and a body whose chunks were found in two consecutive
//! containers continues in the third. A query for a trailer that is not in memory would block under the lock. So
//! such trailers are announced early, for a caller that can [fetch](crate::Chunks::fetch) them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::chunks::{Shared, State};
use crate::hasty::{Patience, Want, Wanted};

impl Shared {
    /// Announces the trailer after this one, because this one followed the previous one.
    pub(crate) fn foresee_next(&self, position: u32, state: &mut State) {
        self.foresee((position + 1) % self.containers, state);
    }

    /// Announces the trailers of the containers that are overwritten after the open one.
    pub(crate) fn foresee_evictions(&self, state: &mut State) {
        let open = state.open.number;
        for number in (1..=EVICTIONS).filter_map(|nth| open.checked_add(nth)) {
            // In the first lap no container is overwritten.
            if number >= self.containers {
                self.foresee(self.position(number), state);
            }
        }
    }

    fn foresee(&self, position: u32, state: &mut State) {
        let is_news = !state.trailers.has(position) && !state.soon.contains(&position);
        if is_news && state.soon.len() < SOON_MAX && self.device.tells_cached() {
            state.soon.push(position);
            self.foresees.store(true, Ordering::Relaxed);
        }
    }

    /// Returns the reads announced since the last call, except trailers that can be read without blocking.
    pub(crate) fn foreseen(&self) -> Option<Wanted> {
        if !self.foresees.load(Ordering::Relaxed) {
            return None;
        }
        let state = &mut *self.state();
        self.foresees.store(false, Ordering::Relaxed);
        let mut wanted = Wanted::default();
        for position in std::mem::take(&mut state.soon) {
            let mut unread = Wanted::default();
            if state.trailers.has(position) || self.position(state.open.number) == position {
                continue;
            }
            if let Some(listing) =
                self.read_trailer(position, state, &mut Patience::Hasty(&mut unread))
            {
                state.counters.trailers_read += 1;
                state.trailers.insert_ahead(position, Arc::new(listing));
            } else if !unread.is_empty() {
                wanted.want(Want::Ahead(position));
            }
        }
        (!wanted.is_empty()).then_some(wanted)
    }
}

/// Two containers take 16 ms to fill at one gigabit per second, about as long as a disk takes to read.
const EVICTIONS: u32 = 2;

/// Few bodies are received at the same time. Without a caller that performs the reads, no more need be remembered.
const SOON_MAX: usize = 32;
