//! Which blocks of bodies were found to be what was written, lately.
//!
//! Comparing a block with its checksum means to read all of it, which for a body that goes from the page
//! cache to a socket is work of its own. So a comparison is remembered for a while, and until then the block may
//! be handed on unread. What that risks: a bit that turns on the device after the comparison, in a block that the page
//! cache had to read again, is served until the memory of it ends.
//!
//! A table of a fixed size, each block in one of the eight slots of its group, a cache line; who finds no free one takes the place
//! of the oldest. A block that was pushed out is compared once more, that is all. Bits for the blocks of the
//! device would be smaller, but bodies begin anywhere, and several small ones lie in one block.
//!
//! A slot holds 36 bits of the block's name, besides those that choose its group, and when it was compared. The
//! name mixes the place with the epoch of its segment, so nothing has to be cleared when a segment is overwritten:
//! what lies there then has other names. That a name is taken for another's happens once in 2^33 lookups of a block
//! that is not known, and matters only if that block is damaged.
//!
//! The same table, smaller and with a shorter memory, remembers which blocks the kernel said were in its page cache.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use edgeward_types::{Timestamp, mix64};

use super::format::BLOCK_BYTES;
use super::location::Location;

/// The memory of a device.
#[derive(Debug)]
pub(crate) struct Verified {
    slots: Box<[AtomicU64]>,
    /// How long a comparison counts. Zero: not at all.
    every_secs: u32,
    /// Seconds since the first tick, counted from 1; 0 before it, when nothing is remembered.
    now: AtomicU32,
    first_tick: AtomicU64,
    seed: u64,
}

/// A block of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockName {
    /// Where it begins, in bytes from the device's start. Records begin at units and do not overlap, and
    /// blocks of one record are further apart than a unit: so no two begin in the same unit.
    pub(crate) at: u64,
    /// Of its segment's opening.
    pub(crate) epoch: u64,
}

/// A cache line.
const SLOTS_A_GROUP: usize = 8;

/// Bits of a slot that say when.
const SECS_BITS: u32 = 28;
const SECS_MASK: u64 = (1 << SECS_BITS) - 1;

/// For objects of 16 KiB each has a slot.
const SLOTS_A_BLOCK: u64 = 4;

/// At most 2 Mi slots of eight bytes, 16 MiB: blocks of 128 GiB, or of 32 GiB if objects have 16 KiB. More than that in
/// the page cache is served with more comparisons.
const SLOTS_MAX: u64 = 1 << 21;
const SLOTS_MIN: u64 = 1 << 12;

/// 512 KiB: blocks of 4 GiB, more than go out in a second.
const RESIDENT_SLOTS: u64 = 1 << 16;

/// What was just sent is not what the kernel lets go of first. Should it, one request waits for the device.
const RESIDENT_FOR: Duration = Duration::from_secs(2);

impl Verified {
    pub(crate) fn new(device_bytes: u64, every: Duration, seed: u64) -> Self {
        let slots = (device_bytes / BLOCK_BYTES * SLOTS_A_BLOCK)
            .next_power_of_two()
            .clamp(SLOTS_MIN, SLOTS_MAX);
        Self::of(slots, every, seed)
    }

    /// The same for another question, which is asked often and answered for a second or two: is the block in memory?
    pub(crate) fn of_residents(seed: u64) -> Self {
        Self::of(RESIDENT_SLOTS, RESIDENT_FOR, seed)
    }

    fn of(slots: u64, every: Duration, seed: u64) -> Self {
        let every_secs = u32::try_from(every.as_secs()).unwrap_or(u32::MAX);
        let slots = if every_secs == 0 { 0 } else { slots };
        Self {
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            every_secs,
            now: AtomicU32::new(0),
            first_tick: AtomicU64::new(0),
            seed,
        }
    }

    /// Whether anything is remembered at all.
    pub(crate) fn is_on(&self) -> bool {
        self.every_secs > 0 && self.now.load(Relaxed) > 0
    }

    /// RAM it takes.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.slots) as u64
    }

    /// Tells the time. Without it nothing is remembered.
    pub(crate) fn tick(&self, now: Timestamp) {
        if self.every_secs == 0 {
            return;
        }
        let first = match self
            .first_tick
            .compare_exchange(0, now.as_secs(), Relaxed, Relaxed)
        {
            Ok(_) => now.as_secs(),
            Err(first) => first,
        };
        let known = self.now.load(Relaxed);
        let passed = now.as_secs().checked_sub(first).map(|secs| secs + 1);
        match passed.filter(|&secs| secs >= u64::from(known) && secs <= SECS_MASK) {
            Some(secs) => self
                .now
                .store(u32::try_from(secs).expect("of 28 bits"), Relaxed),
            // The clock was set back, or ran for eight years: how old anything is cannot be told.
            None => {
                self.now.store(0, Relaxed);
                self.first_tick.store(now.as_secs(), Relaxed);
                for slot in &self.slots {
                    slot.store(0, Relaxed);
                }
            }
        }
    }

    /// The block was compared just now.
    pub(crate) fn note(&self, block: BlockName) {
        let now = self.now.load(Relaxed);
        let Some((group, tag)) = self.group_of(block).filter(|_| now > 0) else {
            return;
        };
        let age = |value: u64| (value & SECS_MASK, value);
        let place = group
            .iter()
            .find(|slot| slot.load(Relaxed) & !SECS_MASK == tag)
            .or_else(|| group.iter().min_by_key(|slot| age(slot.load(Relaxed))))
            .expect("a group has slots");
        // Of two who write the same slot at once one is forgotten.
        place.store(tag | u64::from(now), Relaxed);
    }

    /// Whether it was compared lately.
    pub(crate) fn knows(&self, block: BlockName) -> bool {
        let now = self.now.load(Relaxed);
        let Some((group, tag)) = self.group_of(block).filter(|_| now > 0) else {
            return false;
        };
        group.iter().any(|slot| {
            let value = slot.load(Relaxed);
            let compared = u32::try_from(value & SECS_MASK).expect("of 28 bits");
            value & !SECS_MASK == tag
                && compared > 0
                && now
                    .checked_sub(compared)
                    .is_some_and(|age| age < self.every_secs)
        })
    }

    /// It could not be read after all.
    pub(crate) fn forget(&self, block: BlockName) {
        if let Some((group, tag)) = self.group_of(block) {
            for slot in group {
                let value = slot.load(Relaxed);
                if value & !SECS_MASK == tag {
                    slot.store(0, Relaxed);
                }
            }
        }
    }

    /// Where it may be, and what says that it is.
    fn group_of(&self, block: BlockName) -> Option<(&[AtomicU64], u64)> {
        let groups = self.slots.len() / SLOTS_A_GROUP;
        if groups == 0 {
            return None;
        }
        let unit = block.at / Location::UNIT_BYTES;
        let name = mix64(unit ^ mix64(block.epoch ^ self.seed));
        // The lower bits choose the group (18 at most), the upper ones are the tag.
        let group = usize::try_from(name & SECS_MASK).expect("of 28 bits") & (groups - 1);
        let slots = &self.slots[group * SLOTS_A_GROUP..][..SLOTS_A_GROUP];
        Some((slots, name & !SECS_MASK))
    }
}

const _: () = assert!(SLOTS_MAX / SLOTS_A_GROUP as u64 <= SECS_MASK + 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn block(n: u64) -> BlockName {
        BlockName {
            at: 4096 + n * Location::UNIT_BYTES,
            epoch: 1,
        }
    }

    fn memory(every_secs: u64) -> Verified {
        let memory = Verified::new(1 << 30, Duration::from_secs(every_secs), 7);
        memory.tick(Timestamp::from_secs(1000));
        memory
    }

    /// Method: look on each side of the end.
    #[test]
    fn a_comparison_counts_for_as_long_as_is_set_and_no_longer() {
        let memory = memory(600);
        memory.note(block(1));
        for (secs, known) in [(1000, true), (1599, true), (1600, false), (9000, false)] {
            memory.tick(Timestamp::from_secs(secs));
            assert_eq!(memory.knows(block(1)), known, "{secs}");
        }
        memory.note(block(1));
        assert!(memory.knows(block(1)), "compared anew");
    }

    #[test]
    fn what_lies_there_in_another_epoch_is_another_block() {
        let memory = memory(600);
        memory.note(block(1));
        assert!(memory.knows(block(1)));
        assert!(!memory.knows(block(2)));
        let later = BlockName {
            epoch: 2,
            ..block(1)
        };
        assert!(!memory.knows(later));
    }

    #[test]
    fn nothing_is_remembered_without_a_clock_or_when_it_is_turned_off() {
        let silent = Verified::new(1 << 30, Duration::from_secs(600), 7);
        silent.note(block(1));
        assert!(!silent.knows(block(1)) && !silent.is_on());
        let off = memory(0);
        off.note(block(1));
        assert!(!off.knows(block(1)) && !off.is_on());
        assert_eq!(off.bytes(), 0);
    }

    #[test]
    fn a_clock_that_is_set_back_makes_it_forget_everything() {
        let memory = memory(600);
        memory.tick(Timestamp::from_secs(2000));
        memory.note(block(1));
        memory.tick(Timestamp::from_secs(1999));
        assert!(!memory.knows(block(1)));
        memory.tick(Timestamp::from_secs(2000));
        assert!(!memory.knows(block(1)));
        memory.note(block(1));
        assert!(memory.knows(block(1)));
    }

    /// Method: twice as many blocks as there are slots; the later half pushes out of the earlier, and none is known that
    /// was not noted.
    #[test]
    fn it_has_a_size_and_the_oldest_leave_first() {
        let memory = memory(600);
        let slots = memory.slots.len() as u64;
        assert_eq!(slots, (1 << 30) / BLOCK_BYTES * SLOTS_A_BLOCK);
        (0..slots).for_each(|n| memory.note(block(n)));
        memory.tick(Timestamp::from_secs(1100));
        (slots..2 * slots).for_each(|n| memory.note(block(n)));
        let known = |range: std::ops::Range<u64>| range.filter(|&n| memory.knows(block(n))).count();
        let (earlier, later) = (known(0..slots), known(slots..2 * slots));
        assert!(later as u64 > slots * 7 / 10, "{later} of {slots}");
        assert!(earlier < later / 2, "{earlier}");
        assert_eq!(known(2 * slots..10 * slots), 0);
    }

    #[test]
    fn what_was_in_memory_is_believed_to_be_for_two_ticks() {
        let residents = Verified::of_residents(7);
        residents.tick(Timestamp::from_secs(1000));
        residents.note(block(1));
        for (secs, known) in [(1000, true), (1001, true), (1002, false)] {
            residents.tick(Timestamp::from_secs(secs));
            assert_eq!(residents.knows(block(1)), known, "{secs}");
        }
    }

    #[test]
    fn what_is_forgotten_is_not_known() {
        let memory = memory(600);
        (0..8).for_each(|n| memory.note(block(n)));
        memory.forget(block(3));
        let known: Vec<_> = (0..8).filter(|&n| memory.knows(block(n))).collect();
        assert_eq!(known, [0, 1, 2, 4, 5, 6, 7]);
    }
}
