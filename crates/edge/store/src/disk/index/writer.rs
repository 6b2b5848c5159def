//! The state of the writers of an index, and the outcome of an insertion.

use crate::disk::location::Location;

/// The outcome of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum InsertOutcome {
    /// An entry was added; no entry was replaced or displaced.
    New,
    /// The new entry replaced an entry with the same identity. This is the location of the replaced entry. It is
    /// an older record of the key, or a record of another key with this identity.
    Replaced(Location),
    /// The index is full, or no slot in the two buckets could be freed. The new entry overwrote the entry with this
    /// location.
    Displaced(Location),
}

/// The state that only the holder of the writers' lock uses.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The queue of the breadth-first search. It is kept between insertions so that its memory is reused.
    pub(super) steps: Vec<SearchStep>,
    /// The progress of the current checkpoint, if one is being written.
    pub(super) saving: Option<SaveProgress>,
}

/// A checkpoint in progress. Buckets below `next_bucket` are saved. Buckets from `end_bucket` on were added
/// after the save began and will not be saved.
#[derive(Debug)]
pub(super) struct SaveProgress {
    pub(super) next_bucket: u64,
    pub(super) end_bucket: u64,
    /// Entries that moved from an unsaved bucket to a bucket that is already saved or will not be saved: the base and
    /// the content of the slot. The checkpoint lists them separately.
    pub(super) moved_entries: Vec<(u64, u64)>,
    /// The largest number of entries in `moved_entries`. Further entries are not saved, so their objects may be
    /// misses after a restart.
    pub(super) moved_entries_max: usize,
}

impl SaveProgress {
    pub(super) fn is_unsaved(&self, bucket: u64) -> bool {
        (self.next_bucket..self.end_bucket).contains(&bucket)
    }

    pub(super) fn record_move(&mut self, from: u64, to: u64, bases: u64, slot: u64) {
        if self.is_unsaved(from)
            && !self.is_unsaved(to)
            && self.moved_entries.len() < self.moved_entries_max
        {
            self.moved_entries.push((to % bases, slot));
        }
    }
}

/// A step of the search: a bucket, and the slot of the previous step's bucket whose entry can move to this bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SearchStep {
    pub(super) bucket: u64,
    /// The index of the previous step in the queue, or `ROOT` of `insertion`.
    pub(super) previous: usize,
    /// The index of the slot in the previous step's bucket.
    pub(super) slot: usize,
}
