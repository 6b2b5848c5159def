//! Records which objects are known to be durable on disk.
//!
//! An object that is served from disk was written when its response began. The next sync count that the edge
//! reports may include a sync that began before this write, and another one may have been running. The second
//! sync to end after the report began after the write. So an object is durable once the sync count has risen by
//! two.
//!
//! Invalidation makes a new object: each id has a generation, and a request records the generation that it asked for.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    generations: HashMap<u64, u64>,
    /// Objects served from disk since the edge last reported its sync count.
    written: Vec<Ticket>,
    /// Objects with the sync count at which they are durable.
    waiting: Vec<(Ticket, u64)>,
    durable: HashSet<Ticket>,
}

/// One generation of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ticket {
    id: u64,
    generation: u64,
}

impl Ledger {
    /// The current generation of an object. Called before its request.
    pub(super) fn ask(&self, id: u64) -> Ticket {
        let generation = self.state().generations.get(&id).copied();
        Ticket {
            id,
            generation: generation.unwrap_or(0),
        }
    }

    /// Starts a new generation. Called before and after an invalidation.
    pub(super) fn invalidating(&self, id: u64) {
        *self.state().generations.entry(id).or_default() += 1;
    }

    /// Records that the object was served from disk.
    pub(super) fn is_written(&self, ticket: Ticket) {
        self.state().written.push(ticket);
    }

    /// Records that the object was served from disk after a restart, so that it is durable.
    pub(super) fn is_durable(&self, ticket: Ticket) {
        self.state().durable.insert(ticket);
    }

    /// Reads the edge's sync count. Returns `None` if the edge did not respond.
    pub(super) fn ask_for_syncs(&self, syncs: impl FnOnce() -> Option<u64>) -> Option<()> {
        let written = std::mem::take(&mut self.state().written);
        let syncs = syncs()?;
        let mut state = self.state();
        let State {
            waiting, durable, ..
        } = &mut *state;
        waiting.retain(|&(ticket, from)| {
            let is_durable = from <= syncs;
            if is_durable {
                durable.insert(ticket);
            }
            !is_durable
        });
        waiting.extend(written.into_iter().map(|ticket| (ticket, syncs + 2)));
        Some(())
    }

    /// Returns true if the object is known to be durable.
    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        self.state().durable.contains(&ticket)
    }

    /// Returns the ids that were durable and not invalidated when the edge was killed, and clears the ledger.
    pub(super) fn begin_again(&self) -> Vec<u64> {
        let mut state = self.state();
        state.written.clear();
        state.waiting.clear();
        let durable = std::mem::take(&mut state.durable);
        let current = |ticket: &Ticket| {
            let generation = state.generations.get(&ticket.id);
            generation.copied().unwrap_or(0) == ticket.generation
        };
        let mut ids: Vec<u64> = durable
            .into_iter()
            .filter(current)
            .map(|ticket| ticket.id)
            .collect();
        ids.sort_unstable();
        ids
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked")
    }
}
