//! Computes the content of a simulated disk after a power loss between two operations.

use std::collections::BTreeMap;

use edgeward_types::{Seed, SplitMix64};

/// An entry of the journal of a [`SimulatedDisk`](super::SimulatedDisk).
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Write { offset: usize, bytes: Vec<u8> },
    Sync,
}

/// How a crash treats the unsynced writes: the writes after the last sync before the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// All unsynced writes are kept, as after `kill -9`: the process dies, but the kernel still writes its
    /// data.
    KeepUnsynced,
    /// All unsynced writes are lost.
    LoseUnsynced,
    /// A random number of the first sectors of the last write is kept. All earlier writes are kept.
    TearLastWrite,
    /// Each unsynced write is either kept or lost completely. The kept writes are applied in random order.
    LoseWrites,
    /// Each sector of 512 bytes has its old content, or the content of any unsynced write to this sector.
    TearSectors,
    /// Like [`TearSectors`](Self::TearSectors), with blocks of 4 KiB instead of sectors.
    TearBlocks,
    /// Like [`TearSectors`](Self::TearSectors), but about an eighth of the sectors of each unsynced write contain
    /// random bytes. Checksums of the store must detect these bytes.
    AddNoise,
}

impl Harm {
    /// All variants.
    pub const ALL: [Self; 7] = [
        Self::KeepUnsynced,
        Self::LoseUnsynced,
        Self::TearLastWrite,
        Self::LoseWrites,
        Self::TearSectors,
        Self::TearBlocks,
        Self::AddNoise,
    ];
}

/// Computes the content of the disk after a crash, for each boundary between two operations of the journal.
#[derive(Debug)]
pub struct Crashes {
    journal: Vec<Operation>,
    /// The content after the last sync: all writes before the operation `unsynced` are applied.
    durable: Vec<u8>,
    /// The index of the first operation after the last sync.
    unsynced: usize,
    random: RandomNumbers,
}

impl Crashes {
    pub(super) fn new(initial_content: Vec<u8>, journal: Vec<Operation>, seed: Seed) -> Self {
        Self {
            journal,
            durable: initial_content,
            unsynced: 0,
            random: RandomNumbers(SplitMix64(seed.0)),
        }
    }

    /// Returns all boundaries: before the first operation, and after each one.
    pub fn boundaries(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.journal.len()
    }

    /// Returns a possible content of the disk after a crash at `boundary`. The caller must pass boundaries in
    /// ascending order.
    ///
    /// # Panics
    ///
    /// Panics if an earlier call had a later boundary and a sync lies between the two boundaries.
    pub fn image(&mut self, boundary: usize, harm: Harm) -> Vec<u8> {
        self.apply_synced(boundary);
        let mut image = self.durable.clone();
        let pending: Vec<(usize, &[u8])> = self.journal[self.unsynced..boundary]
            .iter()
            .map(|operation| match operation {
                Operation::Write { offset, bytes } => (*offset, &bytes[..]),
                Operation::Sync => unreachable!("all syncs are before `unsynced`"),
            })
            .collect();
        let random = &mut self.random;
        match harm {
            Harm::LoseUnsynced => {}
            Harm::KeepUnsynced => pending.iter().for_each(|write| apply(&mut image, write)),
            Harm::LoseWrites => {
                // A random half of the writes is kept, in random order.
                let mut remaining = pending;
                while !remaining.is_empty() {
                    let write = remaining.swap_remove(random.below(remaining.len()));
                    if random.below(2) == 0 {
                        apply(&mut image, &write);
                    }
                }
            }
            Harm::TearLastWrite => {
                if let Some(((offset, bytes), before)) = pending.split_last() {
                    before.iter().for_each(|write| apply(&mut image, write));
                    let kept_bytes = random.below(bytes.len() / SECTOR_BYTES + 1) * SECTOR_BYTES;
                    apply(
                        &mut image,
                        &(*offset, &bytes[..kept_bytes.min(bytes.len())]),
                    );
                }
            }
            Harm::TearSectors => tear(&mut image, &pending, SECTOR_BYTES, random),
            Harm::TearBlocks => tear(&mut image, &pending, BLOCK_BYTES, random),
            Harm::AddNoise => {
                tear(&mut image, &pending, SECTOR_BYTES, random);
                for (offset, bytes) in &pending {
                    for at in (*offset..offset + bytes.len()).step_by(SECTOR_BYTES) {
                        if random.below(8) == 0 {
                            let end = image.len().min(at + SECTOR_BYTES);
                            let noise = &mut image[at..end];
                            noise.fill_with(|| random.next().to_le_bytes()[0]);
                        }
                    }
                }
            }
        }
        image
    }

    /// Finds the last sync before `boundary`. Applies all writes before this sync to `durable`.
    fn apply_synced(&mut self, boundary: usize) {
        assert!(
            self.unsynced <= boundary,
            "boundaries must be passed in ascending order"
        );
        let last_sync = self.journal[self.unsynced..boundary]
            .iter()
            .rposition(|operation| matches!(operation, Operation::Sync));
        let Some(last_sync) = last_sync else { return };
        let end = self.unsynced + last_sync;
        for operation in &self.journal[self.unsynced..end] {
            if let Operation::Write { offset, bytes } = operation {
                apply(&mut self.durable, &(*offset, bytes));
            }
        }
        self.unsynced = end + 1;
    }
}

fn apply(image: &mut [u8], &(offset, bytes): &(usize, &[u8])) {
    image[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// For each piece of `piece_bytes` bytes of the image, either keeps the old content or takes the content of one of
/// the unsynced writes to it.
fn tear(
    image: &mut [u8],
    pending: &[(usize, &[u8])],
    piece_bytes: usize,
    random: &mut RandomNumbers,
) {
    let mut versions: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
    for (offset, bytes) in pending {
        for (number, piece) in bytes.chunks(piece_bytes).enumerate() {
            let at = offset + number * piece_bytes;
            versions.entry(at).or_default().push(piece);
        }
    }
    // The share of replaced pieces is random, so that some crashes lose few writes and others nearly all
    // writes.
    let replaced_tenths = 1 + random.below(9);
    for (at, candidates) in versions {
        if random.below(10) < replaced_tenths {
            let piece = candidates[random.below(candidates.len())];
            image[at..at + piece.len()].copy_from_slice(piece);
        }
    }
}

/// Random numbers that depend on the seed alone.
#[derive(Debug)]
struct RandomNumbers(SplitMix64);

impl RandomNumbers {
    fn next(&mut self) -> u64 {
        self.0.draw()
    }

    fn below(&mut self, limit: usize) -> usize {
        let draw = self.next() % limit as u64;
        usize::try_from(draw).expect("below a usize")
    }
}

const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: usize = 4096;
