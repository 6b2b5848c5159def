//! A memory of recently requested keys: two Bloom filters that rotate.
//!
//! One filter is the primary, the other the secondary. New keys are added to the primary; a lookup reads both filters.
//! When the primary is full it becomes the secondary, and the cleared old secondary becomes the primary. A key is
//! therefore remembered for about one to two *periods*. A period is the time in which the expected number of distinct
//! keys is requested. A key that is requested again while only the secondary has it is added to the primary and stays
//! remembered.
//!
//! **Full** means that a given share of the primary's bits is set ([`RotatingBloomConfig::fill_max`]). Bits are
//! counted instead of keys, because bits determine the error rate and an add knows how many bits it sets. In a
//! large filter only a part of the blocks is counted, at least one in 64, so that cores do not contend for the counter.
//!
//! **Clearing** a large filter at once would delay one request by tens of milliseconds. Adds therefore clear
//! the secondary in steps of a kilobyte during the last eighth of the period. This shortens the time for which a key is
//! remembered: to 7/8 of a period in the worst case.
//!
//! **Two errors** are in [`RotatingBloomStats`]. First, a new key may be taken for a seen one; the rate follows
//! from the fill. Second, a seen key may be forgotten by rotation. To measure this, a copy of the
//! counted blocks of the last cleared filter is retained. A new key in this copy is a forgotten one. This finds keys
//! of the last forgotten period, but not of earlier periods.
//!
//! **Concurrency**: shared access, no lock. The epoch, one number, determines the roles. The thread whose add
//! finds the primary full and the secondary clear increments the epoch. A thread that still adds under the old roles
//! adds to the new secondary, where its key is remembered too.
//!
//! Source of the scheme: Maggs and Sitaraman, "Algorithmic Nuggets in Content Delivery", CCR 2015, section 4.

use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use edgeward_types::KeyHash;

use super::bloom::{BLOCK_BITS, Bloom, Probe};
use super::rates;

/// The number of keys and the error rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotatingBloomConfig {
    /// Distinct keys per period.
    pub expected_keys: NonZeroU64,
    /// The share of set bits at which the primary is full, above 0 and at most 0.9.
    pub fill_max: f64,
}

impl RotatingBloomConfig {
    /// Sizes the filter for this number of distinct keys per period. The share of new keys that are taken for seen ones
    /// never exceeds `false_positive_rate_max`.
    ///
    /// The highest rate is reached when clearing begins: the secondary is complete and the primary has 7/8 of
    /// its keys. The rate is limited to 1e-7 to 0.5.
    pub fn new(expected_keys: NonZeroU64, false_positive_rate_max: f64) -> Self {
        let rate_max = false_positive_rate_max.clamp(1e-7, 0.5);
        let load = rates::keys_per_block_at(rate_max, worst_false_positive_rate);
        Self {
            expected_keys,
            fill_max: rates::fill(load),
        }
    }

    /// Sizes the filter so that `expected_keys` distinct keys set the share `fill_max` of the primary's bits. The share
    /// is limited to 0.01 to 0.9.
    pub fn with_fill_max(expected_keys: NonZeroU64, fill_max: f64) -> Self {
        Self {
            expected_keys,
            fill_max: fill_max.clamp(0.01, 0.9),
        }
    }

    /// Returns the highest resulting rate of new keys taken for seen ones.
    pub fn false_positive_rate_max(&self) -> f64 {
        worst_false_positive_rate(rates::keys_per_block(self.fill_max))
    }

    /// The number of 64-byte blocks in each of the two filters.
    pub fn blocks(&self) -> usize {
        let blocks = self.expected_keys.get() as f64 / rates::keys_per_block(self.fill_max);
        (blocks.ceil() as usize).clamp(1, BLOCKS_MAX)
    }

    /// Bytes of both filters, and of the copy of the counted blocks that were cleared last.
    pub fn memory_bytes(&self) -> u64 {
        let blocks = self.blocks();
        (2 * blocks + blocks.div_ceil(stride(blocks))) as u64 * BLOCK_BITS / 8
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// Requested within the last two periods, or a false positive.
    Seen,
    /// Not requested for at least 7/8 of a period.
    New,
}

/// A memory of recent keys.
#[derive(Debug)]
pub struct RotatingBloom {
    config: RotatingBloomConfig,
    /// The two filters. They swap the roles of primary and secondary.
    generations: [Bloom; 2],
    /// A copy of the counted blocks of the generation that was cleared last.
    retired: Bloom,
    /// The number of rotations. Its parity selects the primary generation.
    epoch: AtomicU64,
    /// For the counted blocks of each generation: the set bits in the lower half, and the new keys since it was
    /// cleared in the upper half. One number, so that a key needs one atomic addition.
    counted: [AtomicU64; 2],
    /// The progress of clearing. The upper half has the low 32 bits of the epoch, the lower half the next region (a
    /// group of [`REGION_BLOCKS`] blocks) to clear. A claim for a past epoch fails, so a thread that was suspended
    /// during a rotation clears no region.
    claims: AtomicU64,
    /// Regions cleared in this epoch.
    cleared: AtomicU64,
    /// New keys that were added to counted blocks in earlier periods.
    counted_new: AtomicU64,
    /// Keys of counted blocks that were reported as new although they were requested in the last forgotten period.
    counted_lost: AtomicU64,
    geometry: Geometry,
}

/// Values derived from the configuration.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    /// One block in this many is counted. A power of two; `stride_log2` is its logarithm.
    stride: usize,
    stride_log2: u32,
    /// The number of regions of [`REGION_BLOCKS`] blocks.
    regions: u64,
    /// The counted bits at which clearing begins, and at which the primary is full.
    clear_from_bits: u64,
    full_bits: u64,
}

impl RotatingBloom {
    /// Makes an empty filter.
    pub fn new(config: RotatingBloomConfig) -> Self {
        let blocks = config.blocks();
        let stride = stride(blocks);
        let counted = blocks.div_ceil(stride);
        let full_bits = ((counted as u64 * BLOCK_BITS) as f64 * config.fill_max).ceil() as u64;
        let period = rates::keys_per_block(config.fill_max);
        let clear_share = rates::fill(period * CLEAR_FROM) / config.fill_max;
        Self {
            config,
            generations: [Bloom::new(blocks), Bloom::new(blocks)],
            retired: Bloom::new(counted),
            epoch: AtomicU64::new(0),
            counted: [AtomicU64::new(0), AtomicU64::new(0)],
            claims: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
            counted_new: AtomicU64::new(0),
            counted_lost: AtomicU64::new(0),
            geometry: Geometry {
                stride,
                stride_log2: stride.ilog2(),
                regions: blocks.div_ceil(REGION_BLOCKS) as u64,
                clear_from_bits: ((full_bits as f64 * clear_share) as u64).min(full_bits - 1),
                full_bits,
            },
        }
    }

    /// Returns [`KeyStatus::Seen`] if the key was requested recently, and adds the key.
    #[inline]
    pub fn check_and_add(&self, key: KeyHash) -> KeyStatus {
        let epoch = self.epoch.load(Acquire);
        let probe = Probe::new(key);
        let [primary, secondary] = self.roles(epoch);
        let block = primary.block_of(&probe);
        let missing = primary.missing_at(block, &probe);
        if missing == [0, 0] {
            return KeyStatus::Seen;
        }
        let seen = secondary.contains_at(block, &probe);
        primary.add_at(block, &probe);
        if block & (self.geometry.stride - 1) == 0 {
            // Two threads that change the same word may both count a bit. This is rare, and the count is reset
            // with the period.
            let new_bits = missing.map(u64::count_ones).iter().sum();
            self.count(epoch, block, &probe, new_bits, seen);
        }
        if seen {
            KeyStatus::Seen
        } else {
            KeyStatus::New
        }
    }

    /// Returns true if the key was requested recently. Does not add the key.
    #[inline]
    pub fn contains(&self, key: KeyHash) -> bool {
        let probe = Probe::new(key);
        let [primary, secondary] = self.roles(self.epoch.load(Acquire));
        let block = primary.block_of(&probe);
        primary.contains_at(block, &probe) || secondary.contains_at(block, &probe)
    }

    /// The configuration.
    pub fn config(&self) -> &RotatingBloomConfig {
        &self.config
    }

    /// Returns fill and error rates.
    pub fn stats(&self) -> RotatingBloomStats {
        let epoch = self.epoch.load(Acquire);
        let counted_bits = (self.retired.blocks() as u64 * BLOCK_BITS) as f64;
        let fill = |generation: usize| {
            (bits_of(self.counted[generation].load(Relaxed)) as f64 / counted_bits).min(1.0)
        };
        let primary = (epoch & 1) as usize;
        let cleared = self.cleared.load(Relaxed).min(self.geometry.regions) as f64
            / self.geometry.regions as f64;
        let rate = |fill| rates::false_positives(rates::keys_per_block(fill));
        let (primary_fill, secondary_fill) = (fill(primary), fill(1 - primary));
        // The errors are independent, so the probability that both occur is subtracted.
        let (first, second) = (rate(primary_fill), rate(secondary_fill) * (1.0 - cleared));
        let counted = self.counted.iter().map(|counted| counted.load(Relaxed));
        let new = self.counted_new.load(Relaxed) + counted.map(new_keys_of).sum::<u64>();
        let lost = self.counted_lost.load(Relaxed);
        RotatingBloomStats {
            rotations: epoch,
            primary_fill,
            secondary_fill: secondary_fill * (1.0 - cleared),
            primary_keys: (rates::keys_per_block(primary_fill)
                * self.generations[0].blocks() as f64) as u64,
            false_positive_rate: first + second - first * second,
            forgotten_share: if new == 0 {
                0.0
            } else {
                lost as f64 / new as f64
            },
            memory_bytes: self.config.memory_bytes(),
        }
    }

    /// Returns the primary, then the secondary.
    #[inline]
    fn roles(&self, epoch: u64) -> [&Bloom; 2] {
        let [even, odd] = &self.generations;
        if epoch & 1 == 0 {
            [even, odd]
        } else {
            [odd, even]
        }
    }

    /// Counts a key that was added to a counted block of the primary.
    #[cold]
    fn count(&self, epoch: u64, block: usize, probe: &Probe, new_bits: u32, seen: bool) {
        let counted_block = block >> self.geometry.stride_log2;
        if !seen && self.retired.contains_at(counted_block, probe) {
            self.counted_lost.fetch_add(1, Relaxed);
        }
        let more = u64::from(new_bits) + if seen { 0 } else { NEW_KEY };
        let before = self.counted[(epoch & 1) as usize].fetch_add(more, Relaxed);
        let bits = bits_of(before + more);
        if bits >= self.geometry.clear_from_bits {
            self.advance_clearing(epoch, bits);
        }
    }

    /// Clears the secondary in proportion to the progress of `bits` from `clear_from_bits` to `full_bits`. `bits` is
    /// the number of set bits in the counted blocks of the primary. Rotates when the primary is full.
    fn advance_clearing(&self, epoch: u64, bits: u64) {
        let Geometry {
            regions,
            clear_from_bits,
            full_bits,
            ..
        } = self.geometry;
        let through = (bits - clear_from_bits).min(full_bits - clear_from_bits);
        // Up to 2^24 regions (`BLOCKS_MAX` / 16) times fewer than 2^32 bits: below 2^56.
        let due = (regions * through).div_ceil(full_bits - clear_from_bits);
        for _ in 0..STEPS_MAX {
            let Some(region) = self.claim(epoch, due) else {
                break;
            };
            self.clear_region(epoch, region);
            self.cleared.fetch_add(1, Release);
        }
        // A thread claims a region, clears it and counts it as cleared, in this order. When the count has reached
        // `regions`, no thread is clearing any more.
        if bits >= full_bits && self.cleared.load(Acquire) == regions {
            self.rotate(epoch);
        }
    }

    /// Claims the next region of this epoch, if it is below `due`.
    fn claim(&self, epoch: u64, due: u64) -> Option<u64> {
        let next = |claims: u64| {
            let (tag, region) = (claims >> 32, claims & u64::from(u32::MAX));
            (tag == epoch & u64::from(u32::MAX) && region < due).then_some(claims + 1)
        };
        let before = self.claims.fetch_update(AcqRel, Acquire, next).ok()?;
        Some(before & u64::from(u32::MAX))
    }

    fn clear_region(&self, epoch: u64, region: u64) {
        let [_, secondary] = self.roles(epoch);
        let first = region as usize * REGION_BLOCKS;
        let end = (first + REGION_BLOCKS).min(secondary.blocks());
        let stride = self.geometry.stride;
        for block in (first.next_multiple_of(stride)..end).step_by(stride) {
            self.retired.copy_block(block / stride, secondary, block);
        }
        secondary.clear(first..end);
    }

    /// Swaps the roles. One thread does this; other threads use the old roles until they see the new epoch.
    fn rotate(&self, epoch: u64) {
        let tag = |epoch: u64| (epoch & u64::from(u32::MAX)) << 32;
        let next = epoch.wrapping_add(1);
        let done = tag(epoch) | self.geometry.regions;
        if self
            .claims
            .compare_exchange(done, tag(next), AcqRel, Acquire)
            .is_err()
        {
            return;
        }
        // No thread claims or counts for the next epoch before it is published below.
        self.cleared.store(0, Relaxed);
        let ended = self.counted[(next & 1) as usize].swap(0, Relaxed);
        self.counted_new.fetch_add(new_keys_of(ended), Relaxed);
        self.epoch.store(next, Release);
    }
}

/// Used by `state` to save and restore.
impl RotatingBloom {
    pub(super) fn saved_epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    pub(super) fn generations(&self) -> &[Bloom; 2] {
        &self.generations
    }

    /// Continues from restored generations. Clearing starts again; cleared regions stay clear.
    pub(super) fn resume(&mut self, epoch: u64) {
        *self.epoch.get_mut() = epoch;
        *self.claims.get_mut() = (epoch & u64::from(u32::MAX)) << 32;
        *self.cleared.get_mut() = 0;
        for (counted, generation) in self.counted.iter_mut().zip(&self.generations) {
            // The bits are counted, because a count in the file could be wrong.
            *counted.get_mut() = generation.count_set_bits(self.geometry.stride);
        }
    }
}

/// The statistics of a [`RotatingBloom`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotatingBloomStats {
    /// The number of rotations.
    pub rotations: u64,
    /// The current share of set bits in the primary.
    pub primary_fill: f64,
    /// The current share of set bits in the secondary.
    pub secondary_fill: f64,
    /// Distinct keys in the primary, estimated from its fill.
    pub primary_keys: u64,
    /// The current probability that a new key is taken for a seen one, computed from the fill.
    pub false_positive_rate: f64,
    /// The share of keys reported as new that were in fact requested in the last forgotten period. Measured in
    /// the counted blocks since the start.
    pub forgotten_share: f64,
    /// The result of [`RotatingBloomConfig::memory_bytes`].
    pub memory_bytes: u64,
}

/// Returns the bits of a combined count of bits and keys.
fn bits_of(counted: u64) -> u64 {
    counted & u64::from(u32::MAX)
}

/// Returns the new keys of a combined count.
fn new_keys_of(counted: u64) -> u64 {
    counted >> NEW_KEY.ilog2()
}

/// Returns the rate of new keys taken for seen ones when clearing begins. `load` is the number of keys per
/// block at the end of a period.
fn worst_false_positive_rate(load: f64) -> f64 {
    let (secondary, primary) = (
        rates::false_positives(load),
        rates::false_positives(load * CLEAR_FROM),
    );
    secondary + primary - secondary * primary
}

/// Returns the stride of counted blocks, see [`Geometry`]. All blocks of a small filter are counted. In a large
/// filter at least 256 blocks (131 072 bits) are counted, which gives the fill to 0.3 %. At least one block in 64
/// is counted.
fn stride(blocks: usize) -> usize {
    let stride = (blocks / COUNTED_BLOCKS_MIN).clamp(1, STRIDE_MAX);
    1 << stride.ilog2()
}

/// The share of a period after which clearing begins.
const CLEAR_FROM: f64 = 7.0 / 8.0;

/// Blocks cleared at a time: 16 cache lines, 1 KiB.
const REGION_BLOCKS: usize = 16;

/// The maximum number of regions that one add clears: 64 KiB, about two microseconds.
const STEPS_MAX: usize = 64;

const COUNTED_BLOCKS_MIN: usize = 256;

const STRIDE_MAX: usize = 64;

/// One new key in a combined count: the lower half of the count has the bits.
const NEW_KEY: u64 = 1 << 32;

/// 2^28 blocks of 64 bytes: 16 GiB per filter, ten billion keys. A filter for more keys has this size, and
/// therefore rotates before it has the expected number of keys.
pub(super) const BLOCKS_MAX: usize = 1 << 28;

// The number of set bits fits in the lower half of a combined count: one block in 64 is counted in the largest filter.
const _: () = assert!((BLOCKS_MAX / STRIDE_MAX) as u64 * BLOCK_BITS < NEW_KEY);

// Region numbers have 32 bits.
const _: () = assert!(BLOCKS_MAX / REGION_BLOCKS < u32::MAX as usize);

#[cfg(test)]
mod tests;
