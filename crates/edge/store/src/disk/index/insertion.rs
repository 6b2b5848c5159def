//! Stores and removes entries of the index. Only one writer at a time does this.
//!
//! An entry goes to the emptier of its two buckets. If both are full, a breadth-first search looks for the
//! shortest chain of entries that can each move to their other bucket (D. Zhou, B. Fan, H. Lim, M. Kaminsky, D.
//! G. Andersen, "Scalable, high performance Ethernet forwarding with CuckooSwitch", CoNEXT 2013). The last
//! entry of the chain is moved first, so that each entry is in one of its buckets at every moment. If the search
//! fails or the index is full, the new entry overwrites another entry: it displaces this entry.
//!
//! An [`Identity`] is a base and a tag, from which `geometry` computes the two buckets of a key.
//! After a restart, the two buckets may contain an identity twice, because the checkpoint was written while the
//! entry moved. Every change therefore reads all slots of both buckets, and a removal or replacement applies to both
//! copies.

use std::sync::atomic::Ordering::Relaxed;

use super::bucket::{CacheLine, EMPTY, SLOTS};
use super::config::LOAD_PERCENT_MAX;
use super::geometry::{Geometry, Identity, parent};
use super::locations::{BLOCK_BUCKETS, Index};
use super::writer::{InsertOutcome, SearchStep, Writer};
use crate::disk::location::Location;

impl Index {
    /// Stores an entry. `slot` is the content of its slot, see `bucket`.
    pub(super) fn store(
        &self,
        writer: &mut Writer,
        identity: Identity,
        slot: u64,
    ) -> InsertOutcome {
        if let Some(before) = self.rewrite(writer, identity, None, slot) {
            return InsertOutcome::Replaced(before);
        }
        let displaced = self.add(writer, identity, slot);
        displaced.map_or(InsertOutcome::New, InsertOutcome::Displaced)
    }

    /// Replaces the entry of `identity` by `slot` and returns the old location. If `from` is given, replaces
    /// the entry only if it has this location.
    pub(super) fn rewrite(
        &self,
        _: &mut Writer,
        identity: Identity,
        from: Option<Location>,
        slot: u64,
    ) -> Option<Location> {
        let (found, extra) = self.slots_of(identity);
        let (number, at, before) = found?;
        let before = self.location(before);
        if from.is_some_and(|from| from != before) {
            return None;
        }
        self.table.bucket(number).set(at, slot);
        self.clear_slot(extra);
        Some(before)
    }

    /// Removes the entry of `identity` and returns its location. If `from` is given, removes the entry only if
    /// it has this location.
    pub(super) fn erase(
        &self,
        _: &mut Writer,
        identity: Identity,
        from: Option<Location>,
    ) -> Option<Location> {
        let (found, extra) = self.slots_of(identity);
        let (_, _, slot) = found?;
        let before = self.location(slot);
        if from.is_some_and(|from| from != before) {
            return None;
        }
        self.clear_slot(extra);
        self.clear_slot(found);
        Some(before)
    }

    /// Adds an entry for an identity that has no entry. If another entry was displaced, returns its location.
    pub(super) fn add(
        &self,
        writer: &mut Writer,
        identity: Identity,
        slot: u64,
    ) -> Option<Location> {
        self.grow_if_loaded(writer);
        let pair = self.pair(identity, self.table.shape());
        let [first, second] = pair.map(|number| self.table.bucket(number).line());
        let (emptier, line) = if second.occupied() < first.occupied() {
            (pair[1], second)
        } else {
            (pair[0], first)
        };
        if let Some(at) = line.free() {
            self.table.bucket(emptier).set(at, slot);
        } else if self.is_full() {
            // Nearly every bucket is full, so a search would be long and probably fail.
            return Some(self.displace(pair, slot));
        } else if let Some((number, at)) = self.make_room(writer, pair) {
            self.table.bucket(number).set(at, slot);
        } else {
            return Some(self.displace(pair, slot));
        }
        self.counters.entries.fetch_add(1, Relaxed);
        None
    }

    /// Empties the slots of one block of buckets if `keep` returns false for their location.
    pub(super) fn retain_block(
        &self,
        _: &mut Writer,
        start: u64,
        keep: &mut impl FnMut(Location) -> bool,
    ) {
        let end = self.table.buckets().min(start + BLOCK_BUCKETS);
        for number in start..end {
            for (at, slot) in self.table.bucket(number).line().slots() {
                if !keep(self.location(slot)) {
                    self.clear_slot(Some((number, at, slot)));
                }
            }
        }
    }

    /// Returns the address of the entry of `identity`, and of its second copy if the index was loaded from a
    /// checkpoint with two copies.
    fn slots_of(&self, identity: Identity) -> (Option<SlotAddress>, Option<SlotAddress>) {
        let pair = self.pair(identity, self.table.shape());
        let buckets = if pair[0] == pair[1] { 1 } else { 2 };
        let mut addresses = pair[..buckets].iter().flat_map(|&number| {
            let line = self.table.bucket(number).line();
            (0..SLOTS).filter_map(move |at| {
                let slot = line.slot(at);
                (slot != EMPTY && self.tag(slot) == identity.tag).then_some((number, at, slot))
            })
        });
        (addresses.next(), addresses.next())
    }

    fn clear_slot(&self, address: Option<SlotAddress>) {
        if let Some((number, at, _)) = address {
            self.table.bucket(number).set(at, EMPTY);
            self.counters.entries.fetch_sub(1, Relaxed);
        }
    }

    /// Finds the shortest chain of moves that frees a slot in one of `pair`, and makes these moves. Returns the
    /// free slot.
    fn make_room(&self, writer: &mut Writer, pair: [u64; 2]) -> Option<(u64, usize)> {
        let shape = self.table.shape();
        let mut steps = std::mem::take(&mut writer.steps);
        steps.clear();
        for bucket in pair {
            steps.push(SearchStep {
                bucket,
                previous: ROOT,
                slot: 0,
            });
        }
        let mut freed = None;
        let mut next = 0;
        'search: while next < steps.len() {
            let here = steps[next].bucket;
            let base = here % self.geometry.bases;
            for (at, slot) in self.table.bucket(here).line().slots() {
                let tag = self.tag(slot);
                let other = self
                    .geometry
                    .bucket(shape, self.geometry.partner(base, tag), tag);
                if other == here {
                    continue;
                }
                let step = SearchStep {
                    bucket: other,
                    previous: next,
                    slot: at,
                };
                if let Some(free) = self.table.bucket(other).line().free() {
                    freed = Some(self.shift(writer, &steps, step, free));
                    break 'search;
                }
                if steps.len() < SEARCH_BUCKETS_MAX {
                    steps.push(step);
                }
            }
            next += 1;
        }
        writer.steps = steps;
        freed
    }

    /// Moves the entries of the chain that ends with `last`: each entry moves to the bucket of the next step, the
    /// last entry into the slot `free`. Returns the slot that becomes free.
    fn shift(
        &self,
        writer: &mut Writer,
        steps: &[SearchStep],
        last: SearchStep,
        free: usize,
    ) -> (u64, usize) {
        let (mut to, mut free) = (last, free);
        while to.previous != ROOT {
            let from = steps[to.previous];
            let slot = self.table.bucket(from.bucket).line().slot(to.slot);
            self.move_slot((from.bucket, to.slot), (to.bucket, free), slot);
            if let Some(saving) = &mut writer.saving {
                saving.record_move(from.bucket, to.bucket, self.geometry.bases, slot);
            }
            self.counters.moved.fetch_add(1, Relaxed);
            (to, free) = (from, to.slot);
        }
        (to.bucket, free)
    }

    /// Moves an entry from one bucket to another. Lookups find the entry in one of the buckets at every moment.
    fn move_slot(&self, from: (u64, usize), to: (u64, usize), slot: u64) {
        let [source, target] = [from.0, to.0].map(|number| self.table.bucket(number));
        source.begin();
        target.begin();
        target.write_slot(to.1, slot);
        source.write_slot(from.1, EMPTY);
        target.end();
        source.end();
    }

    /// Overwrites one entry in a pair of buckets: the entry whose record the log will overwrite first. Returns its
    /// location.
    fn displace(&self, pair: [u64; 2], slot: u64) -> Location {
        let mask = self.geometry.location_mask();
        let (number, at, victim) = pair
            .into_iter()
            .flat_map(|number| {
                let line: CacheLine = self.table.bucket(number).line();
                (0..SLOTS).map(move |at| (number, at, line.slot(at)))
            })
            // The log is written from the start of the device to its end, and then from the start again. The
            // oldest records are therefore at the locations right after the newest record.
            .min_by_key(|(_, _, other)| other.wrapping_sub(slot) & mask)
            .expect("a bucket has slots");
        self.table.bucket(number).set(at, slot);
        self.counters.displaced.fetch_add(1, Relaxed);
        self.location(victim)
    }

    /// Adds buckets until the load is below its limit, but at most [`SPLITS_MAX`], so that an insertion does not take
    /// long.
    fn grow_if_loaded(&self, writer: &mut Writer) {
        for _ in 0..SPLITS_MAX {
            if !self.is_load_above_limit() || self.table.is_at_limit() {
                return;
            }
            self.split(writer);
        }
    }

    fn is_load_above_limit(&self) -> bool {
        let slots = self.table.buckets() * SLOTS as u64;
        self.counters.entries.load(Relaxed) * 100 >= slots * LOAD_PERCENT_MAX
    }

    fn is_full(&self) -> bool {
        self.table.is_at_limit() && self.is_load_above_limit()
    }

    /// Adds one bucket and moves to it the entries of its parent that now belong there.
    fn split(&self, writer: &mut Writer) {
        let bases = self.geometry.bases;
        let shape = self.table.shape();
        let (base, layers) = (shape.split, shape.layers + 1);
        let (old, new) = (parent(layers) * bases + base, layers * bases - bases + base);
        let (source, target) = (self.table.bucket(old), self.table.prepare_next());
        debug_assert_eq!(new, self.table.buckets());
        source.begin();
        let mut moved = [None; SLOTS];
        for (at, slot) in source.line().slots() {
            if Geometry::moves_up(base, self.tag(slot), layers) {
                target.set(at, slot);
                moved[at] = Some(slot);
            }
        }
        // The new bucket is visible before the moved entries are removed from the old bucket. A lookup
        // therefore finds them even if this thread is suspended here. A lookup that uses the old shape notices
        // that the version of the old bucket has changed, and repeats.
        self.table.publish_next();
        for (at, slot) in moved.into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            source.write_slot(at, EMPTY);
            if let Some(saving) = &mut writer.saving {
                saving.record_move(old, new, bases, slot);
            }
        }
        source.end();
    }
}

/// The number of a bucket, the index of a slot in it, and the content of the slot.
type SlotAddress = (u64, usize, u64);

/// The `previous` of a step that has no previous step.
const ROOT: usize = usize::MAX;

/// The largest number of buckets that a search visits before an entry is displaced. At a load of 94 %, no
/// search reached this limit in 100 million insertions.
const SEARCH_BUCKETS_MAX: usize = 512;

/// The largest number of buckets that one insertion adds. A bucket has nine slots and an insertion fills one,
/// so the load falls quickly even if it was above its limit after a restart.
const SPLITS_MAX: usize = 2;
