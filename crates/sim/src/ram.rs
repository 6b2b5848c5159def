//! The memory tier of a simulation run: the policies of the server's tier and an index of objects, without bodies.

use edgeward_policy::{
    AnyTier, Evicted, HitRecorder, Object, PolicySpec, Slot, Verdict,
    adaptsize::{Tuner, Tuning},
};
use edgeward_types::{KeyHash, Seed, charge_bytes};
use hashbrown::HashTable;

use crate::facts::spread;

/// A tier with its index and its tuner.
#[derive(Debug)]
pub(crate) struct Ram {
    index: HashTable<Resident>,
    tier: AnyTier,
    hit_recorder: HitRecorder,
    tuner: Option<Tuner>,
    evicted: Vec<Evicted>,
    /// The capacity for objects and uncharged bookkeeping.
    capacity_bytes: u64,
    /// Bytes charged per object in addition to its body; see [`charge_bytes`].
    overhead_bytes: u64,
}

impl Ram {
    /// `window_requests` is the number of requests between two steps of the tuner, or `None` for the default.
    pub(crate) fn new(
        policy: PolicySpec,
        capacity_bytes: u64,
        overhead_bytes: u64,
        window_requests: Option<u32>,
        seed: Seed,
    ) -> Self {
        let tier = policy.tier(capacity_bytes, seed);
        Self {
            index: HashTable::new(),
            hit_recorder: tier.hit_recorder(),
            // The tier's capacity differs from the configured one for the policy `infinite`.
            capacity_bytes: tier.capacity_bytes(),
            tier,
            tuner: policy.tuner(capacity_bytes, window_requests),
            evicted: Vec::new(),
            overhead_bytes,
        }
    }

    /// Returns true if the object is present, and records the hit.
    pub(crate) fn hit(&self, key: KeyHash) -> bool {
        let resident = self.find(key);
        if let Some(resident) = resident {
            self.hit_recorder.hit(resident.slot);
        }
        resident.is_some()
    }

    /// Returns true if the object is present, without recording a hit.
    pub(crate) fn holds(&self, key: KeyHash) -> bool {
        self.find(key).is_some()
    }

    /// Offers an object that is not present. Returns the evicted objects; their `size_bytes` is the size of the
    /// object, not its charge.
    pub(crate) fn offer(&mut self, key: KeyHash, size_bytes: u64) -> &[Evicted] {
        self.evicted.clear();
        let object = Object {
            key,
            size_bytes: self.charge(size_bytes),
        };
        self.reserve_bookkeeping();
        let verdict = self.tier.offer(&object, &mut self.evicted);
        for evicted in &mut self.evicted {
            let key = evicted.object.key;
            if let Ok(entry) = self
                .index
                .find_entry(spread(key.0), |resident| resident.key == key)
            {
                evicted.object.size_bytes = entry.remove().0.size_bytes;
            }
        }
        if let Verdict::Admit(slot) = verdict {
            let resident = Resident {
                key,
                slot,
                size_bytes,
            };
            self.index
                .insert_unique(spread(key.0), resident, |resident| spread(resident.key.0));
        }
        &self.evicted
    }

    /// Passes a request to the tuner. Returns the result of its step if this request completed a window.
    pub(crate) fn record(&mut self, key: KeyHash, size_bytes: u64, hit: bool) -> Option<Tuning> {
        let charge_bytes = self.charge(size_bytes);
        let tuner = self.tuner.as_mut()?;
        if !tuner.record(key, charge_bytes, hit) {
            return None;
        }
        let index = &self.index;
        let resident = |key: KeyHash| {
            index
                .find(spread(key.0), |resident| resident.key == key)
                .is_some()
        };
        let tuning = tuner.step(&resident);
        self.tier.set_c(tuning.c);
        Some(tuning)
    }

    pub(crate) fn tier(&self) -> &AnyTier {
        &self.tier
    }

    /// Bytes of bookkeeping of tier and index.
    pub(crate) fn bookkeeping_bytes(&self) -> usize {
        self.tier.bookkeeping_bytes() + self.index.allocation_size()
    }

    /// Reduces the tier's capacity by its uncharged bookkeeping, as the server does. Without overhead, bookkeeping is
    /// not charged at all.
    fn reserve_bookkeeping(&mut self) {
        if self.overhead_bytes > 0 {
            let capacity_bytes = self
                .capacity_bytes
                .saturating_sub(self.tier.uncharged_bytes());
            if capacity_bytes != self.tier.capacity_bytes() {
                self.tier.resize(capacity_bytes, &mut self.evicted);
            }
        }
    }

    fn find(&self, key: KeyHash) -> Option<&Resident> {
        self.index
            .find(spread(key.0), |resident| resident.key == key)
    }

    fn charge(&self, size_bytes: u64) -> u64 {
        charge_bytes(size_bytes, self.overhead_bytes)
    }
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    key: KeyHash,
    slot: Slot,
    /// The size of the object, without the overhead.
    size_bytes: u64,
}
