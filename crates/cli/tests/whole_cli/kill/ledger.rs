//! What is known to be durable, from outside.
//!
//! An object that came from disk had been written when its answer began. What the edge tells next of its syncs may count
//! one that began before that, and one more may have been under way; the second to end after it began later. So an object
//! is durable once the count has risen by two.
//!
//! An object that is invalidated meanwhile is a new one: each has a generation, and a request knows which it asked for.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    generations: HashMap<u64, u64>,
    /// Came from disk since the edge last told its syncs.
    written: Vec<Ticket>,
    /// With the count from which on they are durable.
    waiting: Vec<(Ticket, u64)>,
    durable: HashSet<Ticket>,
}

/// An object in the state in which it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ticket {
    id: u64,
    generation: u64,
}

impl Ledger {
    /// Before an object is asked for.
    pub(super) fn ask(&self, id: u64) -> Ticket {
        let generation = self.state().generations.get(&id).copied();
        Ticket {
            id,
            generation: generation.unwrap_or(0),
        }
    }

    /// Before an object is invalidated, and again after it.
    pub(super) fn invalidating(&self, id: u64) {
        *self.state().generations.entry(id).or_default() += 1;
    }

    /// It came from disk.
    pub(super) fn is_written(&self, ticket: Ticket) {
        self.state().written.push(ticket);
    }

    /// It came from disk and was there before a kill.
    pub(super) fn is_durable(&self, ticket: Ticket) {
        self.state().durable.insert(ticket);
    }

    /// Asks the edge how many syncs it has done. None: it did not answer.
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

    /// Whether it is known to be durable.
    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        self.state().durable.contains(&ticket)
    }

    /// What was durable and not invalidated when the edge was killed. What is known begins anew: nothing.
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
        self.state.lock().expect("nobody panicked")
    }
}
