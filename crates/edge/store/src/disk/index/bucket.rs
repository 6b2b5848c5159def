//! A bucket is one cache line: nine slots of seven bytes and a version.
//!
//! ```text
//! word 0..=7, low 7 bytes    slots 0..=7
//! word 0..=6, top byte       slot 8, byte by byte
//! word 7,     top byte       version: odd while the bucket is being changed
//!
//! slot, 56 bits   hit count: 2 bits | tag and location: 54 bits together; all zero: empty
//! ```
//!
//! A tag is a part of the key's hash. The location is that of the key's record on the device.
//!
//! Readers take no lock. They read the version, the slots and the version again, and repeat if the version was
//! odd or has changed (a seqlock, H.-J. Boehm, "Can seqlocks get along with programming language memory
//! models?", MSPC 2012). A change adds two to the version of eight bits, so the version wraps around after 128
//! changes. A reader that is suspended during exactly a multiple of 128 changes may accept a torn slot. It then reads a
//! wrong record, and reports a miss because the key differs. Writers exclude each other by a lock outside the bucket.
//!
//! A reader counts a hit by one compare-and-swap on the word that contains the counter. A concurrent writer may
//! overwrite the new count, because writers use plain stores. The hit counts only guide reinsertion, so a rare
//! lost hit is acceptable. Plain stores are cheaper than a compare-and-swap.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Bucket {
    words: [AtomicU64; WORDS],
}

/// The words of a bucket at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheLine {
    words: [u64; WORDS],
}

impl Bucket {
    /// Returns the version. A reader calls this before it reads the slots. The call also fetches the cache line.
    #[inline]
    pub(super) fn version(&self) -> u8 {
        (self.words[7].load(Acquire) >> SLOT_BITS) as u8
    }

    /// Returns the version. A reader calls this after it has read the slots.
    #[inline]
    pub(super) fn version_after(&self) -> u8 {
        fence(Acquire);
        (self.words[7].load(Relaxed) >> SLOT_BITS) as u8
    }

    /// Returns a copy of the bucket. A concurrent change may overlap the copy.
    #[inline]
    pub(super) fn line(&self) -> CacheLine {
        CacheLine {
            words: std::array::from_fn(|at| self.words[at].load(Relaxed)),
        }
    }

    /// Returns a copy of the bucket that no change overlapped. If all [`READ_ATTEMPTS`] copies are overlapped
    /// by changes, returns the last copy.
    pub(super) fn settled_line(&self) -> CacheLine {
        let mut line = self.line();
        for _ in 0..READ_ATTEMPTS {
            let before = self.version();
            line = self.line();
            if is_settled(before) && self.version_after() == before {
                break;
            }
            std::hint::spin_loop();
        }
        line
    }

    /// Starts a change of the bucket. The caller holds the writers' lock.
    pub(super) fn begin(&self) {
        let word = self.words[7].load(Relaxed);
        self.words[7].store(word.wrapping_add(VERSION_STEP), Relaxed);
        // Readers see the odd version before any change of a slot.
        fence(Release);
    }

    /// Ends a change of the bucket.
    pub(super) fn end(&self) {
        let word = self.words[7].load(Relaxed);
        self.words[7].store(word.wrapping_add(VERSION_STEP), Release);
    }

    /// Writes a slot between `begin` and `end`.
    pub(super) fn write_slot(&self, at: usize, slot: u64) {
        debug_assert!(slot <= SLOT_MASK);
        if at < SPREAD_SLOT {
            let word = self.words[at].load(Relaxed);
            self.words[at].store(word & !SLOT_MASK | slot, Relaxed);
            return;
        }
        for (byte, word) in self.words[..SLOT_BYTES].iter().enumerate() {
            let rest = word.load(Relaxed) & SLOT_MASK;
            let byte = (slot >> (8 * byte)) & 0xff;
            word.store(byte << SLOT_BITS | rest, Relaxed);
        }
    }

    /// Writes one slot, with `begin` and `end`.
    pub(super) fn set(&self, at: usize, slot: u64) {
        self.begin();
        self.write_slot(at, slot);
        self.end();
    }

    /// Counts a hit, up to [`HITS_MAX`], on the slot with the same location and tag as `slot`. Returns true if the
    /// bucket has this slot.
    pub(super) fn count_hit(&self, slot: u64) -> bool {
        let line = self.line();
        let Some(at) = (0..SLOTS).find(|&at| line.slot(at) & !HITS_MASK == slot & !HITS_MASK)
        else {
            return false;
        };
        if line.slot(at) & HITS_MASK == HITS_MASK {
            return true;
        }
        // The last byte of the ninth slot contains its hits. It is the top byte of word 6.
        let (word, one) = if at < SPREAD_SLOT {
            (at, 1 << HITS_SHIFT)
        } else {
            (SLOT_BYTES - 1, 1 << (HITS_SHIFT - 48 + SLOT_BITS))
        };
        let old_word = line.words[word];
        // The exchange fails if another thread changed any part of the word meanwhile. The hit is then not counted.
        _ = self.words[word].compare_exchange(
            old_word,
            old_word.wrapping_add(one),
            Relaxed,
            Relaxed,
        );
        true
    }

    /// Copies a cache line into a bucket that has no readers yet.
    pub(super) fn fill(&self, line: &CacheLine) {
        for (word, &value) in self.words.iter().zip(&line.words) {
            word.store(value, Relaxed);
        }
    }
}

impl CacheLine {
    #[inline]
    pub(super) fn slot(&self, at: usize) -> u64 {
        if at < SPREAD_SLOT {
            self.words[at] & SLOT_MASK
        } else {
            self.words[..SLOT_BYTES]
                .iter()
                .enumerate()
                .fold(0, |slot, (byte, word)| {
                    slot | (word >> SLOT_BITS) << (8 * byte)
                })
        }
    }

    /// Returns the index and content of the first slot whose bits under `mask` are `wanted`.
    #[inline]
    pub(super) fn find(&self, mask: u64, wanted: u64) -> Option<(usize, u64)> {
        for at in 0..SLOTS {
            let slot = self.slot(at);
            if slot & mask == wanted && slot != EMPTY {
                return Some((at, slot));
            }
        }
        None
    }

    /// Yields the index and content of each slot that is not empty.
    pub(super) fn slots(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (0..SLOTS)
            .map(|at| (at, self.slot(at)))
            .filter(|&(_, slot)| slot != EMPTY)
    }

    /// Returns the index of the first empty slot.
    pub(super) fn free(&self) -> Option<usize> {
        (0..SLOTS).find(|&at| self.slot(at) == EMPTY)
    }

    pub(super) fn occupied(&self) -> usize {
        (0..SLOTS).filter(|&at| self.slot(at) != EMPTY).count()
    }

    /// Returns the cache line in 64 bytes, little-endian, with a version of 0.
    pub(super) fn to_bytes(self) -> [u8; BUCKET_BYTES] {
        let mut bytes = [0; BUCKET_BYTES];
        for (at, (out, word)) in bytes.chunks_exact_mut(8).zip(self.words).enumerate() {
            let word = if at == 7 { word & SLOT_MASK } else { word };
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Parses a cache line. Returns `None` if its version is not 0, because the bytes are then not from a
    /// checkpoint.
    pub(super) fn from_bytes(bytes: &[u8; BUCKET_BYTES]) -> Option<Self> {
        let words = std::array::from_fn(|at| {
            let bytes = &bytes[8 * at..8 * at + 8];
            u64::from_le_bytes(bytes.try_into().expect("the slice has eight bytes"))
        });
        (words[7] <= SLOT_MASK).then_some(Self { words })
    }
}

/// Returns true if no writer was changing the bucket when this version was read.
#[inline]
pub(super) fn is_settled(version: u8) -> bool {
    version.is_multiple_of(2)
}

pub(super) const BUCKET_BYTES: usize = 64;
pub(super) const SLOTS: usize = 9;
pub(super) const EMPTY: u64 = 0;
pub(super) const HITS_SHIFT: u32 = 54;
pub(super) const HITS_MAX: u8 = 3;
pub(super) const HITS_MASK: u64 = (HITS_MAX as u64) << HITS_SHIFT;

/// The largest number of times that a reader reads a bucket that is being changed. A change takes only a few
/// stores, but a reader must not spin for long if the writer's thread is suspended during a change. Tests need exact
/// results, so their readers wait for the writer.
pub(super) const READ_ATTEMPTS: usize = if cfg!(test) { usize::MAX } else { 32 };

const WORDS: usize = 8;
/// The index of the slot whose seven bytes are the top bytes of the words 0 to 6.
const SPREAD_SLOT: usize = 8;
const SLOT_BYTES: usize = 7;
const SLOT_BITS: u32 = 56;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const VERSION_STEP: u64 = 1 << SLOT_BITS;

const _: () = assert!(size_of::<Bucket>() == BUCKET_BYTES);
const _: () = assert!(HITS_SHIFT + 2 == SLOT_BITS && SLOTS * SLOT_BYTES < BUCKET_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    /// A change of one of the nine slots changes no other slot, and increases the version by two.
    ///
    /// Method: set each slot in turn to all ones and to zero, while its neighbours have other values.
    #[test]
    fn a_change_of_a_slot_leaves_all_others() {
        let bucket = Bucket::default();
        let content = |at: usize| 0x0055_1234_5678_9a00 | at as u64;
        (0..SLOTS).for_each(|at| bucket.set(at, content(at)));
        for changed in 0..SLOTS {
            for value in [SLOT_MASK, EMPTY, content(changed)] {
                let version = bucket.version();
                bucket.set(changed, value);
                assert_eq!(bucket.version(), version.wrapping_add(2));
                for at in 0..SLOTS {
                    let expected = if at == changed { value } else { content(at) };
                    // The message names the wrong slot and the slot that was changed.
                    assert_eq!(bucket.line().slot(at), expected, "slot {at} of {changed}");
                }
            }
        }
    }

    #[test]
    fn hits_are_counted_up_to_three_and_change_no_other_slot() {
        for at in 0..SLOTS {
            let bucket = Bucket::default();
            (0..SLOTS).for_each(|at| bucket.set(at, 0x2000_0000_0000 | at as u64));
            let slot = bucket.line().slot(at);
            for hits in [1, 2, 3, 3] {
                assert!(bucket.count_hit(slot));
                assert_eq!(bucket.line().slot(at), slot | hits << HITS_SHIFT);
            }
            assert!(!bucket.count_hit(slot ^ 0x100), "no such slot");
            assert_eq!(bucket.line().slots().count(), SLOTS);
            assert_eq!(bucket.version(), 2 * SLOTS as u8);
        }
    }

    #[test]
    fn a_serialised_bucket_keeps_its_slots_but_not_its_version() {
        let bucket = Bucket::default();
        (0..SLOTS).for_each(|at| bucket.set(at, 0x002a_0000_0000_0001 << (at % 2)));
        let bytes = bucket.line().to_bytes();
        let again = CacheLine::from_bytes(&bytes).expect("the bytes are a valid bucket");
        assert!((0..SLOTS).all(|at| again.slot(at) == bucket.line().slot(at)));
        let mut foreign = bytes;
        foreign[63] = 1;
        assert!(CacheLine::from_bytes(&foreign).is_none());
    }
}
