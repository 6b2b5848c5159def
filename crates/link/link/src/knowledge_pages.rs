//! The table of the pages of knowledge that the peers of an endpoint share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use edgeward_dedup::knowledge::{Knowledge, SharedPages, SharedPagesStatus};

/// The table of an endpoint. Tasks of peers hold its lock for less than a millisecond.
#[derive(Clone, Debug)]
pub(crate) struct KnowledgePages(Arc<Mutex<SharedPages>>);

impl KnowledgePages {
    /// Creates a table for pages of at most `bytes_max` bytes and `peers_max` peers.
    pub(crate) fn new(bytes_max: usize, peers_max: usize) -> Self {
        Self(Arc::new(Mutex::new(SharedPages::new(bytes_max, peers_max))))
    }

    /// Adds some of the changed pages of a peer to the table.
    pub(crate) fn share(&self, knowledge: &mut Knowledge) {
        if knowledge.must_share() {
            knowledge.share(&mut self.lock());
        }
    }

    /// Adds all pages of restored knowledge to the table.
    pub(crate) fn share_all(&self, knowledge: &mut Knowledge) {
        while knowledge.must_share() {
            self.share(knowledge);
        }
    }

    pub(crate) fn status(&self) -> SharedPagesStatus {
        self.lock().status()
    }

    fn lock(&self) -> MutexGuard<'_, SharedPages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
