//! Trailers that will be asked for soon.
//!
//! Which container is overwritten next is known, and a body that was found in two of them goes on in a third. Whoever asks for such a
//! trailer when its time has come waits for the device and has others wait; so it is said beforehand, for somebody who can
//! [fetch](crate::Chunks::fetch) it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::chunks::{Shared, State};
use crate::hasty::{Patience, Want, Wanted};

impl Shared {
    /// The trailer after this one will be asked for, since this one was after the one before.
    pub(crate) fn foresee_next(&self, position: u32, state: &mut State) {
        self.foresee((position + 1) % self.containers, state);
    }

    /// The containers that are overwritten after the open one.
    pub(crate) fn foresee_evictions(&self, state: &mut State) {
        let open = state.open.number;
        for number in (1..=EVICTIONS).filter_map(|nth| open.checked_add(nth)) {
            // In the first lap there is nothing.
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

    /// What was foreseen since this was last asked, without what can be had at once.
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

/// Two containers take 16 ms of a gigabit a second to fill: about what a disk takes to read.
const EVICTIONS: u32 = 2;

/// Bodies that go on at the same time are few, and what nobody sees to need not be remembered.
const SOON_MAX: usize = 32;
