//! Where an entry goes: the part of the index that changes it, one writer at a time.
//!
//! An entry goes to the emptier of its two buckets. If both are full, a breadth-first search looks for the shortest
//! chain of entries that can each move to their other bucket (D. Zhou, B. Fan, H. Lim, M. Kaminsky, D. G. Andersen,
//! "Scalable, high performance Ethernet forwarding with CuckooSwitch", CoNEXT 2013), and moves them, the last one
//! first, so that each is always in one of its places. Should the search find nothing, an entry is displaced.
//!
//! One pair may come to hold an identity twice, if a checkpoint was taken while it moved. So every change looks at all
//! slots of the pair, and what it removes or replaces is gone from both.

use std::sync::atomic::Ordering::Relaxed;

use super::bucket::{EMPTY, Line, SLOTS};
use super::geometry::{Geometry, Identity, parent};
use super::{BLOCK_BUCKETS, Index, LOAD_PERCENT_MAX};
use crate::disk::Location;

/// What an insertion did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Inserted {
    /// The key has a place now and had none.
    New,
    /// It took the place of what was known under the same identity: an older record of the key, or a stranger's.
    Replaced(Location),
    /// The index is at its limit; the entry that named this location is gone.
    Displaced(Location),
}

/// What only the holder of the writers' lock touches.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The search's queue, kept for its memory.
    steps: Vec<Step>,
    /// How far the checkpoint under way has come, if there is one.
    pub(super) saving: Option<Saving>,
}

/// A checkpoint under way: buckets below `next` are in it, those from `end` on will not be.
#[derive(Debug)]
pub(super) struct Saving {
    pub(super) next: u64,
    pub(super) end: u64,
    /// Entries that moved from what is still to be saved to where it will not be: base and slot.
    pub(super) loose: Vec<(u64, u64)>,
    /// More than these are not kept and will be misses.
    pub(super) loose_max: usize,
}

impl Saving {
    fn is_ahead(&self, bucket: u64) -> bool {
        (self.next..self.end).contains(&bucket)
    }

    fn moved(&mut self, from: u64, to: u64, bases: u64, slot: u64) {
        if self.is_ahead(from) && !self.is_ahead(to) && self.loose.len() < self.loose_max {
            self.loose.push((to % bases, slot));
        }
    }
}

/// A bucket the search came to, from slot `slot` of the step `before`.
#[derive(Clone, Copy, Debug)]
struct Step {
    bucket: u64,
    before: usize,
    slot: usize,
}

impl Index {
    pub(super) fn place(&self, writer: &mut Writer, identity: Identity, slot: u64) -> Inserted {
        if let Some(before) = self.rewrite(writer, identity, None, slot) {
            return Inserted::Replaced(before);
        }
        let displaced = self.add(writer, identity, slot);
        displaced.map_or(Inserted::New, Inserted::Displaced)
    }

    /// Writes `slot` over what `identity` has, if that is at `from` or `from` is not given.
    pub(super) fn rewrite(
        &self,
        _: &mut Writer,
        identity: Identity,
        from: Option<Location>,
        slot: u64,
    ) -> Option<Location> {
        let (found, extra) = self.all_of(identity);
        let (number, at, before) = found?;
        let before = self.location(before);
        if from.is_some_and(|from| from != before) {
            return None;
        }
        self.table.bucket(number).set(at, slot);
        self.wipe(extra);
        Some(before)
    }

    /// Takes out what `identity` has, if that is at `from` or `from` is not given.
    pub(super) fn erase(
        &self,
        _: &mut Writer,
        identity: Identity,
        from: Option<Location>,
    ) -> Option<Location> {
        let (found, extra) = self.all_of(identity);
        let (_, _, slot) = found?;
        let before = self.location(slot);
        if from.is_some_and(|from| from != before) {
            return None;
        }
        self.wipe(extra);
        self.wipe(found);
        Some(before)
    }

    /// Gives `identity`, which has no slot, one. What had to go for it, if something had.
    pub(super) fn add(
        &self,
        writer: &mut Writer,
        identity: Identity,
        slot: u64,
    ) -> Option<Location> {
        self.grow_if_due(writer);
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
            // Nearly every bucket is: a search would be long, and what it makes room for will soon be displaced itself.
            return Some(self.displace(pair, slot));
        } else if let Some((number, at)) = self.make_room(writer, pair) {
            self.table.bucket(number).set(at, slot);
        } else {
            return Some(self.displace(pair, slot));
        }
        self.counters.entries.fetch_add(1, Relaxed);
        None
    }

    /// Empties the slots of one block of buckets whose location is refused.
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
                    self.wipe(Some((number, at, slot)));
                }
            }
        }
    }

    /// The slot of `identity`, and a second one if a checkpoint left two.
    fn all_of(&self, identity: Identity) -> (Option<Place>, Option<Place>) {
        let pair = self.pair(identity, self.table.shape());
        let buckets = if pair[0] == pair[1] { 1 } else { 2 };
        let mut places = pair[..buckets].iter().flat_map(|&number| {
            let line = self.table.bucket(number).line();
            (0..SLOTS).filter_map(move |at| {
                let slot = line.slot(at);
                (slot != EMPTY && self.tag(slot) == identity.tag).then_some((number, at, slot))
            })
        });
        (places.next(), places.next())
    }

    fn wipe(&self, place: Option<Place>) {
        if let Some((number, at, _)) = place {
            self.table.bucket(number).set(at, EMPTY);
            self.counters.entries.fetch_sub(1, Relaxed);
        }
    }

    /// Finds the shortest chain of moves that frees a slot in one of `pair`, and makes it.
    fn make_room(&self, writer: &mut Writer, pair: [u64; 2]) -> Option<(u64, usize)> {
        let shape = self.table.shape();
        let mut steps = std::mem::take(&mut writer.steps);
        steps.clear();
        for bucket in pair {
            steps.push(Step {
                bucket,
                before: ROOT,
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
                let step = Step {
                    bucket: other,
                    before: next,
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

    /// Moves each entry of the chain that ends with `last` one step on, the last one into `free`. What is free then.
    fn shift(&self, writer: &mut Writer, steps: &[Step], last: Step, free: usize) -> (u64, usize) {
        let (mut to, mut free) = (last, free);
        while to.before != ROOT {
            let from = steps[to.before];
            let slot = self.table.bucket(from.bucket).line().slot(to.slot);
            self.carry((from.bucket, to.slot), (to.bucket, free), slot);
            if let Some(saving) = &mut writer.saving {
                saving.moved(from.bucket, to.bucket, self.geometry.bases, slot);
            }
            self.counters.moved.fetch_add(1, Relaxed);
            (to, free) = (from, to.slot);
        }
        (to.bucket, free)
    }

    /// Moves one slot from one bucket to another; lookups see it in one of them.
    fn carry(&self, from: (u64, usize), to: (u64, usize), slot: u64) {
        let [source, target] = [from.0, to.0].map(|number| self.table.bucket(number));
        source.begin();
        target.begin();
        target.put(to.1, slot);
        source.put(from.1, EMPTY);
        target.end();
        source.end();
    }

    /// Overwrites the entry of `pair` whose record the log will come to next.
    fn displace(&self, pair: [u64; 2], slot: u64) -> Location {
        let mask = self.geometry.location_mask();
        let (number, at, victim) = pair
            .into_iter()
            .flat_map(|number| {
                let line: Line = self.table.bucket(number).line();
                (0..SLOTS).map(move |at| (number, at, line.slot(at)))
            })
            // The log writes upwards and begins again at the device's end: what lies shortly ahead of the newest
            // record is the oldest there is.
            .min_by_key(|(_, _, other)| other.wrapping_sub(slot) & mask)
            .expect("a bucket has slots");
        self.table.bucket(number).set(at, slot);
        self.counters.displaced.fetch_add(1, Relaxed);
        self.location(victim)
    }

    /// Adds buckets until the load is what it should be, or as many as an insertion may wait for.
    fn grow_if_due(&self, writer: &mut Writer) {
        for _ in 0..SPLITS_MAX {
            if !self.is_loaded() || self.table.is_full_grown() {
                return;
            }
            self.split(writer);
        }
    }

    fn is_loaded(&self) -> bool {
        let slots = self.table.buckets() * SLOTS as u64;
        self.counters.entries.load(Relaxed) * 100 >= slots * LOAD_PERCENT_MAX
    }

    fn is_full(&self) -> bool {
        self.table.is_full_grown() && self.is_loaded()
    }

    /// Adds one bucket and gives it those entries of its parent that belong there now.
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
        // Known in the new place before it is gone from the old one: even to a lookup that will not wait for a writer
        // that was put to sleep here. One that knew the old shape sees it change, and begins again.
        self.table.publish_next();
        for (at, slot) in moved.into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            source.put(at, EMPTY);
            if let Some(saving) = &mut writer.saving {
                saving.moved(old, new, bases, slot);
            }
        }
        source.end();
    }
}

type Place = (u64, usize, u64);

const ROOT: usize = usize::MAX;

/// Buckets a search may queue before it gives up and an entry is displaced. At 94 % load that never happened in 100
/// million insertions.
const SEARCH_BUCKETS_MAX: usize = 512;

/// Buckets one insertion may add. One adds nine slots, so that even after a checkpoint the load falls quickly.
const SPLITS_MAX: usize = 2;
