//! Applies what a feed sends: added and removed ids, the time up to which no id is missing, and the feed's position.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use edgeward_filter::{Digest, IdHash};

use super::{JournalError, Writer, clone_published};
use crate::config::Coverage;
use crate::feed::Changes;
use crate::position::StoredPosition;

impl Writer {
    /// Returns the stored position, if it belongs to this feed and this journal and is not newer than the journal.
    pub(super) fn position_of(&self, feed: Digest) -> Option<&StoredPosition> {
        let stored = self.positions.newest();
        stored.filter(|stored| stored.belongs_to(feed, &self.lineages, self.journal.head()))
    }

    /// Registers a feed. Returns true if the feed needs no scan: it has a stored position, and the stored snapshot and
    /// the journal together have every id before this position.
    pub(super) fn begin_feed(&mut self, feed: Digest) -> bool {
        let was_complete = self.position_of(feed).filter(|stored| stored.complete);
        let snapshot = self.journal.snapshot().filter(|_| self.snapshot.is_some());
        let continued_epoch = was_complete.and(snapshot).map(|snapshot| snapshot.epoch);
        self.feed = Some(feed);
        self.completeness
            .record_feed_start(self.now(), continued_epoch);
        if self.config.coverage == Coverage::Feed {
            self.publish_manifest();
        }
        continued_epoch.is_some()
    }

    /// Journals the changes of a feed. After an error, the time up to which no id is missing does not advance,
    /// and the feed must send the changes again.
    pub(super) fn apply_changes(&mut self, changes: Changes) -> Result<(), JournalError> {
        let Changes {
            added,
            removed,
            complete_until,
            position,
        } = changes;
        self.remove(removed);
        let added = self.remove_known_ids(added);
        let count = added.len() as u64;
        self.add(added)?;
        self.counters.ids_fed.add(count);
        if let Some(complete_until) = complete_until {
            self.counters.polls.increment();
            self.extend_coverage(complete_until);
        }
        if let (Some(position), Some(feed)) = (position, self.feed) {
            let position = StoredPosition::new(
                feed,
                self.lineage,
                position,
                self.journal.head(),
                self.completeness.feed_has_every_id(),
            );
            let recorded = self.positions.record(position, self.now());
            self.log_position_error(recorded);
        }
        Ok(())
    }

    /// Records that all ids committed before `complete_until`, a time of the monotonic clock, are published.
    fn extend_coverage(&mut self, complete_until: Duration) {
        self.completeness.record_feed_progress(complete_until);
        // Only the coverage changes, not the manifest, so waiting clients are not notified.
        let covered_until = self.completeness.covers();
        self.published.send_if_modified(|published| {
            let mut newer = clone_published(published);
            newer.covered_until = covered_until;
            *published = Arc::new(newer);
            false
        });
    }

    /// Removes from `added` the ids that the journal has added since the newest snapshot. A restarted feed sends some
    /// ids again, and journaling them twice would take space in the deltas. An id that was removed after it was added
    /// counts as new. An id that was added before the snapshot also counts as new: its row may have been
    /// removed and inserted again during the scan, so that the scan did not read it.
    fn remove_known_ids(&self, added: Vec<IdHash>) -> Vec<IdHash> {
        if added.is_empty() {
            return added;
        }
        let mut added: HashSet<IdHash> = added.into_iter().collect();
        for id in self.journal.ids_after_snapshot() {
            if !self.removed_ids.contains(&id) {
                added.remove(&id);
            }
        }
        added.into_iter().collect()
    }

    pub(super) fn log_position_error(&self, result: std::io::Result<()>) {
        if let Err(error) = result {
            // If the stored position is old, the next start only reads some ids again.
            self.counters.journal_errors.increment();
            tracing::warn!(%error, "cannot write the position of the feed");
        }
    }
}
