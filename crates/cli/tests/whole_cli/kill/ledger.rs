//! Records which objects are known to be durable on disk.
//!
//! An object that the edge serves from disk was written before its response began. The ledger then reads the
//! edge's count of syncs. At this time, a sync that began before the write may still be running, but the next
//! sync begins after the write. The object is therefore durable when the count is higher by two.
//!
//! Each id has a generation. An invalidation starts a new generation, because the next response is a new object. It
//! starts two: responses during the invalidation may be the old or the new object, so they get a generation of their
//! own, which the ledger ignores afterwards.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct DurabilityLedger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The current generation of each invalidated id. Other ids have generation 0.
    generations: HashMap<u64, u64>,
    /// The objects served from disk since the ledger last read the edge's count of syncs.
    written: Vec<ObjectGeneration>,
    /// The objects that are not known to be durable, each with the count of syncs at which it is durable.
    not_yet_durable: Vec<(ObjectGeneration, u64)>,
    durable: HashSet<ObjectGeneration>,
}

/// One generation of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ObjectGeneration {
    id: u64,
    generation: u64,
}

impl DurabilityLedger {
    /// Returns the current generation of an object. The test calls this before it requests the object.
    pub(super) fn generation_of(&self, id: u64) -> ObjectGeneration {
        let generation = self.state().generations.get(&id).copied();
        ObjectGeneration {
            id,
            generation: generation.unwrap_or(0),
        }
    }

    /// Starts a new generation of an object. The test calls this before and after it invalidates the object.
    pub(super) fn record_invalidation(&self, id: u64) {
        *self.state().generations.entry(id).or_default() += 1;
    }

    /// Records that the object was served from disk.
    pub(super) fn record_written(&self, object: ObjectGeneration) {
        self.state().written.push(object);
    }

    /// Records that the object was served from disk after a restart, so that it is durable.
    pub(super) fn record_durable(&self, object: ObjectGeneration) {
        self.state().durable.insert(object);
    }

    /// Reads the edge's sync count with `syncs` and records which objects are durable by this count. Returns
    /// `None` if the edge did not respond.
    pub(super) fn update_durable(&self, syncs: impl FnOnce() -> Option<u64>) -> Option<()> {
        let written = std::mem::take(&mut self.state().written);
        let syncs = syncs()?;
        let mut state = self.state();
        let State {
            not_yet_durable,
            durable,
            ..
        } = &mut *state;
        not_yet_durable.retain(|&(object, durable_at)| {
            let is_durable = durable_at <= syncs;
            if is_durable {
                durable.insert(object);
            }
            !is_durable
        });
        not_yet_durable.extend(written.into_iter().map(|object| (object, syncs + 2)));
        Some(())
    }

    /// Returns true if the object is known to be durable.
    pub(super) fn is_known_durable(&self, object: ObjectGeneration) -> bool {
        self.state().durable.contains(&object)
    }

    /// Returns the ids that were durable and not invalidated when the edge was killed. Forgets all objects, but
    /// keeps the generations.
    pub(super) fn take_durable_ids(&self) -> Vec<u64> {
        let mut state = self.state();
        state.written.clear();
        state.not_yet_durable.clear();
        let durable = std::mem::take(&mut state.durable);
        let is_current = |object: &ObjectGeneration| {
            let generation = state.generations.get(&object.id);
            generation.copied().unwrap_or(0) == object.generation
        };
        let mut ids: Vec<u64> = durable
            .into_iter()
            .filter(is_current)
            .map(|object| object.id)
            .collect();
        ids.sort_unstable();
        ids
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no thread panicked while it held the lock")
    }
}
