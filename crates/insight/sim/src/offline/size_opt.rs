//! SIZE-OPT: LRU with an admission by size that is selected with knowledge of the next requests.
//!
//! The AdaptSize paper (NSDI 2017, sections 6.1 and 6.3) defines SIZE-OPT in one sentence: it tunes the size threshold
//! with a priori knowledge of the next one million requests. Here, each candidate starts from the present content of
//! the cache and processes the next `lookahead_requests` requests. The candidate with the most hits decides the
//! admissions of the first quarter of these requests; then the selection is repeated.
//!
//! A candidate is a threshold (admit up to `c` bytes), the paper's probability `e^(-size/c)`, or the admission of every
//! object. `c` takes each power of two from the smallest object to the capacity. The paper does not say if SIZE-OPT has
//! a threshold or a probability. The best of both has at least as many hits in the known requests as the best of one.
//!
//! SIZE-OPT is not an upper bound: another eviction rule can have more hits.
//!
//! Cost: each request is simulated 4 times for each of about 50 candidates (at 1 GiB). Memory: 24 bytes per object of
//! the trace.

use std::num::NonZeroU32;

use edgeward_policy::digest::Digest;
use edgeward_types::{Seed, mix64};

use super::lru::LruList;
use super::{Content, OfflineCache, OfflineConfig, RecordedTrace};

/// An LRU cache whose admission is selected with knowledge of the future.
#[derive(Debug)]
pub(super) struct SizeOpt<'a> {
    trace: &'a RecordedTrace,
    charges: Vec<u64>,
    seed: Seed,
    lookahead_requests: u32,
    cache: LruList,
    /// The cache in which candidates are tried.
    trial: LruList,
    candidates: Vec<Candidate>,
    /// The selected candidate.
    admission: Candidate,
    /// The number of the request before which the admission is selected again.
    next_selection: u32,
    digest: Digest,
}

/// An admission rule that can be selected.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Candidate {
    /// Admits every object.
    Always,
    /// Admits objects up to this charge.
    Threshold(u64),
    /// Admits an object with probability `e^(-charge/c)`.
    Exponential(f64),
}

impl<'a> SizeOpt<'a> {
    pub(super) fn new(
        trace: &'a RecordedTrace,
        config: &OfflineConfig,
        lookahead_requests: NonZeroU32,
    ) -> Self {
        let charges = trace.charges(config.object_overhead_bytes);
        let smallest = charges.iter().copied().min().unwrap_or(1).max(1);
        let mut candidates = vec![Candidate::Always];
        for exponent in smallest.ilog2()..=config.capacity_bytes.max(1).ilog2() {
            let c = 1 << exponent;
            candidates.push(Candidate::Threshold(c));
            candidates.push(Candidate::Exponential(c as f64));
        }
        Self {
            trace,
            seed: config.seed,
            lookahead_requests: lookahead_requests.get(),
            cache: LruList::new(charges.len(), config.capacity_bytes),
            trial: LruList::new(charges.len(), config.capacity_bytes),
            charges,
            candidates,
            admission: Candidate::Always,
            next_selection: 0,
            digest: Digest::default(),
        }
    }

    /// Selects the candidate with the most hits in the known requests from `now` on. If several candidates have the
    /// most hits, the current one is preferred, then the first.
    fn select(&mut self, now: u32) {
        let mut hits_max = self.hits(now, self.admission);
        for n in 0..self.candidates.len() {
            let candidate = self.candidates[n];
            let hits = self.hits(now, candidate);
            if hits > hits_max {
                (hits_max, self.admission) = (hits, candidate);
            }
        }
        let step = (self.lookahead_requests / STEPS_PER_LOOKAHEAD).max(1);
        self.next_selection = now.saturating_add(step);
    }

    /// Returns the hits of a candidate in `lookahead_requests` requests, from number `now` on.
    fn hits(&mut self, now: u32, candidate: Candidate) -> u64 {
        self.trial.copy_from(&self.cache);
        let known = self.trace.objects[now as usize..]
            .iter()
            .take(self.lookahead_requests as usize);
        let mut hits = 0;
        for (number, &object) in (now..).zip(known) {
            if self.trial.hit(object) {
                hits += 1;
            } else if candidate.admits(self.charges[object as usize], self.seed, number) {
                self.trial.store(object, &self.charges, |_| {});
            }
        }
        hits
    }
}

impl OfflineCache for SizeOpt<'_> {
    fn request(&mut self, number: u32, object: u32) -> bool {
        if number == self.next_selection {
            self.select(number);
        }
        if self.cache.hit(object) {
            return true;
        }
        let charge_bytes = self.charges[object as usize];
        if self.admission.admits(charge_bytes, self.seed, number) {
            self.digest.admitted(charge_bytes);
            let digest = &mut self.digest;
            self.cache.store(object, &self.charges, |evicted| {
                digest.evicted(evicted.into());
            });
        } else {
            self.digest.rejected(charge_bytes);
        }
        false
    }

    fn content(&self) -> Content {
        Content {
            used_bytes: self.cache.used_bytes(),
            residents: self.cache.residents(),
            bookkeeping_bytes: self.cache.bookkeeping_bytes(),
            digest: self.digest,
        }
    }
}

impl Candidate {
    /// Returns true if an object is admitted at request `number`. The random draw depends only on the seed and this
    /// number, so all candidates have the same draws.
    fn admits(self, charge_bytes: u64, seed: Seed, number: u32) -> bool {
        match self {
            Self::Always => true,
            Self::Threshold(c) => charge_bytes <= c,
            Self::Exponential(c) => {
                let draw =
                    (mix64(seed.0 ^ mix64(number.into())) >> 11) as f64 / (1u64 << 53) as f64;
                draw < (-(charge_bytes as f64) / c).exp()
            }
        }
    }
}

/// The number of selections per `lookahead_requests` requests.
const STEPS_PER_LOOKAHEAD: u32 = 4;
