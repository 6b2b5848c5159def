//! One cache line: nine slots of seven bytes and a version.
//!
//! ```text
//! word 0..=7, low 7 bytes    slots 0..=7
//! word 0..=6, top byte       slot 8, byte by byte
//! word 7,     top byte       version: odd while the bucket is being changed
//!
//! slot, 56 bits:  hits (2) | tag (54 - location bits) | location; all zero: empty
//! ```
//!
//! Readers take no lock. They read version, slots, version, and begin again if it was odd or has changed (a seqlock,
//! H.-J. Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012). Eight bits of version
//! come round after 128 changes; a reader that slept exactly so long takes a slot that was torn for true, reads a
//! record that is not its own, and has a miss. Writers exclude each other by a lock outside.
//!
//! A hit's mark is one compare-and-swap by a reader on the word that holds it. A writer may overwrite it: marks are a
//! hint, and losing one in a million is cheaper than making every writer swap.

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

/// A bucket's bytes at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    words: [u64; WORDS],
}

impl Bucket {
    /// What a reader compares before and after. Also brings the line in.
    #[inline]
    pub(super) fn version(&self) -> u8 {
        (self.words[7].load(Acquire) >> SLOT_BITS) as u8
    }

    /// The version again, after the slots were read.
    #[inline]
    pub(super) fn version_after(&self) -> u8 {
        fence(Acquire);
        (self.words[7].load(Relaxed) >> SLOT_BITS) as u8
    }

    #[inline]
    pub(super) fn line(&self) -> Line {
        Line {
            words: std::array::from_fn(|at| self.words[at].load(Relaxed)),
        }
    }

    /// A line that was whole, if one can be had in a few attempts; else whatever there is.
    pub(super) fn settled_line(&self) -> Line {
        let mut line = self.line();
        for _ in 0..READ_ATTEMPTS {
            let before = self.version();
            line = self.line();
            if settled(before) && self.version_after() == before {
                break;
            }
            std::hint::spin_loop();
        }
        line
    }

    /// Opens the bucket for changes. The caller holds the writers' lock.
    pub(super) fn begin(&self) {
        let word = self.words[7].load(Relaxed);
        self.words[7].store(word.wrapping_add(VERSION_STEP), Relaxed);
        // The odd version is seen before any change to a slot.
        fence(Release);
    }

    /// Closes it again.
    pub(super) fn end(&self) {
        let word = self.words[7].load(Relaxed);
        self.words[7].store(word.wrapping_add(VERSION_STEP), Release);
    }

    /// Writes a slot between `begin` and `end`.
    pub(super) fn put(&self, at: usize, slot: u64) {
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

    /// Writes one slot, opened and closed.
    pub(super) fn set(&self, at: usize, slot: u64) {
        self.begin();
        self.put(at, slot);
        self.end();
    }

    /// Counts a hit on the slot that is `slot` but for its hits, up to [`HITS_MAX`]. Whether it is here.
    pub(super) fn mark(&self, slot: u64) -> bool {
        let line = self.line();
        let Some(at) = (0..SLOTS).find(|&at| line.slot(at) & !HITS_MASK == slot & !HITS_MASK)
        else {
            return false;
        };
        if line.slot(at) & HITS_MASK == HITS_MASK {
            return true;
        }
        // The ninth slot's hits are in the top byte of its last byte's word.
        let (word, one) = if at < SPREAD_SLOT {
            (at, 1 << HITS_SHIFT)
        } else {
            (SLOT_BYTES - 1, 1 << (HITS_SHIFT - 48 + SLOT_BITS))
        };
        let seen = line.words[word];
        // Whoever comes first counts; the other's mark is lost, and so is one on a word that changed.
        _ = self.words[word].compare_exchange(seen, seen.wrapping_add(one), Relaxed, Relaxed);
        true
    }

    /// Fills a bucket that nobody reads yet.
    pub(super) fn fill(&self, line: &Line) {
        for (word, &value) in self.words.iter().zip(&line.words) {
            word.store(value, Relaxed);
        }
    }
}

impl Line {
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

    /// The place and content of the first slot whose bits under `mask` are `wanted`.
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

    pub(super) fn slots(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (0..SLOTS)
            .map(|at| (at, self.slot(at)))
            .filter(|&(_, slot)| slot != EMPTY)
    }

    pub(super) fn free(&self) -> Option<usize> {
        (0..SLOTS).find(|&at| self.slot(at) == EMPTY)
    }

    pub(super) fn occupied(&self) -> usize {
        (0..SLOTS).filter(|&at| self.slot(at) != EMPTY).count()
    }

    /// 64 bytes, little-endian, the version left out.
    pub(super) fn to_bytes(self) -> [u8; BUCKET_BYTES] {
        let mut bytes = [0; BUCKET_BYTES];
        for (at, (out, word)) in bytes.chunks_exact_mut(8).zip(self.words).enumerate() {
            let word = if at == 7 { word & SLOT_MASK } else { word };
            out.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// None if the place of the version is taken: no checkpoint of ours.
    pub(super) fn from_bytes(bytes: &[u8; BUCKET_BYTES]) -> Option<Self> {
        let words = std::array::from_fn(|at| {
            let bytes = &bytes[8 * at..8 * at + 8];
            u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
        });
        (words[7] <= SLOT_MASK).then_some(Self { words })
    }
}

#[inline]
pub(super) fn settled(version: u8) -> bool {
    version.is_multiple_of(2)
}

pub(super) const BUCKET_BYTES: usize = 64;
pub(super) const SLOTS: usize = 9;
pub(super) const EMPTY: u64 = 0;
pub(super) const HITS_SHIFT: u32 = 54;
pub(super) const HITS_MAX: u8 = 3;
pub(super) const HITS_MASK: u64 = (HITS_MAX as u64) << HITS_SHIFT;

/// A writer holds a bucket open for a few stores. One that was put to sleep there must not make readers spin.
pub(super) const READ_ATTEMPTS: usize = 32;

const WORDS: usize = 8;
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

    /// Nine slots side by side do not touch each other or the version.
    ///
    /// Method: each slot in turn is set to all ones and to zero among neighbours that are neither.
    #[test]
    fn a_slot_changes_alone() {
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
                    assert_eq!(bucket.line().slot(at), expected, "slot {at} of {changed}");
                }
            }
        }
    }

    #[test]
    fn hits_are_counted_to_three_and_touch_nothing_else() {
        for at in 0..SLOTS {
            let bucket = Bucket::default();
            (0..SLOTS).for_each(|at| bucket.set(at, 0x2000_0000_0000 | at as u64));
            let slot = bucket.line().slot(at);
            for hits in [1, 2, 3, 3] {
                assert!(bucket.mark(slot));
                assert_eq!(bucket.line().slot(at), slot | hits << HITS_SHIFT);
            }
            assert!(!bucket.mark(slot ^ 0x100), "no such slot");
            assert_eq!(bucket.line().slots().count(), SLOTS);
            assert_eq!(bucket.version(), 2 * SLOTS as u8);
        }
    }

    #[test]
    fn a_line_survives_its_bytes_and_loses_its_version() {
        let bucket = Bucket::default();
        (0..SLOTS).for_each(|at| bucket.set(at, 0x002a_0000_0000_0001 << (at % 2)));
        let bytes = bucket.line().to_bytes();
        let again = Line::from_bytes(&bytes).expect("ours");
        assert!((0..SLOTS).all(|at| again.slot(at) == bucket.line().slot(at)));
        let mut foreign = bytes;
        foreign[63] = 1;
        assert!(Line::from_bytes(&foreign).is_none());
    }
}
