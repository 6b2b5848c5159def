//! From a key's hash to where its record begins, in less than eight bytes of RAM an object.
//!
//! Buckets of nine slots fill a cache line each; a slot holds a location, a tag and two bits of hits, seven bytes in
//! all. A key may lie in either of two buckets (cuckoo hashing), so nine slots in ten and more can be in use, and a
//! lookup reads two lines that it knows from the start. Each part is told where it lives:
//!
//! - `geometry`: from a hash to two buckets and a tag, and how the table grows;
//! - `bucket`: the cache line, read without a lock;
//! - `table`: the buckets, allocated as they come into use;
//! - `place`: where the single writer puts an entry, what moves, what gives way;
//! - `checkpoint`: the bytes that survive a restart.
//!
//! **The index is a hint.** It keeps a tag rather than the key, so it may name a record that belongs to another
//! ([`Index::false_match_rate`] says how often); whoever reads the record compares the full key, and counts what was
//! read for nothing ([`Index::note_false_match`]). It never names two: entries with the same tag and the same two
//! buckets are one to it, the later replacing the earlier, and so a lookup costs at most one read of the device.
//!
//! **It grows with the objects**, a cache line at a time, up to the size it was given; no mean object size has to be
//! guessed in advance, and no growing step takes longer than an insertion. At its limit an insertion displaces one of
//! the entries in its two buckets: the one whose record the log, which goes round the device, will overwrite next.
//! Displaced entries are counted; their records stay where they are and are no longer found.
//!
//! ```
//! use edgeward_store::disk::{Index, IndexConfig, Inserted, Location};
//! use edgeward_types::{ByteSize, KeyHash};
//!
//! let index = Index::new(IndexConfig::for_device(ByteSize::gib(1)));
//! let (key, at) = (KeyHash(7), Location::from_unit(8));
//! assert_eq!(index.insert(key, at), Inserted::New);
//! assert_eq!(index.find(key), Some(at));
//! index.touch(key, at);
//! assert_eq!(index.hits(key, at), Some(1));
//! ```

mod bucket;
mod checkpoint;
mod geometry;
mod place;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edgeward_types::{ByteSize, KeyHash};

use super::Location;
use crate::sync::Mutex;
use bucket::{HITS_SHIFT, READ_ATTEMPTS, SLOTS, settled};
use geometry::{Geometry, Identity, Shape};
use place::Writer;
use table::Table;

pub use checkpoint::{LoadError, Part, Saved};
pub use place::Inserted;

/// How large an index may become, and for which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// The device whose records it names. Fewer bits for locations leave more for tags.
    pub device: ByteSize,

    /// Objects it has room for. Memory is taken as they come, not before.
    pub objects_max: u64,
}

impl IndexConfig {
    /// Room for objects of 16 KiB on average, the smallest that pays on a disk: 0.5 GiB of RAM a TiB when full.
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
            "devices are cut to what locations reach"
        );
        let expected = self.device.bytes() / MEAN_OBJECT_MAX.bytes();
        Geometry {
            bases: (expected * 100 / (SLOTS as u64 * LOAD_PERCENT_MAX)).max(BASES_MIN),
            location_bits: units.next_power_of_two().ilog2(),
        }
    }

    /// Buckets for `objects_max` objects at the load at which the table grows.
    fn buckets_max(&self) -> u64 {
        let slots = self.objects_max.saturating_mul(100) / LOAD_PERCENT_MAX;
        (slots / SLOTS as u64 + 1).max(self.geometry().bases)
    }
}

/// Locations by key hash. Lookups take no lock; changes take one among themselves.
#[derive(Debug)]
pub struct Index {
    config: IndexConfig,
    geometry: Geometry,
    table: Table,
    writer: Mutex<Writer>,
    counters: Counters,
}

impl Index {
    /// An empty index with one layer of buckets.
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

    /// Where the record under `key` may begin. The caller compares the record's full key.
    #[inline]
    pub fn find(&self, key: KeyHash) -> Option<Location> {
        self.slot_of(self.geometry.identify(key))
            .map(|slot| self.location(slot))
    }

    /// Counts a hit on the record at `at`, up to [`Index::HITS_MAX`]. Nothing if the entry is not there any more.
    pub fn touch(&self, key: KeyHash, at: Location) {
        let identity = self.geometry.identify(key);
        let slot = self.slot(identity, at, 0);
        for number in self.pair(identity, self.table.shape()) {
            if self.table.bucket(number).mark(slot) {
                return;
            }
        }
    }

    /// Hits on the record at `at` since it was written there; none if it is not what the index names.
    ///
    /// How a reclaimer asks, record by record of a segment, what is alive and how warm.
    pub fn hits(&self, key: KeyHash, at: Location) -> Option<u8> {
        let slot = self.slot_of(self.geometry.identify(key))?;
        (self.location(slot) == at).then_some(hits(slot))
    }

    /// Names `at` for `key`, in place of whatever had its identity. The mark starts at no hits.
    pub fn insert(&self, key: KeyHash, at: Location) -> Inserted {
        let identity = self.geometry.identify(key);
        let slot = self.slot(identity, at, 0);
        assert!(
            slot & self.geometry.location_mask() != 0,
            "the device's first unit is not a record's"
        );
        let mut writer = self.writer.lock();
        self.place(&mut writer, identity, slot)
    }

    /// Names `to` where `from` was named for `key`, its hits forgotten. Whether that was so.
    pub fn relocate(&self, key: KeyHash, from: Location, to: Location) -> bool {
        let identity = self.geometry.identify(key);
        let slot = self.slot(identity, to, 0);
        let mut writer = self.writer.lock();
        self.rewrite(&mut writer, identity, Some(from), slot)
            .is_some()
    }

    /// Forgets `key` if `at` is what is named for it. Whether it was.
    pub fn remove(&self, key: KeyHash, at: Location) -> bool {
        let identity = self.geometry.identify(key);
        self.erase(&mut self.writer.lock(), identity, Some(at))
            .is_some()
    }

    /// Forgets whatever is named for `key`.
    pub fn purge(&self, key: KeyHash) -> Option<Location> {
        let identity = self.geometry.identify(key);
        self.erase(&mut self.writer.lock(), identity, None)
    }

    /// Forgets every entry whose location `keep` refuses. Reads the whole index: for restarts and lost segments.
    pub fn retain(&self, mut keep: impl FnMut(Location) -> bool) {
        for start in self.blocks() {
            self.retain_block(&mut self.writer.lock(), start, &mut keep);
        }
    }

    /// Calls `visit` with each location and its hits. Reads the whole index, without a lock: an entry that is moved
    /// meanwhile may be missed or seen twice.
    pub fn for_each(&self, mut visit: impl FnMut(Location, u8)) {
        for number in 0..self.table.buckets() {
            for (_, slot) in self.table.bucket(number).settled_line().slots() {
                visit(self.location(slot), hits(slot));
            }
        }
    }

    /// Forgets everything. The memory is kept for what comes.
    pub fn clear(&self) {
        self.retain(|_| false);
    }

    /// Entries.
    pub fn len(&self) -> u64 {
        self.counters.entries.load(Relaxed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of RAM the buckets and their directory take now.
    pub fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Bytes of RAM they will take when the index has grown to its limit.
    pub fn bytes_max(&self) -> u64 {
        self.table.bytes_max()
    }

    /// How probable it is that a key that is not here finds a tag that is: a read of the device for nothing.
    ///
    /// A bucket pair's share of the entries, over the number of tags. All layers together, since the layer follows
    /// from base and tag: an entry is found by mistake if its tag is the same and one of its two bases is.
    pub fn false_match_rate(&self) -> f64 {
        let tags = (self.geometry.tag_mask() + 1) as f64;
        2.0 * self.len() as f64 / (self.geometry.bases as f64 * tags)
    }

    /// Counts a record that was read and belonged to another key.
    pub fn note_false_match(&self) {
        self.counters.false_matches.fetch_add(1, Relaxed);
    }

    /// What has happened here so far.
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

    /// Where a hit's mark stops.
    pub const HITS_MAX: u8 = bucket::HITS_MAX;

    /// The slot under `identity`, read without a lock.
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
            // Asking both for their version first fetches both lines at once.
            let before = [first.version(), second.version()];
            found = first
                .line()
                .find(mask, wanted)
                .or_else(|| second.line().find(mask, wanted));
            let after = [first.version_after(), second.version_after()];
            // Between the two buckets an entry may have moved, or into a layer that is new.
            if before == after && before.into_iter().all(settled) && self.table.shape() == shape {
                break;
            }
            std::hint::spin_loop();
        }
        // After too many attempts, what was seen last: wrong at worst, and a wrong hint is a miss.
        found.map(|(_, slot)| slot)
    }

    #[inline]
    fn pair(&self, identity: Identity, shape: Shape) -> [u64; 2] {
        let Identity { base, tag } = identity;
        let partner = self.geometry.partner(base, tag);
        [base, partner].map(|base| self.geometry.bucket(shape, base, tag))
    }

    fn slot(&self, identity: Identity, at: Location, hits: u8) -> u64 {
        assert!(
            at.unit() <= self.geometry.location_mask(),
            "a record lies on its device"
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

    /// First bucket of each piece of the table that is worked on under one hold of the writers' lock.
    fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        // Asked anew each time: the table may grow under way.
        std::iter::successors(Some(0), |start| Some(start + BLOCK_BUCKETS))
            .take_while(|&start| start < self.table.buckets())
    }
}

/// What has happened to an index, and how large it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexCounts {
    /// Entries now.
    pub entries: u64,
    /// Cache lines in use now, nine slots each.
    pub buckets: u64,
    /// Entries that had to go because the index was at its limit.
    pub displaced: u64,
    /// Entries moved to their other bucket to make room.
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

/// The table grows when so many of a hundred slots are taken. 64 / 9 / 0.94 = 7.57 bytes an object. An insertion then
/// moves 0.9 other entries on average (`bench/runs/2026-11-21-disk-index`), some of them since layers fill unevenly
/// between two powers of two; a higher load would save a tenth of a byte and move more.
const LOAD_PERCENT_MAX: u64 = 94;

/// Objects of this size fill the first layer, so that its eight bytes hold from here on: 7.9 MB for a TiB.
const MEAN_OBJECT_MAX: ByteSize = ByteSize::mib(1);

const MEAN_OBJECT_MIN: ByteSize = ByteSize::kib(16);

/// 4 KiB: even the smallest device has pairs enough for two choices to mean something.
const BASES_MIN: u64 = 64;

/// 256 KiB: some 20 µs of work.
const BLOCK_BUCKETS: u64 = 4096;
