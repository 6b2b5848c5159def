//! Sends requests to a tier, for tests.

use std::collections::HashMap;

use edgeward_types::{KeyHash, mix64};

use crate::{Benefit, Object, Slot, Tier, Verdict};

/// Answers requests with a tier and an index from key to slot.
pub(crate) struct Driver<T> {
    pub(crate) tier: T,
    pub(crate) index: HashMap<u64, Slot>,
}

impl<T: Tier> Driver<T> {
    pub(crate) fn new(tier: T) -> Self {
        Self {
            tier,
            index: HashMap::new(),
        }
    }

    /// Requests an object and offers it to the tier after a miss. Returns true for a hit.
    pub(crate) fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        self.request_with_benefit(key, size_bytes, Benefit::ONE)
    }

    /// Like [`request`](Self::request), for an object whose hits have this benefit.
    pub(crate) fn request_with_benefit(
        &mut self,
        key: u64,
        size_bytes: u64,
        benefit: Benefit,
    ) -> bool {
        if let Some(&slot) = self.index.get(&key) {
            self.tier.hit_recorder().hit(slot);
            return true;
        }
        let mut evicted = Vec::new();
        let offered = object(key, size_bytes);
        let verdict = self.tier.offer(&offered, benefit, &mut evicted);
        for victim in evicted {
            assert_eq!(self.index.remove(&victim.object.key.0), Some(victim.slot));
        }
        if let Verdict::Admit(slot) = verdict {
            self.index.insert(key, slot);
        }
        self.check();
        false
    }

    /// Does one step of a random sequence of requests, removals and resizes. `step` selects the kind of the step.
    /// `number` is the size of the object or a tenth of the new capacity.
    pub(crate) fn step(&mut self, step: u8, key: u64, number: u64) {
        match step {
            0..=7 => {
                self.request(key, number);
            }
            8 => {
                if let Some(slot) = self.index.remove(&key) {
                    assert!(self.tier.remove(slot));
                    assert!(!self.tier.remove(slot), "removed twice");
                }
            }
            _ => {
                let mut evicted = Vec::new();
                self.tier.resize(number * 10, &mut evicted);
                for victim in evicted {
                    assert_eq!(self.index.remove(&victim.object.key.0), Some(victim.slot));
                }
            }
        }
        self.check();
    }

    /// Checks that the tier is within its capacity and has the objects of the index.
    pub(crate) fn check(&self) {
        assert!(self.tier.used_bytes() <= self.tier.capacity_bytes());
        assert_eq!(self.tier.residents(), self.index.len());
        assert!(self.index.values().all(|&slot| self.tier.holds(slot)));
    }
}

pub(crate) fn object(key: u64, size_bytes: u64) -> Object {
    Object {
        key: KeyHash(key),
        size_bytes,
    }
}

/// Returns a size from 1 to 40 bytes.
pub(crate) fn size_of_key(key: u64) -> u64 {
    1 + mix64(key) % 40
}
