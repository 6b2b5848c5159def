//! Tiers that keep objects in linked lists, such as LRU and its relatives, or draw their victims at random.
//!
//! A [`ListOrder`] holds the lists. It moves objects between them under the tier's lock: when an object is offered,
//! admitted, evicted or removed. Hits are recorded without a lock. The next offer, removal or resize processes them
//! first, in their order. LRU therefore evicts the same objects as a list that is changed at every hit, if at most
//! 65,536 hits lie between two offers.
//!
//! Memory per resident object: 24 bytes for the entry, 24 for its node in a list, and 1 for its hits. Some orders
//! have ghosts: the keys of evicted objects, bounded by bytes and number.

pub mod arc;
pub mod camp;
pub mod fifo;
mod ghosts;
pub mod hyperbolic;
pub mod lhd;
mod links;
pub mod lru;
pub mod lru_k;
mod order;
mod residents;
pub mod s3_fifo;
pub mod segmented;
pub mod sieve;
#[cfg(test)]
mod tests;
mod tiny_lfu;
pub mod tinylfu_av;
pub mod two_q;
pub mod w_tinylfu;

use std::sync::Arc;

use edgeward_types::{KeyHash, Seed};

use crate::admission::rule::Admission;
use crate::digest::Digest;
use crate::object::{Evicted, Object, RejectReason, Verdict};
use crate::objective::Benefit;
use crate::rng::Rng;
use crate::slots::{RESIDENTS_MAX, Slot};
use crate::tier::{BOOKKEEPING_BYTES_CHARGED, HitRecorder, RecordHit, Tier};
use links::Index;

pub use arc::AdaptiveReplacement;
pub use camp::Camp;
pub use fifo::Fifo;
pub use hyperbolic::Hyperbolic;
pub use lhd::Lhd;
pub use lru::Lru;
pub use lru_k::LruK;
pub use order::{HitLog, Hits, ListOrder};
pub use s3_fifo::S3Fifo;
pub use segmented::{S4Lru, Slru};
pub use sieve::Sieve;
pub use tinylfu_av::TinyLfuAv;
pub use two_q::TwoQ;
pub use w_tinylfu::WTinyLfu;

/// A tier with one byte budget, an admission rule and a [`ListOrder`].
#[derive(Debug)]
pub struct ListTier<O: ListOrder> {
    capacity_bytes: u64,
    used_bytes: u64,
    residents: usize,
    admission: Admission,
    rng: Rng,
    order: O,
    entries: Vec<Entry>,
    /// The indexes of unused entries, which the next objects get.
    free: Vec<Index>,
    hits: Arc<HitLog<O>>,
    /// The number of calls of [`offer`](Tier::offer). It wraps around.
    offers: u32,
    digest: Digest,
}

impl<O: ListOrder> ListTier<O> {
    /// Makes an empty tier. All random decisions depend on `seed`.
    pub fn new(capacity_bytes: u64, admission: Admission, seed: Seed) -> Self {
        Self {
            capacity_bytes,
            used_bytes: 0,
            residents: 0,
            admission,
            rng: Rng::new(seed, 0),
            order: O::new(capacity_bytes, seed),
            entries: Vec::new(),
            free: Vec::new(),
            hits: Arc::new(HitLog::new()),
            offers: 0,
            digest: Digest::default(),
        }
    }

    /// Evicts until at most `used_bytes_max` bytes are used. Returns false if the order rejects `incoming`.
    fn make_room(
        &mut self,
        used_bytes_max: u64,
        incoming: Option<&Object>,
        evicted: &mut Vec<Evicted>,
    ) -> bool {
        let mut corrections_left = CORRECTIONS_MAX;
        while self.used_bytes > used_bytes_max {
            let Some(victim) = self.order.victim(incoming, &self.hits) else {
                assert!(
                    incoming.is_some(),
                    "an object is resident while bytes are used"
                );
                return false;
            };
            if corrections_left > 0 && self.hits.take_unlisted(victim) {
                corrections_left -= 1;
                self.order.hit(victim);
                continue;
            }
            evicted.push(self.evict(victim));
        }
        true
    }

    fn evict(&mut self, victim: Index) -> Evicted {
        let entry = self.entries[victim as usize];
        self.order.evict(victim, &entry.object);
        self.release(victim);
        self.digest.evicted(u64::from(entry.entered_at));
        Evicted {
            object: entry.object,
            slot: Slot {
                index: victim,
                generation: entry.generation,
            },
            was_hit: self.hits.was_hit(victim),
        }
    }

    /// Frees the entry of an object that is no longer in a list.
    fn release(&mut self, index: Index) {
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.used_bytes -= entry.object.size_bytes;
        self.residents -= 1;
        self.free.push(index);
    }

    fn enter(&mut self, object: &Object) -> Slot {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = Index::try_from(self.entries.len()).expect("RESIDENTS_MAX fits 32 bits");
            self.entries.push(Entry::default());
            index
        });
        let entry = &mut self.entries[index as usize];
        entry.object = *object;
        entry.generation = entry.generation.wrapping_add(1);
        entry.entered_at = self.offers;
        let generation = entry.generation;
        self.hits.enter(index);
        self.order.enter(index, object);
        self.used_bytes += object.size_bytes;
        self.residents += 1;
        Slot { index, generation }
    }

    fn process_hits(&mut self) {
        let Self {
            entries,
            hits,
            order,
            ..
        } = self;
        hits.drain(|index| {
            if entries[index as usize].is_resident() {
                order.hit(index);
            }
        });
    }

    fn reject(&mut self, object: &Object, reason: RejectReason) -> Verdict {
        self.digest.rejected(object.size_bytes);
        Verdict::Reject(reason)
    }
}

impl<O: ListOrder> Tier for ListTier<O> {
    fn offer(&mut self, object: &Object, _benefit: Benefit, evicted: &mut Vec<Evicted>) -> Verdict {
        self.offers = self.offers.wrapping_add(1);
        self.process_hits();
        self.order.offered(object);
        if object.size_bytes > self.capacity_bytes {
            return self.reject(object, RejectReason::LargerThanTier);
        }
        if !self.admission.admits(object, &mut self.rng) {
            return self.reject(object, RejectReason::Admission);
        }
        if self.residents >= RESIDENTS_MAX {
            return self.reject(object, RejectReason::ObjectLimit);
        }
        self.order.prepare(object);
        let used_bytes_max = self.capacity_bytes - object.size_bytes;
        if !self.make_room(used_bytes_max, Some(object), evicted) {
            return self.reject(object, RejectReason::LowRank);
        }
        self.digest.admitted(object.size_bytes);
        Verdict::Admit(self.enter(object))
    }

    fn adopt(
        &mut self,
        object: &Object,
        _benefit: Benefit,
        was_hit: bool,
        evicted: &mut Vec<Evicted>,
    ) -> Option<Slot> {
        if object.size_bytes > self.capacity_bytes || self.residents >= RESIDENTS_MAX {
            return None;
        }
        self.offers = self.offers.wrapping_add(1);
        self.process_hits();
        self.order.offered(object);
        self.order.prepare(object);
        self.make_room(self.capacity_bytes - object.size_bytes, None, evicted);
        self.digest.admitted(object.size_bytes);
        let slot = self.enter(object);
        if was_hit {
            self.hits.hit(slot);
        }
        Some(slot)
    }

    fn evict_next(&mut self) -> Option<Evicted> {
        if self.residents == 0 {
            return None;
        }
        self.process_hits();
        let victim = self.order.victim(None, &self.hits);
        Some(self.evict(victim.expect("an object is resident")))
    }

    fn remove(&mut self, slot: Slot) -> bool {
        if !self.holds(slot) {
            return false;
        }
        self.process_hits();
        self.order.remove(slot.index);
        self.release(slot.index);
        true
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<Evicted>) {
        self.capacity_bytes = capacity_bytes;
        self.process_hits();
        self.order.resize(capacity_bytes);
        self.make_room(capacity_bytes, None, evicted);
    }

    fn set_c(&mut self, c_bytes: f64) {
        self.admission.set_c(c_bytes);
    }

    fn holds(&self, slot: Slot) -> bool {
        self.entries
            .get(slot.index as usize)
            .is_some_and(|entry| entry.is_resident() && entry.generation == slot.generation)
    }

    fn hit_recorder(&self) -> HitRecorder {
        HitRecorder::new(Arc::clone(&self.hits))
    }

    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn residents(&self) -> usize {
        self.residents
    }

    fn digest(&self) -> u64 {
        self.digest.value()
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.entries.len() * ENTRY_BYTES as usize
            + self.free.capacity() * size_of::<Index>()
            + self.order.bookkeeping_bytes()
            + self.hits.bookkeeping_bytes()
            + self.admission.memory_bytes() as usize
    }

    fn uncharged_bytes(&self) -> u64 {
        let entries = self.entries.len() as u64;
        let lists = self.order.bookkeeping_bytes() as u64;
        let tier = entries * ENTRY_BYTES + lists + self.admission.memory_bytes();
        tier.saturating_sub(entries * BOOKKEEPING_BYTES_CHARGED)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    object: Object,
    /// Increased by each admission and each release, so that a [`Slot`] of an earlier object is recognised. Odd while
    /// the object is resident.
    generation: u32,
    /// The number of the offer that admitted the object; see [`Digest`].
    entered_at: u32,
}

const _: () = assert!(size_of::<Entry>() == 24);

impl Entry {
    fn is_resident(&self) -> bool {
        self.generation % 2 == 1
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            object: Object {
                key: KeyHash(0),
                size_bytes: 0,
            },
            generation: 0,
            entered_at: 0,
        }
    }
}

/// The bytes of an entry and of the state of its hits.
const ENTRY_BYTES: u64 = size_of::<Entry>() as u64 + 1;

/// The maximum number of victims that one call of `make_room` spares because of hits that were not listed (see
/// [`Hits::InOrder`]). Without a maximum, a million of them would hold the tier's lock for a second.
const CORRECTIONS_MAX: u32 = 4096;
