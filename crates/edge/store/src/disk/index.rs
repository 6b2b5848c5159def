//! Maps a key's hash to the location of its record, in less than eight bytes of RAM per object.
//!
//! A bucket is a cache line with nine slots. A slot takes seven bytes: a location, a tag and a hit counter of
//! two bits. A key may be in either of two buckets (cuckoo hashing), so more than nine of ten slots can be in
//! use. A lookup computes the addresses of both buckets at once and reads two cache lines. The modules:
//!
//! - `geometry`: maps a hash to two buckets and a tag, and defines how the table, a stack of layers of buckets, grows;
//! - `bucket`: the cache line, read without a lock;
//! - `table`: the buckets, allocated when they are first used;
//! - `insertion`: stores entries, and moves or displaces other entries if necessary; one thread at a time writes;
//! - `checkpoint`: the serialised index that survives a restart.
//!
//! **The index is a hint.** It has a tag instead of the key, so it may return a record that belongs to another
//! key ([`Index::false_match_rate`] is the probability). The reader of the record compares the full key, and
//! counts reads of wrong records ([`Index::note_false_match`]). A lookup returns at most one record: entries
//! with the same tag and the same two buckets are the same entry for the index, and the later replaces the
//! earlier. A lookup therefore costs at most one read of the device.
//!
//! **The index grows with the objects**, one cache line at a time, up to its configured size. The operator
//! therefore need not estimate the mean object size, and no insertion waits long for growth. When the index has
//! its largest size, an insertion displaces one of the entries in its two buckets: the entry whose record the
//! circular log will overwrite next. Displaced entries are counted. Their records stay on the device but are no
//! longer found.
//!
//! ```
//! use edgeward_store::disk::{Index, IndexConfig, InsertOutcome, Location};
//! use edgeward_types::{ByteSize, KeyHash};
//!
//! let index = Index::new(IndexConfig::for_device(ByteSize::gib(1)));
//! let (key, at) = (KeyHash(7), Location::from_unit(8));
//! assert_eq!(index.insert(key, at), InsertOutcome::New);
//! assert_eq!(index.find(key), Some(at));
//! index.touch(key, at);
//! assert_eq!(index.hits(key, at), Some(1));
//! ```

mod bucket;
mod checkpoint;
mod geometry;
mod insertion;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edgeward_types::{ByteSize, KeyHash};

use super::Location;
use crate::sync::Mutex;
use bucket::{HITS_SHIFT, READ_ATTEMPTS, SLOTS, is_settled};
use geometry::{Geometry, Identity, Shape};
use insertion::Writer;
use table::Table;

pub use checkpoint::{CheckpointPart, LoadError, SaveSummary};
pub use insertion::InsertOutcome;

/// The largest number of objects of an index, and the size of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// The size of the device with the records. A smaller device needs fewer bits for locations and leaves more
    /// for tags.
    pub device: ByteSize,

    /// The most objects in the index. Memory is allocated as objects arrive, not in advance.
    pub objects_max: u64,
}

impl IndexConfig {
    /// Returns a configuration for objects of 16 KiB on average. A full index then takes 0.5 GiB of RAM per TiB of the
    /// device. For a smaller mean size, a disk is not useful.
    pub const fn for_device(device: ByteSize) -> Self {
        Self {
            device,
            objects_max: device.bytes() / MEAN_OBJECT_MIN.bytes() + 1,
        }
    }

    fn geometry(&self) -> Geometry {
        let units = self.device.bytes().div_ceil(Location::UNIT_BYTES).max(2);
        assert!(
            units <= Location::UNITS_MAX,
            "the store uses only the part of a device that locations reach"
        );
        let expected = self.device.bytes() / MEAN_OBJECT_MAX.bytes();
        Geometry {
            bases: (expected * 100 / (SLOTS as u64 * LOAD_PERCENT_MAX)).max(BASES_MIN),
            location_bits: units.next_power_of_two().ilog2(),
        }
    }

    /// Returns the number of buckets for `objects_max` objects at the load at which the table grows.
    fn buckets_max(&self) -> u64 {
        let slots = self.objects_max.saturating_mul(100) / LOAD_PERCENT_MAX;
        (slots / SLOTS as u64 + 1).max(self.geometry().bases)
    }
}

/// Locations by key hash. Lookups take no lock; all changes share one lock.
#[derive(Debug)]
pub struct Index {
    config: IndexConfig,
    geometry: Geometry,
    table: Table,
    writer: Mutex<Writer>,
    counters: Counters,
}

impl Index {
    /// Returns an empty index with one layer of buckets.
    pub fn new(config: IndexConfig) -> Self {
        Self::with_geometry(config, config.geometry())
    }

    fn with_geometry(config: IndexConfig, geometry: Geometry) -> Self {
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
    fn slot_of(&self, identity: Identity) -> Option<u64> {
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
    fn pair(&self, identity: Identity, shape: Shape) -> [u64; 2] {
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
    fn location(&self, slot: u64) -> Location {
        Location::from_unit(slot & self.geometry.location_mask())
    }

    #[inline]
    fn tag(&self, slot: u64) -> u64 {
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
struct Counters {
    entries: AtomicU64,
    displaced: AtomicU64,
    moved: AtomicU64,
    false_matches: AtomicU64,
}

fn hits(slot: u64) -> u8 {
    (slot >> HITS_SHIFT) as u8
}

/// The share of used slots, in percent, at which the table grows. 64 / 9 / 0.94 = 7.57 bytes per object. At
/// this load an insertion moves 0.9 other entries on average (`bench/runs/2026-11-21-disk-index`). Some of these
/// moves happen because buckets are unevenly filled while only a part of the bases has the newest layer. A higher
/// load would save a tenth of a byte per object and move more entries.
const LOAD_PERCENT_MAX: u64 = 94;

/// The mean object size for which the first layer of buckets is sized: objects of this mean size fill the
/// device and the first layer at the same time. If the index has more objects than fit in the first layer, it
/// takes at most eight bytes per object. The first layer takes 7.9 MB per TiB of device.
const MEAN_OBJECT_MAX: ByteSize = ByteSize::mib(1);

/// The mean object size for which the largest index is sized.
const MEAN_OBJECT_MIN: ByteSize = ByteSize::kib(16);

/// The smallest number of buckets in the first layer, which then takes 4 KiB. With fewer buckets, the two
/// buckets of a key would often be the same bucket.
const BASES_MIN: u64 = 64;

/// The number of buckets in a block. A block has 256 KiB and takes about 20 µs to process.
const BLOCK_BUCKETS: u64 = 4096;
