//! A small cache that follows the sample of objects with one policy and capacity.

use std::time::Duration;

use edgeward_policy::{
    AnyTier, Benefit, Evicted, HitRecorder, KeySample, Object, PolicySpec, Slot, Verdict,
};
use edgeward_types::{KeyHash, Seed, Timestamp};
use hashbrown::HashMap;

/// A request for an object of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The time of the request.
    pub at: Timestamp,
    /// The hash of the object's key.
    pub key: KeyHash,
    /// The bytes that memory charges for the object.
    pub charge_bytes: u64,
    /// The length of the body, which the origin sends for a miss.
    pub length: u64,
    /// The bytes of the body that the client got.
    pub sent_bytes: u64,
    /// The time for which the object is fresh when it arrives from the origin, in milliseconds.
    pub lifetime_ms: u64,
    /// The time after that for which it may be used while it is validated, in milliseconds.
    pub stale_while_revalidate_ms: u64,
    /// True if the origin can confirm a stale object without its body.
    pub has_validator: bool,
}

impl Request {
    /// Returns the answer of a cache whose object is stale from `stale_at`. The origin is expected to have the object
    /// unchanged.
    pub(crate) fn answer_of(&self, stale_at: Timestamp) -> Answer {
        if self.at < after(stale_at, self.stale_while_revalidate_ms) || self.at < stale_at {
            Answer::Hit
        } else if self.has_validator {
            Answer::Confirmed
        } else {
            Answer::Miss
        }
    }
}

/// The answer of a cache to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The cache answers without the origin.
    Hit,
    /// The object is stale. The origin confirms it and sends no body.
    Confirmed,
    /// The origin sends the body.
    Miss,
}

/// A small cache.
#[derive(Debug)]
pub(crate) struct Mini {
    policy: PolicySpec,
    /// The capacity for which the cache stands.
    capacity_bytes: u64,
    /// The uncharged bookkeeping of an empty tier, which does not shrink with the sample.
    empty_bytes: u64,
    share: f64,
    tier: AnyTier,
    hits: HitRecorder,
    residents: HashMap<u64, Resident>,
    /// True if an object has arrived for which there was no free space.
    has_filled: bool,
    evicted: Vec<Evicted>,
    /// True if evicted objects are kept in `left`.
    keeps_evicted: bool,
    left: Vec<EvictedObject>,
}

/// An object that the cache has evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictedObject {
    pub(crate) evicted: Evicted,
    /// The real charge of the object.
    pub(crate) charge_bytes: u64,
    pub(crate) stale_at: Timestamp,
}

#[derive(Clone, Copy, Debug)]
struct Resident {
    slot: Slot,
    /// The real charge of the object.
    charge_bytes: u64,
    /// The time from which the object is stale.
    stale_at: Timestamp,
}

impl Mini {
    pub(crate) fn new(policy: PolicySpec, capacity_bytes: u64, sample: &KeySample) -> Self {
        let tier = policy.tier(0, SEED);
        let mut mini = Self {
            policy,
            capacity_bytes,
            empty_bytes: tier.uncharged_bytes(),
            share: sample.share(),
            hits: tier.hit_recorder(),
            tier,
            residents: HashMap::new(),
            has_filled: false,
            evicted: Vec::new(),
            keeps_evicted: false,
            left: Vec::new(),
        };
        mini.fit();
        mini
    }

    /// Makes the cache keep the objects that a request evicts, until the next request.
    pub(crate) fn keep_evicted(&mut self) {
        self.keeps_evicted = true;
    }

    /// Returns the objects that the last request has evicted.
    pub(crate) fn left(&self) -> &[EvictedObject] {
        &self.left
    }

    /// Returns true if the cache has the object, fresh or stale.
    pub(crate) fn holds(&self, key: KeyHash) -> bool {
        self.residents.contains_key(&key.0)
    }

    pub(crate) fn policy(&self) -> PolicySpec {
        self.policy
    }

    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Processes a request. `scale` is the size of its object in this cache, as a part of the real size. A stale object
    /// is expected to be unchanged at the origin.
    pub(crate) fn request(&mut self, request: &Request, scale: f64) -> Answer {
        let stale_at = after(request.at, request.lifetime_ms);
        self.left.clear();
        if let Some(resident) = self.residents.get_mut(&request.key.0) {
            // The policy counts a hit also if the object is stale: the origin then confirms it.
            self.hits.hit_alone(resident.slot);
            let answer = request.answer_of(resident.stale_at);
            if request.at >= resident.stale_at {
                resident.stale_at = stale_at;
            }
            return answer;
        }
        self.fit();
        let object = Object {
            key: request.key,
            size_bytes: scaled(request.charge_bytes, scale),
        };
        let capacity_bytes = self.tier.capacity_bytes();
        self.has_filled |= object.size_bytes <= capacity_bytes
            && self.tier.used_bytes() + object.size_bytes > capacity_bytes;
        let verdict = self
            .tier
            .offer(&object, Benefit::new(scale), &mut self.evicted);
        self.forget_evicted();
        if let Verdict::Admit(slot) = verdict {
            let resident = Resident {
                slot,
                charge_bytes: request.charge_bytes,
                stale_at,
            };
            self.residents.insert(request.key.0, resident);
        }
        Answer::Miss
    }

    /// Follows a smaller sample. The objects that stay move to a new tier, the most useful ones last, so that they keep
    /// their order.
    pub(crate) fn shrink(&mut self, sample: &KeySample) {
        let mut old = std::mem::replace(&mut self.tier, self.policy.tier(0, SEED));
        let mut old_residents = std::mem::take(&mut self.residents);
        self.hits = self.tier.hit_recorder();
        self.share = sample.share();
        self.fit();
        while let Some(Evicted {
            object, was_hit, ..
        }) = old.evict_next()
        {
            let Some(mut resident) = old_residents.remove(&object.key.0) else {
                continue;
            };
            let charge_bytes = resident.charge_bytes;
            if !sample.takes(object.key, charge_bytes) {
                continue;
            }
            let scale = sample.share() / sample.probability(charge_bytes);
            let object = Object {
                key: object.key,
                size_bytes: scaled(charge_bytes, scale),
            };
            let benefit = Benefit::new(scale);
            let adopted = self
                .tier
                .adopt(&object, benefit, was_hit, &mut self.evicted);
            self.forget_evicted();
            if let Some(slot) = adopted {
                resident.slot = slot;
                self.residents.insert(object.key.0, resident);
            }
        }
    }

    /// Returns true if the cache has been full. Before, most of its misses are first requests since the start.
    pub(crate) fn has_filled(&self) -> bool {
        self.has_filled
    }

    /// Returns the part of its capacity that the cache uses.
    pub(crate) fn fill(&self) -> f64 {
        self.tier.used_bytes() as f64 / self.tier.capacity_bytes().max(1) as f64
    }

    /// Returns true if half of the residents are enough for a prediction.
    pub(crate) fn has_many_residents(&self) -> bool {
        self.residents.len() >= MANY_RESIDENTS
    }

    /// Returns the bytes of memory that the cache takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        // A table of hashbrown has a byte for each slot, and 8 slots for 7 entries.
        let table = self.residents.capacity() * (size_of::<(u64, Resident)>() + 1) * 8 / 7;
        (table + self.tier.bookkeeping_bytes() + self.evicted.capacity() * size_of::<Evicted>())
            as u64
    }

    /// Gives the tier the capacity for objects: the share of the sample of the real one, which is smaller than the
    /// capacity by the bookkeeping.
    fn fit(&mut self) {
        let for_objects = self.capacity_bytes.saturating_sub(self.empty_bytes);
        let growth = self.tier.uncharged_bytes().saturating_sub(self.empty_bytes);
        let capacity_bytes = scaled(for_objects, self.share).saturating_sub(growth);
        if capacity_bytes != self.tier.capacity_bytes() {
            self.tier.resize(capacity_bytes, &mut self.evicted);
            self.forget_evicted();
        }
    }

    fn forget_evicted(&mut self) {
        for evicted in self.evicted.drain(..) {
            let resident = self.residents.remove(&evicted.object.key.0);
            if let Some(resident) = resident.filter(|_| self.keeps_evicted) {
                self.left.push(EvictedObject {
                    evicted,
                    charge_bytes: resident.charge_bytes,
                    stale_at: resident.stale_at,
                });
            }
        }
    }
}

pub(crate) fn after(at: Timestamp, ms: u64) -> Timestamp {
    at.after(Duration::from_millis(ms))
}

fn scaled(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}

/// With fewer residents, the errors of predictions exceed a few points.
const MANY_RESIDENTS: usize = 500;

/// The seed of the policies' draws. Its value does not matter.
const SEED: Seed = Seed(44);
