//! An exact set of the ids that were added since the snapshot.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use crate::fuse::mix;
use crate::id::IdHash;

/// A map from each added id to the last journal number of the delta that contained the id.
#[derive(Clone, Debug)]
pub(super) struct Overlay {
    ids: HashMap<u64, u64, IdMixer>,
}

impl Overlay {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            ids: HashMap::with_hasher(IdMixer { seed }),
        }
    }

    #[inline]
    pub(super) fn contains(&self, id: IdHash) -> bool {
        !self.ids.is_empty() && self.ids.contains_key(&id.0)
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Adds the ids of a delta that ends at journal number `to`.
    pub(super) fn add(&mut self, ids: &[IdHash], to: u64) {
        for id in ids {
            let number = self.ids.entry(id.0).or_insert(to);
            *number = (*number).max(to);
        }
    }

    /// Removes the ids whose last delta ends at journal number `base` or earlier. A snapshot with this base contains
    /// all of them.
    pub(super) fn forget_up_to(&mut self, base: u64) {
        self.ids.retain(|_, to| *to > base);
        self.ids.shrink_to_fit();
    }
}

/// A hasher for ids, which are hashes already. It mixes each id with the publisher's random lineage, so that an
/// attacker who computes hashes of ids cannot cause collisions in the table.
#[derive(Clone, Copy, Debug)]
struct IdMixer {
    /// The lineage.
    seed: u64,
}

impl BuildHasher for IdMixer {
    type Hasher = IdMixerHasher;

    fn build_hasher(&self) -> IdMixerHasher {
        IdMixerHasher(self.seed)
    }
}

#[derive(Clone, Copy, Debug)]
struct IdMixerHasher(u64);

impl Hasher for IdMixerHasher {
    fn write_u64(&mut self, id: u64) {
        self.0 = mix(id, self.0);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
