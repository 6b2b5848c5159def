//! Solving a shard's equations by peeling.
//!
//! A slot that only one id uses can satisfy that id whatever the other slots hold. So such an id is
//! put on a pile and taken out of its other slots, which may leave further slots with one id, and so
//! on. When all ids are on the pile, slots are filled from its top: each id finds three of its slots
//! settled and one that is its own.
//!
//! Ids are dealt to segments first, so that adding them walks through the tables instead of jumping.

use super::shape::{ARITY, Shape, Width, mix};

/// A solved shard: its shape, the seed that worked, and its slots.
#[derive(Clone, Debug)]
pub(crate) struct Solved {
    pub(crate) shape: Shape,
    pub(crate) seed: u64,
    /// Distinct ids.
    pub(crate) ids: usize,
    pub(crate) area: Vec<u8>,
}

/// Why a shard could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildError {
    /// No seed worked. One in ten first attempts fails and each later one has more room, so that
    /// chance does not do this; ids chosen by somebody who computed their hashes could.
    Unsolvable,
}

/// Builds a shard from hashes, among which there may be duplicates.
///
/// The order of the hashes does not matter for the rate, but it does for which of many equal
/// solutions is found; `seed` begins the attempts.
pub(crate) fn build(hashes: &mut Vec<u64>, width: Width, seed: u64) -> Result<Solved, BuildError> {
    let mut room = Room::default();
    let mut distinct = false;
    for attempt in 0..ATTEMPTS_MAX {
        let shape = Shape::for_ids(hashes.len(), width, attempt / 2);
        let attempt_seed = mix(u64::from(attempt), seed);
        if room.peel(hashes, shape, attempt_seed) {
            return Ok(Solved {
                area: room.fill(shape),
                shape,
                seed: attempt_seed,
                ids: hashes.len(),
            });
        }
        if !distinct {
            // Two equal hashes share all slots and are never peeled. Looking for them costs a
            // third of an attempt, so it waits until one failed.
            hashes.sort_unstable();
            hashes.dedup();
            distinct = true;
        }
    }
    Err(BuildError::Unsolvable)
}

/// Tables that attempts share.
#[derive(Default)]
struct Room {
    /// Mixed hashes, dealt to the segments of their first slots.
    dealt: Vec<u64>,
    /// For each slot the XOR of the mixed hashes that use it.
    sums: Vec<u64>,
    /// For each slot how many use it, times four, and the XOR of which of their slots it is.
    uses: Vec<u8>,
    /// The ids in the order in which they were peeled, and which of its slots each owns.
    pile: Vec<u64>,
    owned: Vec<u8>,
}

impl Room {
    /// Piles up all ids, if it can.
    fn peel(&mut self, hashes: &[u64], shape: Shape, seed: u64) -> bool {
        let slots = shape.slots() as usize;
        self.deal(hashes, shape, seed);
        reset(&mut self.sums, slots, 0);
        reset(&mut self.uses, slots, 0);
        for &mixed in &self.dealt {
            for (n, slot) in shape.probe(mixed).slots.into_iter().enumerate() {
                let slot = slot as usize;
                let uses = &mut self.uses[slot];
                if *uses >= USES_MAX {
                    // Four ids a slot are usual, 63 only ever come from duplicates.
                    return false;
                }
                *uses = (*uses + 4) ^ n as u8;
                self.sums[slot] ^= mixed;
            }
        }
        self.pile.clear();
        self.pile.reserve(hashes.len());
        self.owned.clear();
        self.owned.reserve(hashes.len());
        let mut alone: Vec<u32> = Vec::with_capacity(1024);
        for slot in 0..slots {
            if self.uses[slot] >> 2 == 1 {
                alone.push(slot as u32);
                self.follow(&mut alone, shape);
            }
        }
        self.pile.len() == hashes.len()
    }

    /// Peels from the slots in `alone` until none is left.
    fn follow(&mut self, alone: &mut Vec<u32>, shape: Shape) {
        while let Some(slot) = alone.pop() {
            let uses = self.uses[slot as usize];
            if uses >> 2 != 1 {
                // Its id was peeled from another slot meanwhile.
                continue;
            }
            let own = uses & 3;
            let mixed = self.sums[slot as usize];
            self.pile.push(mixed);
            self.owned.push(own);
            self.uses[slot as usize] = 0;
            for (n, other) in shape.probe(mixed).slots.into_iter().enumerate() {
                if n as u8 == own {
                    continue;
                }
                let uses = &mut self.uses[other as usize];
                *uses = (*uses - 4) ^ n as u8;
                self.sums[other as usize] ^= mixed;
                if *uses >> 2 == 1 {
                    alone.push(other);
                }
            }
        }
    }

    /// Writes the mixed hashes to `dealt`, by segment.
    fn deal(&mut self, hashes: &[u64], shape: Shape, seed: u64) {
        let segment = |mixed: u64| {
            (((mixed >> 32) * u64::from(shape.starts())) >> (32 + shape.segment_log2)) as usize
        };
        let mut next = vec![0u32; shape.start_segments as usize + 1];
        for &hash in hashes {
            next[segment(mix(hash, seed)) + 1] += 1;
        }
        for n in 1..next.len() {
            next[n] += next[n - 1];
        }
        reset(&mut self.dealt, hashes.len(), 0);
        for &hash in hashes {
            let mixed = mix(hash, seed);
            let place = &mut next[segment(mixed)];
            self.dealt[*place as usize] = mixed;
            *place += 1;
        }
    }

    /// Settles all slots from the top of the pile, and packs them.
    fn fill(&mut self, shape: Shape) -> Vec<u8> {
        let slots = shape.slots() as usize;
        // The sums are all zero now; their room is used again.
        reset(&mut self.sums, slots, 0);
        for (&mixed, &own) in self.pile.iter().zip(&self.owned).rev() {
            let probe = shape.probe(mixed);
            let settled = probe.slots.map(|slot| self.sums[slot as usize]);
            // Its own slot is still zero: nobody on top of the pile owns it.
            let value = probe.fingerprint ^ settled[0] ^ settled[1] ^ settled[2] ^ settled[3];
            self.sums[probe.slots[usize::from(own) % ARITY] as usize] = value & probe.mask;
        }
        let mut area = Vec::with_capacity(shape.bytes() as usize);
        let (mut word, mut filled) = (0u64, 0u32);
        for (slot, &value) in self.sums.iter().enumerate() {
            let bits = u32::from(shape.bits) + u32::from(slot >= shape.wide_from as usize);
            word |= value << filled;
            filled += bits;
            // At most 31 bits stayed and at most 33 came.
            if filled >= 32 {
                area.extend_from_slice(&(word as u32).to_le_bytes());
                word >>= 32;
                filled -= 32;
            }
        }
        area.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8) as usize]);
        area.resize(shape.bytes() as usize, 0);
        area
    }
}

fn reset<T: Clone>(table: &mut Vec<T>, len: usize, value: T) {
    table.clear();
    table.resize(len, value);
}

/// More than chance ever needs.
const ATTEMPTS_MAX: u32 = 64;

/// What fits into six bits, less one.
const USES_MAX: u8 = 62 << 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rate::Rate;

    fn width(share: f64) -> Width {
        Width::for_rate(Rate::new(share).expect("a rate"))
    }

    fn hashes(count: u64, seed: u64) -> Vec<u64> {
        // No two seeds below 2^24 share a hash.
        (0..count).map(|n| mix(n + (seed << 40), 0)).collect()
    }

    impl Solved {
        fn has(&self, hash: u64) -> bool {
            self.shape.matches(mix(hash, self.seed), &self.area)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// No id of the set is ever called absent, duplicates or not, at any rate.
        #[test]
        fn every_id_is_found(
            count in 1u64..3_000, twice: bool, share in 3e-10f64..0.5, seed in 0u64..1 << 24,
        ) {
            let mut all = hashes(count, seed);
            let ids = all.clone();
            if twice {
                all.extend_from_slice(&ids);
            }
            let solved = build(&mut all, width(share), seed).expect("solvable");
            prop_assert_eq!(solved.ids, ids.len());
            for id in ids {
                prop_assert!(solved.has(id));
            }
        }
    }

    #[test]
    fn a_thousand_copies_of_one_id_are_one() {
        let solved = build(&mut vec![7; 1000], width(0.01), 0).expect("solvable");
        assert_eq!(solved.ids, 1);
        assert!(solved.has(7));
    }

    /// The measured rate is the stated one, which is at most what was asked for.
    #[test]
    fn absent_ids_pass_at_the_stated_rate() {
        for share in [0.4, 0.1, 0.03, 0.01] {
            let solved = build(&mut hashes(20_000, 1), width(share), 3).expect("solvable");
            let probes = 400_000;
            let passed = hashes(probes, 2).into_iter().filter(|&h| solved.has(h));
            let measured = passed.count() as f64 / probes as f64;
            let stated = solved.shape.rate();
            assert!(
                stated <= share && stated > share * 0.98,
                "{share}: {stated}"
            );
            // Five standard deviations.
            let deviation = (stated / probes as f64).sqrt();
            assert!(
                (measured - stated).abs() < 5.0 * deviation,
                "{share}: {measured}"
            );
        }
    }

    /// At each size the first attempt nearly always does, as the table of classes promises.
    ///
    /// With `EDGEWARD_LONG_TESTS` up to a million ids, a minute in release: how that table was measured.
    #[test]
    fn nine_of_ten_first_attempts_come_out() {
        let mut room = Room::default();
        let mut poor = Vec::new();
        let sizes = (0..20).flat_map(|log2| [1usize << log2, (2 << log2) - 1, 3 << log2]);
        let (ids_max, work) = match std::env::var_os("EDGEWARD_LONG_TESTS") {
            Some(_) => (1 << 20, 10_000_000),
            None => (1 << 12, 100_000),
        };
        for ids in sizes.filter(|&ids| ids < ids_max) {
            let all = hashes(ids as u64, 11);
            let shape = Shape::for_ids(ids, width(0.01), 0);
            let runs = (work / ids as u64).clamp(20, 1_000);
            let good = (0..runs).filter(|&seed| room.peel(&all, shape, mix(seed, 5)));
            let share = good.count() as f64 / runs as f64;
            eprintln!(
                "{ids} ids: {share:.3}, {:.4} slots an id",
                f64::from(shape.slots()) / ids as f64
            );
            poor.extend((share < 0.9).then_some((ids, share)));
        }
        assert!(poor.is_empty(), "{poor:?}");
    }
}
