//! Counts the accepted purges. Any thread may accept purges, so these counters are not part of a worker's counters.

use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_purge::Scope;

/// The numbers of accepted purges, by kind of scope.
#[derive(Debug, Default)]
pub(crate) struct AcceptedPurges([AtomicU64; 6]);

impl AcceptedPurges {
    /// Returns the number of accepted purges with this kind of scope, or 0 for an unknown kind.
    pub(crate) fn count(&self, kind: &str) -> u64 {
        let index = KINDS.iter().position(|known| *known == kind);
        index.map_or(0, |index| self.0[index].load(Ordering::Relaxed))
    }

    pub(crate) fn increment(&self, scope: &Scope) {
        if let Some(index) = KINDS.iter().position(|kind| *kind == scope.kind()) {
            self.0[index].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The values of [`Scope::kind`].
const KINDS: [&str; 6] = ["url", "host", "tag", "group", "prefix", "pattern"];
