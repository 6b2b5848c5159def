//! One tier's decisions: what is resident, what may enter, what must leave. Holds no bytes.
//!
//! The server and the simulator both drive a [`Tier`]: the server from behind a lock that misses
//! take, the simulator alone. A hit needs shared access only, through [`Touch`].

use std::sync::Arc;

use edgeward_types::{KeyHash, Seed};

use crate::admission::Admission;
use crate::digest::Digest;
use crate::eviction::Ranking;
use crate::eviction::queue::{LazyQueue, Standing};
use crate::rng::Rng;
use crate::slots::{Marks, RESIDENTS_MAX, Slot};
use crate::{Evicted, Object, Refusal, Verdict};

/// One byte budget, one rule of admission, one ranking for eviction.
///
/// The budget is global on purpose: shards with budgets of their own refuse or thrash on objects
/// that are large beside a shard. Memory: 24 bytes a place, 16 in the queue and the ranking's mark
/// (8 bytes for LRU, 16 for GDSF).
#[derive(Debug)]
pub struct Tier<R: Ranking> {
    capacity_bytes: u64,
    used_bytes: u64,
    residents: usize,
    admission: Admission,
    rng: Rng,
    queue: LazyQueue,
    places: Vec<Place>,
    free: Vec<u32>,
    /// Removed by hand, their places still known to the queue.
    ghosts: usize,
    touch: Touch<R>,
    offers: u32,
    digest: Digest,
}

impl<R: Ranking> Tier<R> {
    /// An empty tier. All chance in it comes from `seed`.
    pub fn new(capacity_bytes: u64, admission: Admission, seed: Seed) -> Self {
        Self {
            capacity_bytes,
            used_bytes: 0,
            residents: 0,
            admission,
            rng: Rng::new(seed, 0),
            queue: LazyQueue::default(),
            places: Vec::new(),
            free: Vec::new(),
            ghosts: 0,
            touch: Touch(Arc::new(Shared {
                ranking: R::Shared::default(),
                marks: Marks::new(),
            })),
            offers: 0,
            digest: Digest::default(),
        }
    }

    /// A miss that could be kept. Pushes those that must leave for it onto `evicted`.
    ///
    /// The key must not be resident: replace by [`remove`](Self::remove), then offer.
    /// O(log n) amortised for each object that leaves.
    pub fn offer(&mut self, object: &Object, evicted: &mut Vec<Evicted>) -> Verdict {
        R::tick(&self.touch.0.ranking);
        self.offers = self.offers.wrapping_add(1);
        if object.size_bytes > self.capacity_bytes {
            return self.refuse(object, Refusal::LargerThanTier);
        }
        if !self.admission.admits(object, &mut self.rng) {
            return self.refuse(object, Refusal::Admission);
        }
        if self.residents >= RESIDENTS_MAX {
            return self.refuse(object, Refusal::ObjectLimit);
        }
        self.digest.admitted(object.size_bytes);
        self.make_room(self.capacity_bytes - object.size_bytes, evicted);
        Verdict::Admit(self.enter(object))
    }

    /// Takes out what is in `slot`: purged or replaced. False if it had left before.
    pub fn remove(&mut self, slot: Slot) -> bool {
        if !self.holds(slot) {
            return false;
        }
        let place = &mut self.places[slot.index as usize];
        place.resident = false;
        self.used_bytes -= place.object.size_bytes;
        self.residents -= 1;
        self.ghosts += 1;
        // Ghosts are swept when they outnumber the residents: amortised O(1) a removal.
        if self.ghosts > self.residents + GHOSTS_MIN {
            let standing = standing::<R>(&self.places, &self.touch);
            self.queue.sweep(standing, |index| self.free.push(index));
            self.ghosts = 0;
        }
        true
    }

    /// Changes the budget; a smaller one evicts at once.
    pub fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<Evicted>) {
        self.capacity_bytes = capacity_bytes;
        self.make_room(capacity_bytes, evicted);
    }

    /// Changes the rule of admission, as a tuner does.
    pub fn set_admission(&mut self, admission: Admission) {
        if self.admission != admission {
            self.admission = admission;
        }
    }

    /// Whether what was admitted into `slot` is still there.
    pub fn holds(&self, slot: Slot) -> bool {
        self.places
            .get(slot.index as usize)
            .is_some_and(|place| place.resident && place.generation == slot.generation)
    }

    /// What hits need: clone it freely, it takes no lock.
    pub fn touch(&self) -> Touch<R> {
        self.touch.clone()
    }

    /// The rule of admission in force.
    pub fn admission(&self) -> Admission {
        self.admission
    }

    /// Bytes the residents are charged with. Never above the capacity.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The budget.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Objects resident.
    pub fn residents(&self) -> usize {
        self.residents
    }

    /// A fingerprint of all decisions so far: equal for equal requests, seeds and policies.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Bytes of bookkeeping in use, apart from what the driver keeps.
    pub fn bookkeeping_bytes(&self) -> usize {
        self.places.len() * (size_of::<Place>() + QUEUE_ENTRY_BYTES + size_of::<R::Mark>())
            + self.free.capacity() * size_of::<u32>()
    }

    fn refuse(&mut self, object: &Object, refusal: Refusal) -> Verdict {
        self.digest.refused(object.size_bytes);
        Verdict::Refuse(refusal)
    }

    fn make_room(&mut self, used_bytes_max: u64, evicted: &mut Vec<Evicted>) {
        while self.used_bytes > used_bytes_max {
            let standing = standing::<R>(&self.places, &self.touch);
            let (rank, index) = self
                .queue
                .pop(standing, |index| {
                    self.free.push(index);
                    self.ghosts -= 1;
                })
                .expect("a victim is always resident while bytes are used");
            R::evicted(&self.touch.0.ranking, rank);
            let place = &mut self.places[index as usize];
            place.resident = false;
            self.used_bytes -= place.object.size_bytes;
            self.residents -= 1;
            self.free.push(index);
            self.digest.evicted(u64::from(place.entered_at));
            evicted.push(Evicted {
                object: place.object,
                slot: Slot {
                    index,
                    generation: place.generation,
                },
                was_hit: R::was_hit(self.touch.0.marks.at(index)),
            });
        }
    }

    fn enter(&mut self, object: &Object) -> Slot {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = u32::try_from(self.places.len()).expect("RESIDENTS_MAX fits 32 bits");
            self.touch.0.marks.grow_to(index);
            self.places.push(Place::default());
            index
        });
        let place = &mut self.places[index as usize];
        place.object = *object;
        place.generation = place.generation.wrapping_add(1);
        place.entered_at = self.offers;
        place.resident = true;
        let mark = self.touch.0.marks.at(index);
        R::enter(&self.touch.0.ranking, mark, object);
        self.queue.push(R::rank(mark), index);
        self.used_bytes += object.size_bytes;
        self.residents += 1;
        Slot {
            index,
            generation: place.generation,
        }
    }
}

/// The part of a tier that hits use. Cheap to clone, free of locks.
#[derive(Debug)]
pub struct Touch<R: Ranking>(Arc<Shared<R>>);

impl<R: Ranking> Touch<R> {
    /// A hit on what was admitted into `slot`.
    #[inline]
    pub fn hit(&self, slot: Slot) {
        R::touch(&self.0.ranking, self.0.marks.at(slot.index));
    }
}

impl<R: Ranking> Clone for Touch<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Shared<R: Ranking> {
    ranking: R::Shared,
    marks: Marks<R::Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    object: Object,
    generation: u32,
    /// The number of the offer it came with: its identity in the digest, whatever its key hashes to.
    entered_at: u32,
    resident: bool,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            object: Object {
                key: KeyHash(0),
                size_bytes: 0,
            },
            generation: 0,
            entered_at: 0,
            resident: false,
        }
    }
}

fn standing<'a, R: Ranking>(
    places: &'a [Place],
    touch: &'a Touch<R>,
) -> impl Fn(u32) -> Standing + 'a {
    move |index| {
        if places[index as usize].resident {
            Standing::Resident(R::rank(touch.0.marks.at(index)))
        } else {
            Standing::Gone
        }
    }
}

/// Below this many ghosts a sweep is not worth its walk.
const GHOSTS_MIN: usize = 1024;

const QUEUE_ENTRY_BYTES: usize = 16;

#[cfg(test)]
mod tests;
