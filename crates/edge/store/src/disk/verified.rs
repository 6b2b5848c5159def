//! Records which blocks of bodies matched their checksum recently.
//!
//! Comparing a block with its checksum reads the whole block. This is extra work for a body that the kernel
//! sends from the page cache to a socket. A successful comparison is therefore recorded for a limited time, and
//! during this time the block is sent without being read. This has a risk: a bit may flip on the device after
//! the comparison, and the kernel may read the block from the device again. The corrupt block is then served
//! until the entry expires.
//!
//! The table has a fixed size. Each block belongs to a group of eight slots, which fill a cache line. If no
//! slot of the group is free, a new block replaces the oldest block of the group; the replaced block is
//! verified again. A bitmap with one bit per 64 KiB of the device would be smaller. But bodies begin at any
//! unit of 512 bytes, and several small bodies may share 64 KiB.
//!
//! A slot contains 36 bits of the block's hash and the time of the comparison; other bits of the hash select
//! the group. The hash covers the location of the block and the epoch of its segment. Entries therefore need
//! not be cleared when a segment is overwritten: its new blocks have other hashes. A lookup of a block without
//! an entry finds a wrong entry with a probability of about 1 in 2^33. The wrong entry has an effect only if
//! this block is corrupt.
//!
//! A second table of this type, smaller and with a shorter lifetime, remembers which blocks were in the
//! kernel's page cache.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use edgeward_types::{Timestamp, mix64};

use super::format::BLOCK_BYTES;
use super::location::Location;

/// The recently verified blocks of a device.
#[derive(Debug)]
pub(crate) struct VerifiedBlocks {
    slots: Box<[AtomicU64]>,
    /// The lifetime of an entry in seconds. If it is 0, the table is disabled.
    lifetime_secs: u32,
    /// Seconds since the first call of [`tick`](Self::tick), counted from 1. Before the first call it is 0, and
    /// no block is remembered. A call with an earlier time sets it to 0 until the next call.
    now: AtomicU32,
    /// The time of the first call of [`tick`](Self::tick), in seconds.
    first_tick: AtomicU64,
    /// The seed of the hash of blocks.
    seed: u64,
}

/// The identity of a block of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockId {
    /// The offset of the block on the device. Each unit of 512 bytes contains the beginning of at most one
    /// block: records begin at units and do not overlap, and the blocks of one record begin more than a unit
    /// apart.
    pub(crate) offset: u64,
    /// The epoch of the block's segment.
    pub(crate) epoch: u64,
}

/// The number of slots in a group. The slots of a group fill a cache line.
const SLOTS_PER_GROUP: usize = 8;

/// The number of low bits of a slot that contain the time.
const SECS_BITS: u32 = 28;
const SECS_MASK: u64 = (1 << SECS_BITS) - 1;

/// The number of slots per 64 KiB of the device. Four slots are enough for objects of 16 KiB, which have one
/// block each.
const SLOTS_PER_BLOCK: u64 = 4;

/// The largest number of slots: 2 Mi slots of eight bytes take 16 MiB. They cover 128 GiB of bodies, or 32 GiB
/// if objects have 16 KiB. If the page cache contains more bodies than this, blocks are verified more often.
const SLOTS_MAX: u64 = 1 << 21;
const SLOTS_MIN: u64 = 1 << 12;

/// The number of slots in the table of resident blocks. They take 512 KiB and cover 4 GiB of bodies, which is
/// more than an edge sends from one device in a second.
const RESIDENT_SLOTS: u64 = 1 << 16;

/// The time for which a block counts as resident. The kernel rarely evicts pages that were just sent. If the
/// kernel evicts one, a request waits for the device.
const RESIDENT_LIFETIME: Duration = Duration::from_secs(2);

impl VerifiedBlocks {
    pub(crate) fn new(device_bytes: u64, lifetime: Duration, seed: u64) -> Self {
        let slots = (device_bytes / BLOCK_BYTES * SLOTS_PER_BLOCK)
            .next_power_of_two()
            .clamp(SLOTS_MIN, SLOTS_MAX);
        Self::with_slots(slots, lifetime, seed)
    }

    /// Returns an empty table of blocks in the page cache. Its entries expire after one or two seconds.
    pub(crate) fn for_resident_blocks(seed: u64) -> Self {
        Self::with_slots(RESIDENT_SLOTS, RESIDENT_LIFETIME, seed)
    }

    fn with_slots(slots: u64, lifetime: Duration, seed: u64) -> Self {
        let lifetime_secs = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        let slots = if lifetime_secs == 0 { 0 } else { slots };
        Self {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            lifetime_secs,
            now: AtomicU32::new(0),
            first_tick: AtomicU64::new(0),
            seed,
        }
    }

    /// Returns true if the table is enabled and [`tick`](Self::tick) has set the time.
    pub(crate) fn is_enabled(&self) -> bool {
        self.lifetime_secs > 0 && self.now.load(Relaxed) > 0
    }

    /// Returns the bytes of RAM that the table takes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }

    /// Sets the current time. Before the first call no block is remembered.
    pub(crate) fn tick(&self, now: Timestamp) {
        if self.lifetime_secs == 0 {
            return;
        }
        let first = match self
            .first_tick
            .compare_exchange(0, now.as_secs(), Relaxed, Relaxed)
        {
            Ok(_) => now.as_secs(),
            Err(first) => first,
        };
        let latest = self.now.load(Relaxed);
        let passed = now.as_secs().checked_sub(first).map(|secs| secs + 1);
        match passed.filter(|&secs| secs >= u64::from(latest) && secs <= SECS_MASK) {
            Some(secs) => self.now.store(
                u32::try_from(secs).expect("the number has at most 28 bits"),
                Relaxed,
            ),
            // The clock was set back, or more than eight years have passed: the age of the entries is unknown.
            None => {
                self.now.store(0, Relaxed);
                self.first_tick.store(now.as_secs(), Relaxed);
                for slot in &self.slots {
                    slot.store(0, Relaxed);
                }
            }
        }
    }

    /// Records that the block was verified now.
    pub(crate) fn insert(&self, block: BlockId) {
        let now = self.now.load(Relaxed);
        let Some((group, tag)) = self.group_of(block).filter(|_| now > 0) else {
            return;
        };
        // The oldest slot has the lowest time. Among slots of the same second, the lowest tag decides.
        let by_time = |value: u64| (value & SECS_MASK, value);
        let slot = group
            .iter()
            .find(|slot| slot.load(Relaxed) & !SECS_MASK == tag)
            .or_else(|| group.iter().min_by_key(|slot| by_time(slot.load(Relaxed))))
            .expect("a group has slots");
        // If two threads write the same slot at once, one entry is lost.
        slot.store(tag | u64::from(now), Relaxed);
    }

    /// Returns true if the block was verified within the lifetime of an entry.
    pub(crate) fn contains(&self, block: BlockId) -> bool {
        let now = self.now.load(Relaxed);
        let Some((group, tag)) = self.group_of(block).filter(|_| now > 0) else {
            return false;
        };
        group.iter().any(|slot| {
            let value = slot.load(Relaxed);
            let compared =
                u32::try_from(value & SECS_MASK).expect("the number has at most 28 bits");
            value & !SECS_MASK == tag
                && compared > 0
                && now
                    .checked_sub(compared)
                    .is_some_and(|age| age < self.lifetime_secs)
        })
    }

    /// Removes a block, because the kernel could not read it.
    pub(crate) fn remove(&self, block: BlockId) {
        if let Some((group, tag)) = self.group_of(block) {
            for slot in group {
                let value = slot.load(Relaxed);
                if value & !SECS_MASK == tag {
                    slot.store(0, Relaxed);
                }
            }
        }
    }

    /// Returns the group of a block, and its tag within the group.
    fn group_of(&self, block: BlockId) -> Option<(&[AtomicU64], u64)> {
        let groups = self.slots.len() / SLOTS_PER_GROUP;
        if groups == 0 {
            return None;
        }
        let unit = block.offset / Location::UNIT_BYTES;
        let hash = mix64(unit ^ mix64(block.epoch ^ self.seed));
        // The lower bits select the group (at most 18 bits), the upper bits are the tag.
        let group = usize::try_from(hash & SECS_MASK).expect("the number has at most 28 bits")
            & (groups - 1);
        let slots = &self.slots[group * SLOTS_PER_GROUP..][..SLOTS_PER_GROUP];
        Some((slots, hash & !SECS_MASK))
    }
}

const _: () = assert!(SLOTS_MAX / SLOTS_PER_GROUP as u64 <= SECS_MASK + 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: u64) -> BlockId {
        BlockId {
            offset: 4096 + n * Location::UNIT_BYTES,
            epoch: 1,
        }
    }

    fn table(lifetime_secs: u64) -> VerifiedBlocks {
        let table = VerifiedBlocks::new(1 << 30, Duration::from_secs(lifetime_secs), 7);
        table.tick(Timestamp::from_secs(1000));
        table
    }

    /// Method: look up the block just before and just after its entry expires.
    #[test]
    fn an_entry_expires_after_its_lifetime() {
        let table = table(600);
        table.insert(block(1));
        for (secs, known) in [(1000, true), (1599, true), (1600, false), (9000, false)] {
            table.tick(Timestamp::from_secs(secs));
            assert_eq!(table.contains(block(1)), known, "{secs}");
        }
        table.insert(block(1));
        assert!(table.contains(block(1)), "verified again");
    }

    #[test]
    fn a_block_of_another_epoch_is_another_block() {
        let table = table(600);
        table.insert(block(1));
        assert!(table.contains(block(1)));
        assert!(!table.contains(block(2)));
        let later = BlockId {
            epoch: 2,
            ..block(1)
        };
        assert!(!table.contains(later));
    }

    #[test]
    fn no_block_is_remembered_without_a_time_or_with_lifetime_zero() {
        let unticked = VerifiedBlocks::new(1 << 30, Duration::from_secs(600), 7);
        unticked.insert(block(1));
        assert!(!unticked.contains(block(1)) && !unticked.is_enabled());
        let off = table(0);
        off.insert(block(1));
        assert!(!off.contains(block(1)) && !off.is_enabled());
        assert_eq!(off.bytes(), 0);
    }

    #[test]
    fn a_clock_that_is_set_back_clears_the_table() {
        let table = table(600);
        table.tick(Timestamp::from_secs(2000));
        table.insert(block(1));
        table.tick(Timestamp::from_secs(1999));
        assert!(!table.contains(block(1)));
        table.tick(Timestamp::from_secs(2000));
        assert!(!table.contains(block(1)));
        table.insert(block(1));
        assert!(table.contains(block(1)));
    }

    /// Method: insert twice as many blocks as the table has slots. The later half replaces most of the
    /// earlier half, and no block is found that was not inserted.
    #[test]
    fn the_oldest_entries_of_a_full_table_are_replaced_first() {
        let table = table(600);
        let slots = table.slots.len() as u64;
        assert_eq!(slots, (1 << 30) / BLOCK_BYTES * SLOTS_PER_BLOCK);
        (0..slots).for_each(|n| table.insert(block(n)));
        table.tick(Timestamp::from_secs(1100));
        (slots..2 * slots).for_each(|n| table.insert(block(n)));
        let known =
            |range: std::ops::Range<u64>| range.filter(|&n| table.contains(block(n))).count();
        let (earlier, later) = (known(0..slots), known(slots..2 * slots));
        assert!(later as u64 > slots * 7 / 10, "{later} of {slots}");
        assert!(earlier < later / 2, "{earlier}");
        assert_eq!(known(2 * slots..10 * slots), 0);
    }

    #[test]
    fn a_resident_block_is_remembered_for_two_seconds() {
        let residents = VerifiedBlocks::for_resident_blocks(7);
        residents.tick(Timestamp::from_secs(1000));
        residents.insert(block(1));
        for (secs, known) in [(1000, true), (1001, true), (1002, false)] {
            residents.tick(Timestamp::from_secs(secs));
            assert_eq!(residents.contains(block(1)), known, "{secs}");
        }
    }

    #[test]
    fn a_removed_block_is_not_found() {
        let table = table(600);
        (0..8).for_each(|n| table.insert(block(n)));
        table.remove(block(3));
        let known: Vec<_> = (0..8).filter(|&n| table.contains(block(n))).collect();
        assert_eq!(known, [0, 1, 2, 4, 5, 6, 7]);
    }
}
