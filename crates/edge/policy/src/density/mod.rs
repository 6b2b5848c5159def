//! The policy `density`: keeps the objects whose hits are expected to bring the most benefit per byte and time.
//!
//! Time is counted in offers: misses whose objects are offered to the tier. The *density* of an object is the expected
//! number of its hits, divided by the expected number of offers during which it stays. The tier learns densities from
//! the traffic (`learner`). The *class* of an object is its number of requests and the gap between its last two
//! requests; its *cell* is its class and its age, the time since its last request (`history`).
//!
//! The *score* of an object is its density, multiplied by the benefit of a hit (1 for the objective `requests`) and
//! divided by its size. The object with the lowest score is evicted first (`queues`). If the tier is full and the
//! offered object has the lowest score, it is rejected. The histories of evicted and rejected objects are remembered
//! (`ghosts`). When such an object is offered again, its density thus depends on its earlier requests.
//!
//! LHD (Beckmann, Chen, Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit Density", NSDI 2018) ranks by the same
//! quotient. `density` differs in four points: it has ghosts; its classes include the number of requests; it measures
//! the time in each cell while objects are resident, not only at their eviction; and it may reject an object.
//!
//! Several hits on an object between two offers count as one request. No decision is made between two offers, so no
//! decision of the policy could have prevented the further hits.
//!
//! Cost: the first hit on an object after an offer stores a time and an entry in a list, and increments the length of
//! the list. Later hits before the next offer only read. An offer takes amortised O(1): it reads the histories of 16
//! objects, checks the age of 128 scores, and makes at most 14 comparisons per changed queue. Memory: 52 bytes per
//! resident object, about 24 bytes per ghost (at least two ghosts for each resident object), and 0.4 MB of tables.

mod history;
mod hits;
mod learner;
mod queues;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use edgeward_types::{KeyHash, Seed};

use crate::admission::rule::Admission;
use crate::digest::Digest;
use crate::ghosts::Ghosts;
use crate::object::{Evicted, Object, RejectReason, Verdict};
use crate::objective::Benefit;
use crate::rng::Rng;
use crate::slots::{RESIDENTS_MAX, Slot};
use crate::tier::{BOOKKEEPING_BYTES_CHARGED, HitRecorder, Tier};
use history::{History, Time};
use hits::{PENDING_HITS_MAX, Shared};
use learner::Learner;
use queues::{Index, LinkTable, Links, QueueId, Queues, Score};

/// A tier with one byte budget and the policy `density`.
#[derive(Debug)]
pub struct DensityTier {
    capacity_bytes: u64,
    used_bytes: u64,
    residents: usize,
    admission: Admission,
    rng: Rng,
    learner: Learner,
    queues: Queues,
    entries: Entries,
    free: Vec<Index>,
    ghosts: Ghosts<History>,
    shared: Arc<Shared>,
    /// The time of the last offer. It increases by two at each offer; hits have the odd time that follows.
    now: Time,
    offers: u32,
    /// The position of the sweep that measures exposure: an entry or, after the last entry, a ghost.
    swept: usize,
    digest: Digest,
}

impl DensityTier {
    /// Makes an empty tier. All random decisions depend on `seed`.
    pub fn new(capacity_bytes: u64, admission: Admission, seed: Seed) -> Self {
        Self {
            capacity_bytes,
            used_bytes: 0,
            residents: 0,
            admission,
            rng: Rng::new(seed, 0),
            learner: Learner::new(),
            queues: Queues::new(),
            entries: Entries::default(),
            free: Vec::new(),
            ghosts: Ghosts::default(),
            shared: Arc::new(Shared::new()),
            now: Time::default(),
            offers: 0,
            swept: 0,
            digest: Digest::default(),
        }
    }

    /// Processes the hits since the last offer and advances the time.
    fn begin_offer(&mut self) {
        self.process_hits();
        self.offers = self.offers.wrapping_add(1);
        self.now = Time(self.now.0.wrapping_add(2));
        self.shared.now.store(self.now.0, Relaxed);
    }

    /// Evicts objects until `object` fits, or returns the reason to reject it.
    fn decide(
        &mut self,
        object: &Object,
        benefit: Benefit,
        history: History,
        evicted: &mut Vec<Evicted>,
    ) -> Result<(), RejectReason> {
        if !self.admission.admits(object, &mut self.rng) {
            return Err(RejectReason::Admission);
        }
        if self.residents >= RESIDENTS_MAX {
            return Err(RejectReason::ObjectLimit);
        }
        let score = self.score(history, object.size_bytes, benefit);
        let used_bytes_max = self.capacity_bytes - object.size_bytes;
        while self.used_bytes > used_bytes_max {
            if !self.evict_batch(score, used_bytes_max, evicted) {
                return Err(RejectReason::LowRank);
            }
        }
        Ok(())
    }

    /// Evicts objects until at most `used_bytes_max` bytes are used, but at most `BATCH_VICTIMS`. If one of them has a
    /// score of `score_max` or more, evicts no object and returns false.
    ///
    /// A rejected object therefore evicts nothing, unless it needs more than one batch.
    fn evict_batch(
        &mut self,
        score_max: f32,
        used_bytes_max: u64,
        evicted: &mut Vec<Evicted>,
    ) -> bool {
        let mut batch = [Index::default(); BATCH_VICTIMS];
        let mut victims = 0;
        let mut used_bytes = self.used_bytes;
        while used_bytes > used_bytes_max && victims < BATCH_VICTIMS {
            let (victim, victim_score) = self.victim();
            if victim_score >= score_max {
                for &victim in batch[..victims].iter().rev() {
                    self.link_as_oldest(victim);
                }
                return false;
            }
            self.unlink(victim);
            used_bytes -= self.entries.0[victim as usize].object.size_bytes;
            batch[victims] = victim;
            victims += 1;
        }
        evicted.extend(batch[..victims].iter().map(|&victim| self.evict(victim)));
        true
    }

    /// Adds one offer to the exposure of the cells, and refreshes scores. The exposure of a cell is the time that
    /// objects spent in the cell, in objects × offers. At each offer it grows by the sum of the objects' weights.
    ///
    /// This number is estimated by a sweep over the positions of all entries and ghosts, used or not. Each offer visits
    /// the next 16, in the first 10,000 offers the next 64. Each visited object adds `positions / visits` times its
    /// weight to its cell, so the estimate is right in the mean. A sweep reads memory in order, so it is faster than
    /// random draws.
    fn learn(&mut self, size_bytes: u64) {
        let entries = self.entries.0.len();
        let positions = entries + self.ghosts.capacity();
        let visits = positions.min(match self.offers <= START_OFFERS {
            true => SWEPT_POSITIONS_START,
            false => SWEPT_POSITIONS,
        });
        let object_offers = positions as f64 / visits as f64;
        for _ in 0..visits {
            self.swept = match self.swept + 1 {
                next if next < positions => next,
                _ => 0,
            };
            let history = match self.swept.checked_sub(entries) {
                Some(ghost) => self.ghosts.at(ghost),
                None => self.entries.0[self.swept].resident_history(),
            };
            if !history.is_empty() {
                let exposure = object_offers * history.weight();
                self.learner
                    .record_exposure(history.cell(self.now), exposure);
            }
        }
        let densities_changed = self.learner.record_offer(size_bytes, self.capacity_bytes);
        if densities_changed {
            for position in 0..self.queues.occupied() {
                self.rescore(self.queues.occupied_at(position));
            }
        } else {
            let mut checks = CHECKS.min(self.queues.occupied());
            while let Some(queue) = self.queues.next_outdated(self.now, &mut checks) {
                self.rescore(queue);
            }
        }
    }

    /// Processes the hits since the last offer.
    fn process_hits(&mut self) {
        let shared = Arc::clone(&self.shared);
        let hits = shared.pending_count.swap(0, Relaxed) as usize;
        for pending in &shared.pending[..hits.min(PENDING_HITS_MAX)] {
            self.process_hit(pending.load(Relaxed));
        }
    }

    /// Adds the last hit of an object to its history. Returns true if the object entered the queue of its new history.
    fn process_hit(&mut self, index: Index) -> bool {
        let last_hit = Time(self.shared.states.at(index).load(Relaxed));
        let entry = &mut self.entries.0[index as usize];
        let history = entry.history;
        if entry.queue.is_none() || history.last == last_hit {
            return false;
        }
        // No offer lies between the last request and the hit, so both count as one (see the module's documentation).
        if last_hit.offers_since(history.last) == 0 {
            entry.history.last = last_hit;
            return false;
        }
        self.learner
            .record_hit(history.cell(last_hit), history.weight());
        self.unlink(index);
        self.entries.0[index as usize].history = history.request(last_hit);
        self.link(index);
        true
    }

    /// Returns the resident object with the lowest score and its score. Called only while bytes are used.
    fn victim(&mut self) -> (Index, f32) {
        let mut corrections_left = CORRECTIONS_MAX;
        loop {
            let (queue, victim, known_score) = self
                .queues
                .lowest()
                .expect("an object is resident while bytes are used");
            let is_current = !self.process_hit(victim) && self.rescore(queue) == known_score;
            if is_current || corrections_left == 0 {
                return (victim, known_score);
            }
            corrections_left -= 1;
        }
    }

    /// Evicts a resident object that is in no queue, and remembers its history.
    fn evict(&mut self, index: Index) -> Evicted {
        let entry = self.entries.0[index as usize];
        self.release(index);
        self.digest.evicted(u64::from(entry.entered_at));
        Evicted {
            object: entry.object,
            slot: Slot {
                index,
                generation: entry.generation,
            },
            was_hit: self.shared.states.at(index).load(Relaxed) % 2 == 1,
        }
    }

    /// Frees the entry of a resident object that is in no queue, and remembers its history.
    fn release(&mut self, index: Index) {
        let entry = self.entries.0[index as usize];
        self.ghosts.insert(entry.object.key, entry.history);
        self.used_bytes -= entry.object.size_bytes;
        self.residents -= 1;
        self.free.push(index);
    }

    fn enter(&mut self, object: &Object, benefit: Benefit, history: History) -> Slot {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = Index::try_from(self.entries.0.len()).expect("RESIDENTS_MAX fits 32 bits");
            self.shared.states.grow_to(index);
            self.entries.0.push(Entry::default());
            index
        });
        let entry = &mut self.entries.0[index as usize];
        entry.object = *object;
        entry.history = history;
        entry.benefit = benefit;
        entry.generation = entry.generation.wrapping_add(1);
        entry.entered_at = self.offers;
        let generation = entry.generation;
        let last_hit = self.shared.states.at(index);
        last_hit.store(self.now.0, Relaxed);
        self.link(index);
        self.used_bytes += object.size_bytes;
        self.residents += 1;
        self.ghosts.grow_to(GHOSTS_PER_RESIDENT * self.residents);
        Slot { index, generation }
    }

    fn reject(&mut self, object: &Object, reason: RejectReason) -> Verdict {
        self.digest.rejected(object.size_bytes);
        Verdict::Reject(reason)
    }

    /// Adds a resident object to the queue of its history and size.
    fn link(&mut self, index: Index) {
        let (queue, score) = self.assign_queue(index);
        self.queues.push(queue, index, &mut self.entries, score);
    }

    /// Adds a resident object to its queue again, as the oldest.
    fn link_as_oldest(&mut self, index: Index) {
        let (queue, score) = self.assign_queue(index);
        self.queues
            .push_oldest(queue, index, &mut self.entries, score);
    }

    fn assign_queue(&mut self, index: Index) -> (QueueId, Score) {
        let entry = &mut self.entries.0[index as usize];
        let queue = entry.queue_to_join();
        entry.queue = Some(queue);
        (queue, self.score_of(index))
    }

    fn unlink(&mut self, index: Index) {
        let queue = self.entries.0[index as usize].queue.take();
        let queue = queue.expect("a resident object is in a queue");
        if self.queues.remove(queue, index, &mut self.entries) {
            self.rescore(queue);
        }
    }

    /// Computes the score of a queue again and returns it. The score of an empty queue is infinite.
    fn rescore(&mut self, queue: QueueId) -> f32 {
        let Some(oldest) = self.queues.oldest(queue) else {
            return f32::INFINITY;
        };
        let score = self.score_of(oldest);
        self.queues.rescore(queue, score);
        score.value
    }

    fn score_of(&self, index: Index) -> Score {
        let entry = &self.entries.0[index as usize];
        Score {
            value: self.entry_score(entry),
            outdated_at: entry.history.cell_changes_at(self.now),
        }
    }

    fn entry_score(&self, entry: &Entry) -> f32 {
        self.score(entry.history, entry.object.size_bytes, entry.benefit)
    }

    /// Returns the score of an object at the current time: its density times the benefit of a hit, per byte.
    fn score(&self, history: History, size_bytes: u64, benefit: Benefit) -> f32 {
        let density = self.learner.density(history.cell(self.now));
        density * benefit.value() / size_bytes.max(1) as f32
    }
}

impl Tier for DensityTier {
    fn offer(&mut self, object: &Object, benefit: Benefit, evicted: &mut Vec<Evicted>) -> Verdict {
        self.begin_offer();
        if object.size_bytes > self.capacity_bytes {
            return self.reject(object, RejectReason::LargerThanTier);
        }
        self.learn(object.size_bytes);
        let history = match self.ghosts.take(object.key) {
            Some(ghost) => {
                self.learner
                    .record_hit(ghost.cell(self.now), ghost.weight());
                ghost.request(self.now).with_benefit(benefit.rounded())
            }
            None => History::first(self.now, benefit.rounded()),
        };
        match self.decide(object, benefit, history, evicted) {
            Ok(()) => {
                self.digest.admitted(object.size_bytes);
                Verdict::Admit(self.enter(object, benefit, history))
            }
            Err(reason) => {
                self.ghosts.insert(object.key, history);
                self.reject(object, reason)
            }
        }
    }

    /// Learns nothing, because an adoption is no request. The time advances, so an object that was adopted earlier has
    /// a greater age.
    fn adopt(
        &mut self,
        object: &Object,
        benefit: Benefit,
        was_hit: bool,
        evicted: &mut Vec<Evicted>,
    ) -> Option<Slot> {
        if object.size_bytes > self.capacity_bytes || self.residents >= RESIDENTS_MAX {
            return None;
        }
        self.begin_offer();
        while self.used_bytes > self.capacity_bytes - object.size_bytes {
            evicted.extend(self.evict_next());
        }
        let history = self.ghosts.take(object.key);
        let history = history.unwrap_or_else(|| History::first(self.now, benefit.rounded()));
        let history = match was_hit {
            true => history.request(self.now),
            false => history,
        };
        self.digest.admitted(object.size_bytes);
        Some(self.enter(object, benefit, history.with_benefit(benefit.rounded())))
    }

    fn evict_next(&mut self) -> Option<Evicted> {
        if self.residents == 0 {
            return None;
        }
        let (victim, _) = self.victim();
        self.unlink(victim);
        Some(self.evict(victim))
    }

    fn remove(&mut self, slot: Slot) -> bool {
        if !self.holds(slot) {
            return false;
        }
        self.unlink(slot.index);
        self.release(slot.index);
        true
    }

    fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<Evicted>) {
        self.capacity_bytes = capacity_bytes;
        while self.used_bytes > capacity_bytes {
            evicted.extend(self.evict_next());
        }
    }

    fn set_c(&mut self, c_bytes: f64) {
        self.admission.set_c(c_bytes);
    }

    fn holds(&self, slot: Slot) -> bool {
        self.entries
            .0
            .get(slot.index as usize)
            .is_some_and(|entry| entry.queue.is_some() && entry.generation == slot.generation)
    }

    fn hit_recorder(&self) -> HitRecorder {
        HitRecorder::new(Arc::clone(&self.shared))
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
        self.entries.0.len() * (size_of::<Entry>() + size_of::<AtomicU32>())
            + self.free.capacity() * size_of::<Index>()
            + self.ghosts.bookkeeping_bytes()
            + self.queues.bookkeeping_bytes()
            + self.learner.bookkeeping_bytes()
            + self.admission.memory_bytes() as usize
            + PENDING_HITS_MAX * size_of::<AtomicU32>()
    }

    /// Counts entries instead of residents, so that an eviction does not change the capacity for objects.
    fn uncharged_bytes(&self) -> u64 {
        let charged = BOOKKEEPING_BYTES_CHARGED * self.entries.0.len() as u64;
        (self.bookkeeping_bytes() as u64).saturating_sub(charged)
    }
}

#[derive(Debug, Default)]
struct Entries(Vec<Entry>);

impl LinkTable for Entries {
    fn links(&mut self, index: Index) -> &mut Links {
        &mut self.0[index as usize].links
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    object: Object,
    history: History,
    benefit: Benefit,
    /// Changes at each admission, so that a [`Slot`] of an earlier object is recognised.
    generation: u32,
    /// The number of the offer that admitted the object; see [`Digest`].
    entered_at: u32,
    links: Links,
    /// `None` if no object is resident.
    queue: Option<QueueId>,
}

impl Entry {
    /// Returns the history of the resident object, or an empty history.
    fn resident_history(&self) -> History {
        match self.queue {
            Some(_) => self.history,
            None => History::default(),
        }
    }

    /// Returns the queue of the object's history and of its bytes per unit of benefit.
    fn queue_to_join(&self) -> QueueId {
        let bytes = self.object.size_bytes as f64 / f64::from(self.benefit.value());
        QueueId::new(self.history.class(), bytes as u64)
    }
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            object: Object {
                key: KeyHash(0),
                size_bytes: 0,
            },
            history: History::default(),
            benefit: Benefit::ONE,
            generation: 0,
            entered_at: 0,
            links: Links::default(),
            queue: None,
        }
    }
}

/// The number of ghosts for each resident object. The object hit ratio is up to 0.9 points lower with one, and up to
/// 0.3 points higher with four.
const GHOSTS_PER_RESIDENT: usize = 2;

/// The number of positions per offer that the sweep visits. With 8, the object hit ratio of videos in a large cache is
/// 0.1 points lower.
const SWEPT_POSITIONS: usize = 16;

/// The number of positions for the first offers. More positions reduce the random error while the sums are small.
const SWEPT_POSITIONS_START: usize = 64;
const START_OFFERS: u32 = 10_000;

/// The number of queues that an offer checks. It computes the outdated scores among them again.
const CHECKS: usize = 128;

/// The maximum number of victims that are evicted at once while the offered object may still be rejected. It limits the
/// work for a rejected object, as in [`RankedTier`](crate::ranked::RankedTier).
const BATCH_VICTIMS: usize = 64;

/// The maximum number of candidates that one eviction corrects. After many hits without an offer, the hits that were
/// not in the list are found one by one. Without a maximum, a million of them would hold the tier's lock for a second.
const CORRECTIONS_MAX: u32 = 4096;
