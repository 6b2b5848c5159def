//! Solves the equations of a shard by peeling: the XOR of an id's four slots must equal the id's fingerprint.
//!
//! A slot that only one id uses can satisfy this id, whatever the other slots contain. Peeling appends this
//! slot to a list and removes the id from its other slots. Each removal may leave further slots with one id.
//! After all ids are removed, the slots are assigned in reverse order of the list. The slot from which an id was
//! peeled is then still free, so its value can satisfy the id's equation.
//!
//! Ids are first sorted by the segment (a range of slots) of their first slot, so that adding them accesses the tables
//! in order. Peeling works in rounds: the slots of a round are known before the round begins, so a CPU can process
//! several ids at once. With a stack the CPU would finish each id before it could start the next.
//!
//! The first access to fresh memory costs a third of the total time with pages of 4 KiB. The code therefore
//! uses little memory: a removed id stays in the XOR sum of the slot from which it was peeled, and the array of use
//! counts later holds the slot values. The tables share one allocation that is reused for all shards. The
//! caller may provide this memory, for example with larger pages.

use std::fmt;

use super::shape::{ARITY, Shape, Width, mix};

/// A solved shard: its shape, the seed of the successful attempt, and its slots.
#[derive(Clone, Debug)]
pub(crate) struct Solved {
    pub(crate) shape: Shape,
    pub(crate) seed: u64,
    /// The number of distinct ids.
    pub(crate) ids: usize,
    /// The packed slot values.
    pub(crate) area: Vec<u8>,
}

/// Why a shard could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildError {
    /// All 64 attempts failed. The first attempt fails about one time in ten. After every two attempts, slots are
    /// added. With random ids 64 failures practically never happen; an attacker who computes hashes can choose ids
    /// that cause them.
    Unsolvable,
}

/// Builds a shard from lists of id hashes (`pieces`), which may contain duplicates. `width` is the width of a slot.
///
/// The order of the hashes does not affect the false-positive rate, but it selects one of many equivalent solutions.
/// The seeds of all attempts are derived from `seed`.
pub(crate) fn build(
    workspace: &mut Workspace,
    mut pieces: Vec<Vec<u64>>,
    width: Width,
    seed: u64,
) -> Result<Solved, BuildError> {
    let mut ids = pieces.iter().map(Vec::len).sum();
    let mut are_distinct = false;
    for attempt in 0..ATTEMPTS_MAX {
        let shape = Shape::for_ids(ids, width, attempt / 2);
        let attempt_seed = mix(u64::from(attempt), seed);
        let mut tables = workspace.tables(ids, shape);
        if tables.peel(&pieces, shape, attempt_seed) {
            return Ok(Solved {
                area: tables.fill(shape),
                shape,
                seed: attempt_seed,
                ids,
            });
        }
        if !are_distinct {
            // Two equal hashes share all slots, so neither is ever peeled. Removing duplicates takes a third of the
            // time of an attempt, so the code removes them only after an attempt failed.
            let mut hashes = pieces.concat();
            hashes.sort_unstable();
            hashes.dedup();
            ids = hashes.len();
            pieces = vec![hashes];
            are_distinct = true;
        }
    }
    Err(BuildError::Unsolvable)
}

/// Memory that attempts and shards reuse.
#[derive(Default)]
pub(crate) struct Workspace {
    provided: Option<Box<dyn AsMut<[u8]> + Send>>,
    /// Used if the caller provided no memory, or too little.
    own_memory: Vec<u8>,
    /// The slots with one id: those of this round and those of the next.
    rounds: [Vec<u32>; 2],
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").finish_non_exhaustive()
    }
}

impl Workspace {
    /// Uses memory that the caller provides.
    pub(crate) fn within(memory: Box<dyn AsMut<[u8]> + Send>) -> Self {
        Self {
            provided: Some(memory),
            ..Self::default()
        }
    }

    /// Returns empty tables for `ids` ids.
    fn tables(&mut self, ids: usize, shape: Shape) -> Tables<'_> {
        let slots = shape.slots() as usize;
        let bytes = ids * (WORD + NUMBER) + slots * (WORD + 1);
        let provided = self.provided.as_mut().map(|provided| (**provided).as_mut());
        let (memory, is_fresh) = match provided.filter(|provided| provided.len() >= bytes) {
            Some(provided) => (provided, false),
            None => {
                // `vec![0; n]` requests zeroed pages from the system, which need no further clearing.
                let is_fresh = self.own_memory.len() < bytes;
                if is_fresh {
                    self.own_memory = vec![0; bytes];
                }
                (&mut self.own_memory[..], is_fresh)
            }
        };
        let (sorted, memory) = memory.split_at_mut(ids * WORD);
        let (sums, memory) = memory.split_at_mut(slots * WORD);
        let (order, memory) = memory.split_at_mut(ids * NUMBER);
        let uses = &mut memory[..slots];
        if !is_fresh {
            sums.fill(0);
            uses.fill(0);
        }
        Tables {
            sorted: sorted.as_chunks_mut().0,
            sums: sums.as_chunks_mut().0,
            order: order.as_chunks_mut().0,
            uses,
            rounds: &mut self.rounds,
        }
    }
}

/// The tables in which a shard is solved. Numbers are stored as bytes, because provided memory is a byte slice.
///
/// [`Shape::probe`] returns the four slots of a mixed hash, the fingerprint, and a mask of the bits that a slot stores.
struct Tables<'a> {
    /// The mixed hashes (the id hashes after [`mix`] with the seed), sorted by the segment of their first slot.
    sorted: &'a mut [[u8; WORD]],
    /// For each slot the XOR of the mixed hashes that use it. After an id was peeled from the slot: the mixed
    /// hash of this id.
    sums: &'a mut [[u8; WORD]],
    /// The slots from which an id was peeled, in this order.
    order: &'a mut [[u8; NUMBER]],
    /// For each slot the number of ids that use it. Later, if one byte suffices, the slot's value.
    uses: &'a mut [u8],
    rounds: &'a mut [Vec<u32>; 2],
}

impl Tables<'_> {
    /// Adds all ids and peels them. Returns true if every id was peeled.
    fn peel(&mut self, pieces: &[Vec<u64>], shape: Shape, seed: u64) -> bool {
        self.sort_by_segment(pieces, shape, seed);
        let slots = self.uses.len();
        let sums = &mut self.sums[..slots];
        let mut most_uses = 0;
        for &mixed in &*self.sorted {
            let mixed = u64::from_le_bytes(mixed);
            for slot in shape.probe(mixed).slots {
                let slot = slot as usize;
                let count = self.uses[slot].wrapping_add(1);
                self.uses[slot] = count;
                xor_into(&mut sums[slot], mixed);
                most_uses = most_uses.max(count);
            }
        }
        // A slot has about four ids on average. Only duplicates can make a count reach 255, where it may overflow.
        most_uses < u8::MAX && self.peel_all(shape) == self.sorted.len()
    }

    /// Peels until no slot with one id is left. Returns the number of peeled ids.
    ///
    /// The loop has no branches that a CPU would mispredict. It updates all four slots of an id alike, also the
    /// slot from which the id is peeled. It writes each updated slot to the list of the next round, and advances
    /// the list's length only if one id is left in the slot.
    fn peel_all(&mut self, shape: Shape) -> usize {
        let uses = &mut *self.uses;
        let slots = uses.len();
        let sums = &mut self.sums[..slots];
        let [current, next] = &mut *self.rounds;
        let segment = 1 << shape.segment_log2;
        let mut peeled = 0;
        for begin in (0..slots).step_by(segment) {
            extend_to(current, segment);
            let mut current_len = 0;
            for (slot, uses) in (begin as u32..).zip(&uses[begin..begin + segment]) {
                current[current_len] = slot;
                current_len += usize::from(*uses == 1);
            }
            while current_len > 0 {
                extend_to(next, ARITY * current_len);
                let mut next_len = 0;
                for &slot in &current[..current_len] {
                    let peeled_slot = slot as usize;
                    if uses[peeled_slot] != 1 {
                        // The id of this slot was peeled from another slot earlier in this round.
                        continue;
                    }
                    let mixed = u64::from_le_bytes(sums[peeled_slot]);
                    self.order[peeled] = slot.to_le_bytes();
                    peeled += 1;
                    for other in shape.probe(mixed).slots {
                        let at = other as usize;
                        let left = uses[at].wrapping_sub(1);
                        uses[at] = left;
                        xor_into(&mut sums[at], mixed);
                        next[next_len] = other;
                        next_len += usize::from(left == 1);
                    }
                    // No other id uses this slot any more.
                    sums[peeled_slot] = mixed.to_le_bytes();
                }
                std::mem::swap(current, next);
                current_len = next_len;
            }
        }
        peeled
    }

    /// Writes the mixed hashes to `sorted`, sorted by segment.
    fn sort_by_segment(&mut self, pieces: &[Vec<u64>], shape: Shape, seed: u64) {
        let segment = |mixed: u64| {
            (((mixed >> 32) * u64::from(shape.first_slots())) >> (32 + shape.segment_log2)) as usize
        };
        let mut next = vec![0u32; shape.start_segments as usize + 1];
        for &hash in pieces.iter().flatten() {
            next[segment(mix(hash, seed)) + 1] += 1;
        }
        for n in 1..next.len() {
            next[n] += next[n - 1];
        }
        for piece in pieces {
            for &hash in piece {
                let mixed = mix(hash, seed);
                let position = &mut next[segment(mixed)];
                self.sorted[*position as usize] = mixed.to_le_bytes();
                *position += 1;
            }
        }
    }

    /// Assigns all slots in reverse order of peeling, and packs them.
    fn fill(&mut self, shape: Shape) -> Vec<u8> {
        let slots = self.uses.len();
        // The smallest type for the values lets the most slots fit into the cache.
        match shape.bits + u8::from(shape.first_wide_slot < shape.slots()) {
            // After peeling, no id uses any slot: all counts are zero.
            0..=8 => assign(self.sums, self.order, self.uses, shape),
            9..=16 => assign(self.sums, self.order, &mut vec![0u16; slots], shape),
            _ => assign(self.sums, self.order, &mut vec![0u64; slots], shape),
        }
    }
}

fn xor_into(sum: &mut [u8; WORD], mixed: u64) {
    *sum = (u64::from_le_bytes(*sum) ^ mixed).to_le_bytes();
}

fn assign<T: Value>(
    sums: &[[u8; WORD]],
    order: &[[u8; NUMBER]],
    values: &mut [T],
    shape: Shape,
) -> Vec<u8> {
    for &peeled_slot in order.iter().rev() {
        let peeled_slot = u32::from_le_bytes(peeled_slot) as usize;
        let probe = shape.probe(u64::from_le_bytes(sums[peeled_slot]));
        let assigned = probe.slots.map(|slot| values[slot as usize].get());
        // The slot from which the id was peeled is still zero, because no id assigned so far was peeled from it.
        let value = probe.fingerprint ^ assigned[0] ^ assigned[1] ^ assigned[2] ^ assigned[3];
        values[peeled_slot] = T::from_u64(value & probe.mask);
    }
    pack(values, shape)
}

/// Packs the slot values into consecutive bits. Slots from `first_wide_slot` on are wide: they have one more bit.
fn pack<T: Value>(values: &[T], shape: Shape) -> Vec<u8> {
    let mut area = Vec::with_capacity(shape.bytes() as usize);
    let (mut word, mut filled) = (0u64, 0u32);
    let (narrow, wide) = values.split_at(shape.first_wide_slot as usize);
    let bits = u32::from(shape.bits);
    for (values, bits) in [(narrow, bits), (wide, bits + 1)] {
        for &value in values {
            word |= value.get() << filled;
            filled += bits;
            // At most 31 bits were left over and at most 33 were added.
            if filled >= 32 {
                area.extend_from_slice(&(word as u32).to_le_bytes());
                word >>= 32;
                filled -= 32;
            }
        }
    }
    area.extend_from_slice(&word.to_le_bytes()[..filled.div_ceil(8) as usize]);
    area.resize(shape.bytes() as usize, 0);
    area
}

/// The integer type in which slot values are computed.
trait Value: Copy {
    /// Converts a number that fits.
    fn from_u64(value: u64) -> Self;

    fn get(self) -> u64;
}

impl Value for u8 {
    fn from_u64(value: u64) -> Self {
        value as Self
    }

    fn get(self) -> u64 {
        u64::from(self)
    }
}

impl Value for u16 {
    fn from_u64(value: u64) -> Self {
        value as Self
    }

    fn get(self) -> u64 {
        u64::from(self)
    }
}

impl Value for u64 {
    fn from_u64(value: u64) -> Self {
        value
    }

    fn get(self) -> u64 {
        self
    }
}

/// Extends a list to at least `len` elements of any value.
fn extend_to(list: &mut Vec<u32>, len: usize) {
    if list.len() < len {
        list.resize(len, 0);
    }
}

/// The size of a hash in bytes.
const WORD: usize = 8;

/// The size of a slot's index in bytes.
const NUMBER: usize = 4;

/// The largest number of attempts. With random ids, this many attempts practically never fail.
const ATTEMPTS_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rate::Rate;

    fn width(share: f64) -> Width {
        Width::for_rate(Rate::new(share).expect("a rate"))
    }

    fn hashes(count: u64, seed: u64) -> Vec<u64> {
        // Two different seeds below 2^24 never produce the same hash.
        (0..count).map(|n| mix(n + (seed << 40), 0)).collect()
    }

    impl Solved {
        fn contains(&self, hash: u64) -> bool {
            self.shape.matches(mix(hash, self.seed), &self.area)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Every inserted id gets "maybe", with and without duplicates, at any rate.
        #[test]
        fn every_id_is_found(
            count in 1u64..3_000, twice: bool, share in 3e-10f64..0.5, seed in 0u64..1 << 24,
        ) {
            let mut all = hashes(count, seed);
            let ids = all.clone();
            if twice {
                all.extend_from_slice(&ids);
            }
            let solved = build(&mut Workspace::default(), vec![all], width(share), seed).expect("ids are solvable");
            prop_assert_eq!(solved.ids, ids.len());
            for id in ids {
                prop_assert!(solved.contains(id));
            }
        }
    }

    #[test]
    fn a_thousand_copies_of_one_id_count_once() {
        let solved = build(
            &mut Workspace::default(),
            vec![vec![7; 1000]],
            width(0.01),
            0,
        )
        .expect("ids are solvable");
        assert_eq!(solved.ids, 1);
        assert!(solved.contains(7));
    }

    /// The filter does not depend on whether memory is provided, on its size or on its contents.
    #[test]
    fn a_filter_does_not_depend_on_the_memory_provided() {
        let all = hashes(5_000, 9);
        let solve = |workspace: &mut Workspace| {
            let small = build(workspace, vec![all[..100].to_vec()], width(0.01), 2);
            let large = build(workspace, vec![all.clone()], width(0.01), 1);
            [small, large].map(|solved| solved.expect("ids are solvable").area)
        };
        let allocated = solve(&mut Workspace::default());
        for bytes in [0, 10_000, 1 << 20] {
            let provided = Box::new(vec![0xa5u8; bytes]);
            let mut workspace = Workspace::within(provided);
            assert_eq!(solve(&mut workspace), allocated, "{bytes}");
            assert_eq!(solve(&mut workspace), allocated, "{bytes}, second use");
        }
    }

    /// The measured rate agrees with the stated rate, which is at most the requested rate.
    #[test]
    fn absent_ids_pass_at_the_stated_rate() {
        for share in [0.4, 0.1, 0.03, 0.01] {
            let solved = build(
                &mut Workspace::default(),
                vec![hashes(20_000, 1)],
                width(share),
                3,
            )
            .expect("ids are solvable");
            let probes = 400_000;
            let passed = hashes(probes, 2)
                .into_iter()
                .filter(|&h| solved.contains(h));
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

    /// At each size at least nine of ten first attempts succeed, as `SIZE_CLASSES` in `shape.rs` assumes.
    ///
    /// With `EDGEWARD_LONG_TESTS` the test covers up to a million ids, which takes a minute in a release build.
    /// `SIZE_CLASSES` was measured this way.
    #[test]
    fn nine_of_ten_first_attempts_succeed() {
        let mut workspace = Workspace::default();
        let mut poor = Vec::new();
        let sizes = (0..20).flat_map(|log2| [1usize << log2, (2 << log2) - 1, 3 << log2]);
        let (ids_max, work) = match std::env::var_os("EDGEWARD_LONG_TESTS") {
            Some(_) => (1 << 20, 10_000_000),
            None => (1 << 12, 100_000),
        };
        for ids in sizes.filter(|&ids| ids < ids_max) {
            let all = [hashes(ids as u64, 11)];
            let shape = Shape::for_ids(ids, width(0.01), 0);
            let runs = (work / ids as u64).clamp(20, 1_000);
            let good = (0..runs)
                .filter(|&seed| workspace.tables(ids, shape).peel(&all, shape, mix(seed, 5)));
            let share = good.count() as f64 / runs as f64;
            eprintln!(
                "{ids} ids: {share:.3}, {:.4} slots per id",
                f64::from(shape.slots()) / ids as f64
            );
            poor.extend((share < 0.9).then_some((ids, share)));
        }
        assert!(poor.is_empty(), "{poor:?}");
    }
}
