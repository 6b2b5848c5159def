//! Belady's rule, with and without sizes.
//!
//! The score of an object is the number of requests until its next request. With sizes, this number is multiplied by
//! the charge. The object with the highest score is evicted first. A new object is rejected if its score is at least
//! that of one of its victims; then no object is evicted. An object without a further request is never stored; a
//! resident object is removed at its last hit. If all objects have one size, no policy has more hits than the form
//! without sizes.
//!
//! Source of the rule: Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal
//! 1966. libCacheSim has both forms, without the rejection. Its form with sizes evicts the object with the highest
//! score of 128 sampled objects. Here, objects of similar sizes share a heap, ordered by the next request. The victim
//! has the highest score of the first objects of all heaps. Another object's score is at most 1/8 higher than the score
//! of the first object in its heap.
//!
//! Cost: O(log n) for each request and O(classes) for each eviction. Memory: 9 bytes per object of the trace, and
//! 8 to 16 bytes per resident object.

use std::collections::BinaryHeap;

use edgeward_policy::digest::Digest;

use super::{Content, NEVER, OfflineCache, OfflineConfig, RecordedTrace};

/// A cache that evicts objects by their next requests.
#[derive(Debug)]
pub(super) struct Belady<'a> {
    trace: &'a RecordedTrace,
    charges: Vec<u64>,
    by_size: bool,
    capacity_bytes: u64,
    used_bytes: u64,
    /// The resident objects, in classes of similar sizes. Without sizes, all objects are in the first class.
    classes: Vec<Class>,
    /// True for each resident object.
    resident: Vec<bool>,
    /// The victims of the current request. Empty between requests; kept for its allocation.
    victims: Vec<Candidate>,
    digest: Digest,
}

/// The resident objects of one class, the furthest next request first. An entry whose next request has passed is
/// obsolete, because that request was a hit.
#[derive(Debug, Default)]
struct Class {
    queue: BinaryHeap<Candidate>,
    residents: usize,
}

/// An object with the number of its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    next_request: u32,
    object: u32,
}

impl<'a> Belady<'a> {
    /// Makes an empty cache. With `by_size`, the score is multiplied by the charge.
    pub(super) fn new(trace: &'a RecordedTrace, config: &OfflineConfig, by_size: bool) -> Self {
        let charges = trace.charges(config.object_overhead_bytes);
        Self {
            trace,
            resident: vec![false; charges.len()],
            charges,
            by_size,
            capacity_bytes: config.capacity_bytes,
            used_bytes: 0,
            classes: Vec::new(),
            victims: Vec::new(),
            digest: Digest::default(),
        }
    }

    fn hit(&mut self, now: u32, candidate: Candidate) {
        if candidate.next_request == NEVER {
            self.remove(candidate.object);
        } else {
            self.push(now, candidate);
        }
    }

    fn miss(&mut self, now: u32, candidate: Candidate) {
        let object = candidate.object as usize;
        let charge_bytes = self.charges[object];
        if !self.make_space(now, candidate, charge_bytes) {
            self.digest.rejected(charge_bytes);
            return;
        }
        self.digest.admitted(charge_bytes);
        let class = self.class(candidate.object);
        if class >= self.classes.len() {
            self.classes.resize_with(class + 1, Class::default);
        }
        self.classes[class].residents += 1;
        self.resident[object] = true;
        self.used_bytes += charge_bytes;
        self.push(now, candidate);
    }

    /// Evicts objects until the candidate fits. Returns false, and evicts no object, if the candidate is rejected.
    fn make_space(&mut self, now: u32, candidate: Candidate, charge_bytes: u64) -> bool {
        if candidate.next_request == NEVER || charge_bytes > self.capacity_bytes {
            return false;
        }
        let score = self.score(now, candidate);
        let mut free_bytes = self.capacity_bytes - self.used_bytes;
        let mut is_rejected = false;
        let mut victims = std::mem::take(&mut self.victims);
        while free_bytes < charge_bytes && !is_rejected {
            let (victim_score, victim) = self
                .pop_highest(now)
                .expect("a cache without victims has space for the candidate");
            free_bytes += self.charges[victim.object as usize];
            is_rejected = victim_score <= score;
            victims.push(victim);
        }
        for victim in victims.drain(..) {
            if is_rejected {
                let class = self.class(victim.object);
                self.classes[class].queue.push(victim);
            } else {
                self.remove(victim.object);
            }
        }
        self.victims = victims;
        !is_rejected
    }

    /// Removes a resident object. Its entry in a queue, if any, remains.
    fn remove(&mut self, object: u32) {
        let class = self.class(object);
        self.classes[class].residents -= 1;
        self.resident[object as usize] = false;
        self.used_bytes -= self.charges[object as usize];
        self.digest.evicted(object.into());
    }

    /// Takes the object with the highest score of the first objects of all queues from its queue. Returns the score and
    /// the object.
    fn pop_highest(&mut self, now: u32) -> Option<(u128, Candidate)> {
        let mut highest: Option<(u128, usize)> = None;
        for (class, Class { queue, .. }) in self.classes.iter().enumerate() {
            let Some(&candidate) = queue.peek() else {
                continue;
            };
            if candidate.next_request > now {
                let score = self.score(now, candidate);
                if highest.is_none_or(|(other, _)| score > other) {
                    highest = Some((score, class));
                }
            }
        }
        let (score, class) = highest?;
        let candidate = self.classes[class].queue.pop();
        candidate.map(|candidate| (score, candidate))
    }

    /// Adds a resident object to its queue. Removes obsolete entries when they are more than half of the queue.
    fn push(&mut self, now: u32, candidate: Candidate) {
        let class = self.class(candidate.object);
        let Class { queue, residents } = &mut self.classes[class];
        queue.push(candidate);
        if queue.len() > 2 * *residents + QUEUE_SLACK {
            queue.retain(|entry| entry.next_request > now);
        }
    }

    fn score(&self, now: u32, candidate: Candidate) -> u128 {
        let requests = u128::from(candidate.next_request - now);
        match self.by_size {
            true => requests * u128::from(self.charges[candidate.object as usize].max(1)),
            false => requests,
        }
    }

    /// Returns the class of an object. Each power of two has eight classes: the class consists of the exponent of the
    /// charge and the three bits below its highest bit.
    fn class(&self, object: u32) -> usize {
        if !self.by_size {
            return 0;
        }
        let charge = self.charges[object as usize];
        match charge.checked_ilog2() {
            Some(exponent @ 3..) => {
                (8 * exponent as usize) + ((charge >> (exponent - 3)) & 7) as usize
            }
            _ => charge as usize,
        }
    }
}

impl OfflineCache for Belady<'_> {
    fn request(&mut self, number: u32, object: u32) -> bool {
        let candidate = Candidate {
            next_request: self.trace.next_requests[number as usize],
            object,
        };
        let is_hit = self.resident[object as usize];
        if is_hit {
            self.hit(number, candidate);
        } else {
            self.miss(number, candidate);
        }
        is_hit
    }

    fn content(&self) -> Content {
        let queued = |class: &Class| class.queue.capacity() * size_of::<Candidate>();
        let residents = |class: &Class| class.residents as u64;
        Content {
            used_bytes: self.used_bytes,
            residents: self.classes.iter().map(residents).sum(),
            bookkeeping_bytes: self.classes.iter().map(queued).sum(),
            digest: self.digest,
        }
    }
}

/// The number of obsolete entries that a queue may have in addition to one per resident object.
const QUEUE_SLACK: usize = 64;
