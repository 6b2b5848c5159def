//! The index: locations by key hash.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edgeward_types::KeyHash;

use super::bucket::{self, HITS_SHIFT, READ_ATTEMPTS, is_settled};
use super::config::IndexConfig;
use super::geometry::{Geometry, Identity, Shape};
use super::table::Table;
use super::writer::{InsertOutcome, Writer};
use crate::disk::location::Location;
use crate::sync::Mutex;

/// Locations by key hash. Lookups take no lock; all changes share one lock.
#[derive(Debug)]
pub struct Index {
    pub(super) config: IndexConfig,
    pub(super) geometry: Geometry,
    pub(super) table: Table,
    pub(super) writer: Mutex<Writer>,
    pub(super) counters: Counters,
}

impl Index {
    /// Returns an empty index with one layer of buckets.
    pub fn new(config: IndexConfig) -> Self {
        Self::with_geometry(config, config.geometry())
    }

    pub(super) fn with_geometry(config: IndexConfig, geometry: Geometry) -> Self {
        Self {
            config,
            geometry,
            table: Table::new(geometry.bases, config.buckets_max()),
            writer: Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// Returns the probable location of the record under `key`. The caller compares the record's full key.
    #[inline]
    pub fn find(&self, key: KeyHash) -> Option<Location> {
        self.slot_of(self.geometry.identify(key))
            .map(|slot| self.location(slot))
    }

    /// Counts a hit on the record at a location, up to [`Index::HITS_MAX`]. Does nothing if the index has another
    /// location for the key, or no location.
    pub fn touch(&self, key: KeyHash, at: Location) {
        let identity = self.geometry.identify(key);
        let slot = self.slot(identity, at, 0);
        for number in self.pair(identity, self.table.shape()) {
            if self.table.bucket(number).count_hit(slot) {
                return;
            }
        }
    }

    /// Returns the hits on the record at a location since the record was written. Returns `None` if the index has
    /// another location for the key, or no location.
    ///
    /// The reclaimer calls this function for each record of a segment, to find the live records and their hits.
    pub fn hits(&self, key: KeyHash, at: Location) -> Option<u8> {
        let slot = self.slot_of(self.geometry.identify(key))?;
        (self.location(slot) == at).then_some(hits(slot))
    }

    /// Stores a location for a key. Replaces an entry with the same tag and buckets. The hit counter starts at 0.
    pub fn insert(&self, key: KeyHash, at: Location) -> InsertOutcome {
        let identity = self.geometry.identify(key);
        let slot = self.slot(identity, at, 0);
        assert!(
            slot & self.geometry.location_mask() != 0,
            "the first unit of the device has no record"
        );
        let mut writer = self.writer.lock();
        self.store(&mut writer, identity, slot)
    }

    /// Replaces the location `from` of `key` by `to`, and resets its hits. Returns false if the location was
    /// not `from`.
    pub fn relocate(&self, key: KeyHash, from: Location, to: Location) -> bool {
        let identity = self.geometry.identify(key);
        let slot = self.slot(identity, to, 0);
        let mut writer = self.writer.lock();
        self.rewrite(&mut writer, identity, Some(from), slot)
            .is_some()
    }

    /// Removes the entry of a key if it has this location. Returns true if the entry was removed.
    pub fn remove(&self, key: KeyHash, at: Location) -> bool {
        let identity = self.geometry.identify(key);
        self.erase(&mut self.writer.lock(), identity, Some(at))
            .is_some()
    }

    /// Removes the entry of `key` and returns its location.
    pub fn purge(&self, key: KeyHash) -> Option<Location> {
        let identity = self.geometry.identify(key);
        self.erase(&mut self.writer.lock(), identity, None)
    }

    /// Removes every entry for which `keep` returns false. Reads the whole index, so it is used for restarts
    /// and lost segments only.
    pub fn retain(&self, mut keep: impl FnMut(Location) -> bool) {
        for start in self.blocks() {
            self.retain_block(&mut self.writer.lock(), start, &mut keep);
        }
    }

    /// Calls `visit` with each location and its hits. Reads the whole index without a lock: an entry that is
    /// moved meanwhile may be missed or visited twice.
    pub fn for_each(&self, mut visit: impl FnMut(Location, u8)) {
        for number in 0..self.table.buckets() {
            for (_, slot) in self.table.bucket(number).settled_line().slots() {
                visit(self.location(slot), hits(slot));
            }
        }
    }

    /// Removes all entries. The memory is kept for later entries.
    pub fn clear(&self) {
        self.retain(|_| false);
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.counters.entries.load(Relaxed)
    }

    /// Returns true if the index has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of RAM that the buckets and their directory take now.
    pub fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// The bytes of RAM that the buckets and their directory take when the index has its largest size.
    pub fn bytes_max(&self) -> u64 {
        self.table.bytes_max()
    }

    /// The probability that a lookup of an absent key finds an entry with the same tag, which costs a useless
    /// read of the device.
    ///
    /// The table has several layers, and a *base* is the number of a bucket within its layer. An entry matches wrongly
    /// if it has the tag of the key and one of the key's two bases. The rate is therefore the mean number of entries
    /// at two bases, in all layers, divided by the number of tags.
    pub fn false_match_rate(&self) -> f64 {
        let tags = (self.geometry.tag_mask() + 1) as f64;
        2.0 * self.len() as f64 / (self.geometry.bases as f64 * tags)
    }

    /// Counts a record that was read and belonged to another key.
    pub fn note_false_match(&self) {
        self.counters.false_matches.fetch_add(1, Relaxed);
    }

    /// The counters of the index.
    pub fn counts(&self) -> IndexCounts {
        let Counters {
            entries,
            displaced,
            moved,
            false_matches,
        } = &self.counters;
        IndexCounts {
            entries: entries.load(Relaxed),
            buckets: self.table.buckets(),
            displaced: displaced.load(Relaxed),
            moved: moved.load(Relaxed),
            false_matches: false_matches.load(Relaxed),
        }
    }

    /// The largest value of an entry's hit counter.
    pub const HITS_MAX: u8 = bucket::HITS_MAX;

    /// Returns the content of the slot with the entry of `identity`, read without a lock.
    #[inline]
    pub(super) fn slot_of(&self, identity: Identity) -> Option<u64> {
        let wanted = identity.tag << self.geometry.location_bits;
        let mask = self.geometry.tag_mask() << self.geometry.location_bits;
        let mut found = None;
        for _ in 0..READ_ATTEMPTS {
            let shape = self.table.shape();
            let [first, second] = self
                .pair(identity, shape)
                .map(|number| self.table.bucket(number));
            // Both versions are read before the slots, so that the processor fetches both cache lines in parallel.
            let before = [first.version(), second.version()];
            found = first
                .line()
                .find(mask, wanted)
                .or_else(|| second.line().find(mask, wanted));
            let after = [first.version_after(), second.version_after()];
            // An entry may have moved between the two buckets, or into a new layer.
            if before == after && before.into_iter().all(is_settled) && self.table.shape() == shape
            {
                break;
            }
            std::hint::spin_loop();
        }
        // After too many attempts, the last result is returned. A wrong location only causes a miss.
        found.map(|(_, slot)| slot)
    }

    /// Returns the numbers of the two buckets of an identity, which is the first base and the tag of a key.
    #[inline]
    pub(super) fn pair(&self, identity: Identity, shape: Shape) -> [u64; 2] {
        let Identity { base, tag } = identity;
        let partner = self.geometry.partner(base, tag);
        [base, partner].map(|base| self.geometry.bucket(shape, base, tag))
    }

    /// Returns the content of a slot: hits, tag and location.
    fn slot(&self, identity: Identity, at: Location, hits: u8) -> u64 {
        assert!(
            at.unit() <= self.geometry.location_mask(),
            "the location is within the device"
        );
        u64::from(hits) << HITS_SHIFT | identity.tag << self.geometry.location_bits | at.unit()
    }

    #[inline]
    pub(super) fn location(&self, slot: u64) -> Location {
        Location::from_unit(slot & self.geometry.location_mask())
    }

    #[inline]
    pub(super) fn tag(&self, slot: u64) -> u64 {
        (slot >> self.geometry.location_bits) & self.geometry.tag_mask()
    }

    /// Returns the first bucket of each block of buckets that is processed under one acquisition of the
    /// writers' lock.
    fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        // The number of buckets is read again for each block, because the table may grow meanwhile.
        std::iter::successors(Some(0), |start| Some(start + BLOCK_BUCKETS))
            .take_while(|&start| start < self.table.buckets())
    }
}

/// The counters and the size of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCounts {
    /// The current number of entries.
    pub entries: u64,
    /// The number of buckets in use: cache lines with nine slots each.
    pub buckets: u64,
    /// Entries displaced because the index was at its limit.
    pub displaced: u64,
    /// Entries moved to their other bucket to make space.
    pub moved: u64,
    /// Records read that belonged to another key.
    pub false_matches: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) entries: AtomicU64,
    pub(super) displaced: AtomicU64,
    pub(super) moved: AtomicU64,
    pub(super) false_matches: AtomicU64,
}

fn hits(slot: u64) -> u8 {
    (slot >> HITS_SHIFT) as u8
}

/// The number of buckets in a block. A block has 256 KiB and takes about 20 µs to process.
pub(super) const BLOCK_BUCKETS: u64 = 4096;
