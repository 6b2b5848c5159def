//! "Was this asked for before, lately?": two Bloom filters that take turns.
//!
//! New keys go into the primary; a lookup asks both. When the primary is full it becomes the secondary, and the
//! old secondary, cleared, takes over as primary. So a key is remembered for between one and two *periods*,
//! a period being the time in which so many distinct keys come by as the filter was sized for. A key that is asked
//! for again while only the secondary knows it is added to the primary and lives on.
//!
//! **Full** means: this share of the primary's bits is set ([`RotatingBloomConfig::fill_max`]). Bits and not
//! keys, because it is the bits that make a filter err, and because they can be counted: adding a key tells how many
//! it set. Only one block in up to 64 is counted, so that the counter is no place where cores meet.
//!
//! **Clearing** a large filter at once would keep one request waiting for tens of milliseconds. The
//! secondary is cleared in steps of a kilobyte by those who add keys, over the last eighth of the period.
//! A key is thus remembered for seven eighths of a period at the least.
//!
//! **Two errors**, both in [`RotatingBloomStats`]. A key nobody asked for looks as if somebody had: its rate follows
//! from the fill. A key that was asked for has been forgotten by rotation: of the blocks that are counted, the
//! generation cleared last is kept, and a first request that it remembers is one such loss. It sees one more period
//! back, no further.
//!
//! **Concurrency**: no lock, shared access. The roles are one number, the epoch. The thread whose add finds the
//! primary full and the secondary clear moves it on; a thread that is still adding under the former roles adds to what is
//! now the secondary, where its key is remembered all the same.
//!
//! Source for the scheme: Maggs and Sitaraman, "Algorithmic Nuggets in Content Delivery", CCR 2015, section 4.

use std::num::NonZeroU64;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use edgeward_types::KeyHash;

use super::bloom::{BLOCK_BITS, Bloom, Probe};
use super::rates;

/// How much to remember and how sure to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotatingBloomConfig {
    /// Distinct keys a period.
    pub expected_keys: NonZeroU64,
    /// The share of the primary's bits at which it is full, above 0 and at most 0.9.
    pub fill_max: f64,
}

impl RotatingBloomConfig {
    /// So many distinct keys a period, and at no time more than `false_seen_max` of the new keys taken for seen.
    ///
    /// The worst moment is when clearing begins: the secondary whole, the primary at seven eighths. Rates below
    /// 1e-7 and above 0.5 are taken as these.
    pub fn new(expected_keys: NonZeroU64, false_seen_max: f64) -> Self {
        let rate_max = false_seen_max.clamp(1e-7, 0.5);
        let load = rates::keys_per_block_at(rate_max, worst_false_seen);
        Self {
            expected_keys,
            fill_max: rates::fill(load),
        }
    }

    /// Rotates at this share of bits. The size follows: it is what `expected_keys` fill that far.
    pub fn with_fill_max(expected_keys: NonZeroU64, fill_max: f64) -> Self {
        Self {
            expected_keys,
            fill_max: fill_max.clamp(0.01, 0.9),
        }
    }

    /// The highest rate of new keys taken for seen that this leads to.
    pub fn false_seen_max(&self) -> f64 {
        worst_false_seen(rates::keys_per_block(self.fill_max))
    }

    /// Blocks of 64 bytes each of the two filters has.
    pub fn blocks(&self) -> usize {
        let blocks = self.expected_keys.get() as f64 / rates::keys_per_block(self.fill_max);
        (blocks.ceil() as usize).clamp(1, BLOCKS_MAX)
    }

    /// Memory for both filters and the counted part of a third.
    pub fn memory_bytes(&self) -> u64 {
        let blocks = self.blocks();
        (2 * blocks + blocks.div_ceil(stride(blocks))) as u64 * BLOCK_BITS / 8
    }
}

/// The answer to "before?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Asked for within the last two periods, or it looks so.
    Before,
    /// Not since the period before the last began.
    New,
}

/// A memory of recent keys.
#[derive(Debug)]
pub struct RotatingBloom {
    config: RotatingBloomConfig,
    generations: [Bloom; 2],
    /// The counted blocks of the generation that was cleared last.
    retired: Bloom,
    /// Rotations so far. The generation of its parity is the primary.
    epoch: AtomicU64,
    /// Of the counted blocks of each generation: the bits set, and in the upper half the new keys since it was cleared. Both
    /// in one number, so that a key has one to add to.
    counted: [AtomicU64; 2],
    /// Clearing of the secondary: the epoch (its low 32 bits) above the next region to be cleared. A claim made
    /// for a past epoch fails, so that a thread that slept through a rotation clears nothing.
    claims: AtomicU64,
    /// Regions cleared in this epoch.
    cleared: AtomicU64,
    /// New keys in counted blocks before, and how many of all had been forgotten.
    counted_new: AtomicU64,
    counted_lost: AtomicU64,
    geometry: Geometry,
}

/// What follows from the configuration once and for all.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    /// One block in so many is counted; a power of two, and its logarithm.
    stride: usize,
    stride_log2: u32,
    /// Regions of [`REGION_BLOCKS`] blocks.
    regions: u64,
    /// Counted bits at which clearing begins, and at which the primary is full.
    clear_from: u64,
    full_at: u64,
}

impl RotatingBloom {
    /// Remembers nothing yet.
    pub fn new(config: RotatingBloomConfig) -> Self {
        let blocks = config.blocks();
        let stride = stride(blocks);
        let counted = blocks.div_ceil(stride);
        let full_at = ((counted as u64 * BLOCK_BITS) as f64 * config.fill_max).ceil() as u64;
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
                clear_from: ((full_at as f64 * clear_share) as u64).min(full_at - 1),
                full_at,
            },
        }
    }

    /// Whether the key was seen, and remembers it from now on.
    #[inline]
    pub fn check_and_add(&self, key: KeyHash) -> Seen {
        let epoch = self.epoch.load(Acquire);
        let probe = Probe::of(key);
        let [primary, secondary] = self.roles(epoch);
        let block = primary.block_of(&probe);
        let missing = primary.missing_at(block, &probe);
        if missing == [0, 0] {
            return Seen::Before;
        }
        let seen = secondary.contains_at(block, &probe);
        primary.add_at(block, &probe);
        if block & (self.geometry.stride - 1) == 0 {
            // Threads that meet in a word may both count a bit. That is rare, and forgotten with the period.
            let new_bits = missing.map(u64::count_ones).iter().sum();
            self.count(epoch, block, &probe, new_bits, seen);
        }
        if seen { Seen::Before } else { Seen::New }
    }

    /// Whether the key was seen. Remembers nothing.
    #[inline]
    pub fn contains(&self, key: KeyHash) -> bool {
        let probe = Probe::of(key);
        let [primary, secondary] = self.roles(self.epoch.load(Acquire));
        let block = primary.block_of(&probe);
        primary.contains_at(block, &probe) || secondary.contains_at(block, &probe)
    }

    /// What it was made from.
    pub fn config(&self) -> &RotatingBloomConfig {
        &self.config
    }

    /// How full it is and how often it errs.
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
        // Independent but for the chance that both err.
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
            false_seen: first + second - first * second,
            lost_seen: if new == 0 {
                0.0
            } else {
                lost as f64 / new as f64
            },
            memory_bytes: self.config.memory_bytes(),
        }
    }

    /// Primary, then secondary.
    #[inline]
    fn roles(&self, epoch: u64) -> [&Bloom; 2] {
        let [even, odd] = &self.generations;
        if epoch & 1 == 0 {
            [even, odd]
        } else {
            [odd, even]
        }
    }

    /// A key went into a counted block of the primary.
    #[cold]
    fn count(&self, epoch: u64, block: usize, probe: &Probe, new_bits: u32, seen: bool) {
        let counted_block = block >> self.geometry.stride_log2;
        if !seen && self.retired.contains_at(counted_block, probe) {
            self.counted_lost.fetch_add(1, Relaxed);
        }
        let more = u64::from(new_bits) + if seen { 0 } else { NEW_KEY };
        let before = self.counted[(epoch & 1) as usize].fetch_add(more, Relaxed);
        let bits = bits_of(before + more);
        if bits >= self.geometry.clear_from {
            self.move_on(epoch, bits);
        }
    }

    /// The primary nears its end: clears the share of the secondary that is due, and rotates when it is time.
    fn move_on(&self, epoch: u64, bits: u64) {
        let Geometry {
            regions,
            clear_from,
            full_at,
            ..
        } = self.geometry;
        let through = (bits - clear_from).min(full_at - clear_from);
        // Regions up to 2^26 (`BLOCKS_MAX` / 16) times bits up to 2^35: below 2^64.
        let due = (regions * through).div_ceil(full_at - clear_from);
        for _ in 0..STEPS_MAX {
            let Some(region) = self.claim(epoch, due) else {
                break;
            };
            self.clear_region(epoch, region);
            self.cleared.fetch_add(1, Release);
        }
        // Once all are cleared nobody is at it any more: a claim precedes its clearing and its count.
        if bits >= full_at && self.cleared.load(Acquire) == regions {
            self.rotate(epoch);
        }
    }

    /// The next region of this epoch to be cleared, if it is below `due`.
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

    /// Exchanges the roles. One thread does it; others go on in the former roles until they see it.
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
        // Nobody claims or counts for the next epoch before it is published below.
        self.cleared.store(0, Relaxed);
        let ended = self.counted[(next & 1) as usize].swap(0, Relaxed);
        self.counted_new.fetch_add(new_keys_of(ended), Relaxed);
        self.epoch.store(next, Release);
    }
}

/// For `state`, which saves and restores.
impl RotatingBloom {
    pub(super) fn saved_epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    pub(super) fn generations(&self) -> &[Bloom; 2] {
        &self.generations
    }

    /// Goes on from saved generations. Clearing, if it had begun, begins again: what is clear stays so.
    pub(super) fn resume(&mut self, epoch: u64) {
        *self.epoch.get_mut() = epoch;
        *self.claims.get_mut() = (epoch & u64::from(u32::MAX)) << 32;
        *self.cleared.get_mut() = 0;
        for (counted, generation) in self.counted.iter_mut().zip(&self.generations) {
            // Counted anew: what the counters said is not worth trusting a file for.
            *counted.get_mut() = generation.set_bits(self.geometry.stride);
        }
    }
}

/// What a [`RotatingBloom`] has been doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotatingBloomStats {
    /// Times the roles were exchanged.
    pub rotations: u64,
    /// The share of bits set in the primary, now.
    pub primary_fill: f64,
    /// The share of bits set in the secondary, now.
    pub secondary_fill: f64,
    /// Distinct keys in the primary, estimated from its fill.
    pub primary_keys: u64,
    /// The probability that a new key is taken for one that was seen, now; from the fill.
    pub false_seen: f64,
    /// Of the keys taken for new, the share that had been seen a period earlier than is remembered. Counted
    /// on the sampled blocks since the start.
    pub lost_seen: f64,
    /// Bytes of bits.
    pub memory_bytes: u64,
}

/// Of a number that counts bits and keys, the bits.
fn bits_of(counted: u64) -> u64 {
    counted & u64::from(u32::MAX)
}

/// And the new keys.
fn new_keys_of(counted: u64) -> u64 {
    counted >> NEW_KEY.ilog2()
}

/// The rate of new keys taken for seen when clearing begins, with so many keys a block at the end of a period.
fn worst_false_seen(load: f64) -> f64 {
    let (whole, nearly) = (
        rates::false_positives(load),
        rates::false_positives(load * CLEAR_FROM),
    );
    whole + nearly - whole * nearly
}

/// One block in so many is counted: all of a small filter; of a large one at least 256 blocks, 131 072 bits, from
/// which the fill is known to a third of a percent, and no more than one in 64.
fn stride(blocks: usize) -> usize {
    let stride = (blocks / COUNTED_BLOCKS_MIN).clamp(1, STRIDE_MAX);
    1 << stride.ilog2()
}

/// The share of a period after which clearing begins.
const CLEAR_FROM: f64 = 7.0 / 8.0;

/// Blocks cleared at a time: 16 lines, 1 KiB.
const REGION_BLOCKS: usize = 16;

/// Regions one add clears at the most, 64 KiB: some two microseconds.
const STEPS_MAX: usize = 64;

const COUNTED_BLOCKS_MIN: usize = 256;

const STRIDE_MAX: usize = 64;

/// One new key, above all bits there are in counted blocks.
const NEW_KEY: u64 = 1 << 32;

/// 2^28 blocks of 64 bytes, 16 GiB a filter: ten billion keys. More is a slip of the pen.
pub(super) const BLOCKS_MAX: usize = 1 << 28;

// Where blocks are that many one in 64 is counted, and a key sets at most eight bits.
const _: () = assert!((BLOCKS_MAX / STRIDE_MAX) as u64 * BLOCK_BITS < NEW_KEY);

// Regions are numbered with 32 bits.
const _: () = assert!(BLOCKS_MAX / REGION_BLOCKS < u32::MAX as usize);

#[cfg(test)]
mod tests;
