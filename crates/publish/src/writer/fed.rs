//! What a feed of changes brings: ids for the journal, a moment up to which nothing is missing, and a
//! position to go on from.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use edgeward_filter::{Digest, IdHash};

use super::{NotJournaled, Writer, copy};
use crate::config::Coverage;
use crate::feed::Changes;
use crate::position::Position;

impl Writer {
    pub(super) fn position_of(&self, feed: Digest) -> Option<&Position> {
        let kept = self.positions.newest();
        kept.filter(|kept| kept.is_of(feed, &self.lineages, self.journal.head()))
    }

    /// True if it goes on where it was when nothing was missing, so that no scan is needed for that.
    pub(super) fn feed_begins(&mut self, feed: Digest) -> bool {
        let was_complete = self.position_of(feed).filter(|kept| kept.complete);
        let snapshot = self.journal.snapshot().filter(|_| self.snapshot.is_some());
        let continues = was_complete.and(snapshot).map(|kept| kept.epoch);
        self.feed = Some(feed);
        self.complete.feed_begins(self.now(), continues);
        if self.config.coverage == Coverage::Feed {
            self.show();
        }
        continues.is_some()
    }

    /// Takes what a feed brought. If it cannot, the feed brings it again, and what was known to be
    /// complete stays as it is.
    pub(super) fn change(&mut self, changes: Changes) -> Result<(), NotJournaled> {
        let Changes {
            added,
            removed,
            complete,
            position,
        } = changes;
        self.remove(removed);
        let added = self.unknown(added);
        let count = added.len() as u64;
        self.add(added)?;
        self.counters.ids_fed.add(count);
        if let Some(complete) = complete {
            self.counters.polls.one();
            self.cover(complete);
        }
        if let (Some(position), Some(feed)) = (position, self.feed) {
            let position = Position::new(
                feed,
                self.lineage,
                position,
                self.journal.head(),
                self.complete.feed_is_whole(),
            );
            let noted = self.positions.note(position, self.now());
            self.positions_written(noted);
        }
        Ok(())
    }

    /// All that was committed before `complete` is published.
    fn cover(&mut self, complete: Duration) {
        self.complete.fed(complete);
        // The same manifest with another date: no client need hear of it.
        let covers = self.complete.covers();
        self.shown.send_if_modified(|shown| {
            let mut newer = copy(shown);
            newer.covers = covers;
            *shown = Arc::new(newer);
            false
        });
    }

    /// Those that were not added since the newest snapshot: a feed that begins again brings some again,
    /// and each would take room in the deltas. What was removed meanwhile is new, and what was added before
    /// the snapshot may be: it may have been removed when the scan passed by.
    fn unknown(&self, added: Vec<IdHash>) -> Vec<IdHash> {
        if added.is_empty() {
            return added;
        }
        let mut added: HashSet<IdHash> = added.into_iter().collect();
        for id in self.journal.ids_after_snapshot() {
            if !self.cancelled.contains(&id) {
                added.remove(&id);
            }
        }
        added.into_iter().collect()
    }

    pub(super) fn positions_written(&self, written: std::io::Result<()>) {
        if let Err(error) = written {
            // An old one costs ids that come again.
            self.counters.journal_errors.one();
            tracing::warn!(%error, "the position of changes cannot be written");
        }
    }
}
