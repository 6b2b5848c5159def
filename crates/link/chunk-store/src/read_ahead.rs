//! Predicts which trailers are needed soon, so that a caller can read them ahead. The trailer of a container lists
//! its chunks.
//!
//! Two kinds of trailers are predictable. A container's trailer is needed before the container is overwritten, to
//! remove its chunks from the index. If the chunks of a body were found in two consecutive containers, the next
//! container probably has the body's next chunks. A query for a trailer that is not in memory would block while it
//! holds the lock of the store. Predicted trailers are therefore announced early, and a caller that may block
//! [reads](crate::Chunks::fetch) them without the lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::chunks::{Shared, State};
use crate::non_blocking::{Access, PendingRead, PendingReads};

impl Shared {
    /// Announces the trailer after the one at `position`. The caller calls this if trailers are requested in the order
    /// of their positions.
    pub(crate) fn announce_next(&self, position: u32, state: &mut State) {
        self.announce((position + 1) % self.containers, state);
    }

    /// Announces the trailers of the containers that will be overwritten after the open container is full.
    pub(crate) fn announce_evictions(&self, state: &mut State) {
        let open = state.open.number;
        for number in (1..=ANNOUNCED_EVICTIONS).filter_map(|nth| open.checked_add(nth)) {
            // Containers are numbered from 0 in the order of writing. The first `self.containers` overwrite no other.
            if number >= self.containers {
                self.announce(self.position(number), state);
            }
        }
    }

    fn announce(&self, position: u32, state: &mut State) {
        let is_missing = !state.trailers.contains(position) && !state.announced.contains(&position);
        if is_missing && state.announced.len() < ANNOUNCED_MAX && self.device.supports_read_now() {
            state.announced.push(position);
            self.has_announced.store(true, Ordering::Relaxed);
        }
    }

    /// Reads the trailers announced since the last call, if this is possible without blocking. Returns a pending read
    /// for each trailer whose read would block.
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
                state
                    .trailers
                    .insert_read_ahead(position, Arc::new(listing));
            } else if !unread.is_empty() {
                pending.add_pending(PendingRead::ReadAhead(position));
            }
        }
        (!pending.is_empty()).then_some(pending)
    }
}

/// The number of containers whose trailers are announced before the containers are overwritten. At one gigabit per
/// second, two containers are filled in 16 ms, which is about the time of a read from a hard disk.
const ANNOUNCED_EVICTIONS: u32 = 2;

/// The highest number of announced trailers. Few bodies are received at the same time, so 32 are enough. Without the
/// limit, the list would grow if no caller reads the announced trailers.
const ANNOUNCED_MAX: usize = 32;
