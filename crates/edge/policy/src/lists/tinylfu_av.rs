//! TinyLFU-AV: W-TinyLFU for objects of different sizes. If the main segments are full, an object enters them only if
//! it was requested at least as often as all objects together that it would evict: its aggregated victims (AV).
//!
//! A new object enters a window, which has 1 % of the budget. If the window is too full, its oldest objects are the
//! candidates for the main segments. An object larger than the window is a candidate at once. The main segments evict
//! the oldest objects of probation, then those of the protected segment, which has at most 80 % of the main bytes.
//!
//! A candidate that wins evicts its victims and enters probation. A candidate that loses is evicted, or rejected if it
//! was just offered. The comparison ends as soon as the victims have more requests. The compared victims then move to
//! the protected segment, so that the next candidate is compared with other objects. On the trace bu98 with 2 MiB, this
//! move gains 2.4 points. TinyLFU-AV is therefore an eviction rule: an admission rule cannot change the order of
//! eviction.
//!
//! Source: Einziger, Eytan, Friedman and Manes, "Lightweight Robust Size Aware Cache Management", ACM TOS 2022; the
//! move of the compared victims is from the authors' published code. Cost: amortised O(1) for each evicted object, and
//! at most 4,096 comparisons for a rejected one. Memory: 57 bytes per object, and 8 to 16 for the
//! [sketch](crate::sketch::frequency).

use edgeward_types::Seed;

use super::links::Index;
use super::order::{HitLog, Hits, ListOrder};
use super::tiny_lfu::{PROBATION, Segments, WINDOW};
use crate::object::Object;

/// The policy `tinylfu-av`. It evicts a candidate, or its victims if the candidate has at least as many requests as all
/// of them together.
#[derive(Debug)]
pub struct TinyLfuAv {
    segments: Segments,
    /// The candidate that has won. Its victims are evicted one by one.
    winner: Option<Candidate>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    Offered,
    /// The oldest object of the window.
    Oldest(Index),
}

impl ListOrder for TinyLfuAv {
    const HITS: Hits = Hits::InOrder;

    fn new(capacity_bytes: u64, _seed: Seed) -> Self {
        Self {
            segments: Segments::new(capacity_bytes),
            winner: None,
        }
    }

    fn offered(&mut self, object: &Object) {
        self.segments.sketch.record(object.key);
    }

    fn prepare(&mut self, _object: &Object) {
        self.winner = None;
    }

    fn enter(&mut self, index: Index, object: &Object) {
        let segment = match self.segments.is_large(object) {
            true => PROBATION,
            false => WINDOW,
        };
        self.segments.add(segment, index, object);
        // While the main segments have space, candidates need no comparison.
        while self.segments.bytes(WINDOW) > self.segments.window_bytes_max {
            let oldest = self.segments.oldest(WINDOW).expect("bytes are used");
            if self.excess_bytes(self.segments.size_bytes(oldest)) > 0 {
                return;
            }
            self.segments.move_to(PROBATION, oldest);
        }
    }

    fn hit(&mut self, index: Index) {
        self.segments.hit(index);
    }

    fn victim(&mut self, incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        let large = incoming.filter(|object| self.segments.is_large(object));
        let window_bytes = match large {
            Some(_) => 0,
            None => incoming.map_or(0, |object| object.size_bytes),
        };
        loop {
            let oldest = self.segments.oldest(WINDOW);
            let window_bytes = self.segments.bytes(WINDOW) + window_bytes;
            let (candidate, requests, excess_bytes) = match (large, oldest) {
                (Some(object), _) if self.excess_bytes(object.size_bytes) > 0 => (
                    Candidate::Offered,
                    self.segments.sketch.estimate(object.key),
                    self.excess_bytes(object.size_bytes),
                ),
                (_, Some(oldest)) if window_bytes > self.segments.window_bytes_max => (
                    Candidate::Oldest(oldest),
                    self.segments.estimate(oldest),
                    self.excess_bytes(self.segments.size_bytes(oldest)),
                ),
                // The main segments exceed their share, or the tier shrinks.
                _ => return self.segments.main_victims().next().or(oldest),
            };
            if let (Candidate::Oldest(oldest), 0) = (candidate, excess_bytes) {
                self.segments.move_to(PROBATION, oldest);
                continue;
            }
            if self.winner == Some(candidate) || self.wins(requests, excess_bytes) {
                self.winner = Some(candidate);
                return self.segments.main_victims().next();
            }
            return match candidate {
                Candidate::Offered => None,
                Candidate::Oldest(oldest) => Some(oldest),
            };
        }
    }

    fn remove(&mut self, index: Index) {
        self.segments.remove(index);
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.winner = None;
        self.segments.resize(capacity_bytes);
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.segments.bookkeeping_bytes()
    }
}

impl TinyLfuAv {
    /// Returns the bytes that must be evicted from the main segments before they have space for an object of this size.
    fn excess_bytes(&self, size_bytes: u64) -> u64 {
        (self.segments.main_bytes() + size_bytes).saturating_sub(self.segments.main_bytes_max)
    }

    /// Returns true if a candidate with this number of requests wins against the objects that would be evicted for it.
    /// If the victims have more requests, the compared victims are protected.
    fn wins(&mut self, requests: u32, excess_bytes: u64) -> bool {
        let mut bytes = 0;
        let mut victims_requests = 0;
        let mut compared = 0;
        let mut victims = self.segments.main_victims();
        while bytes < excess_bytes && victims_requests <= requests && compared < COMPARED_MAX {
            let Some(victim) = victims.next() else {
                // The candidate is larger than the main segments.
                return false;
            };
            bytes += self.segments.size_bytes(victim);
            victims_requests += self.segments.estimate(victim);
            compared += 1;
        }
        drop(victims);
        if victims_requests <= requests {
            return true;
        }
        for _ in 0..compared {
            let victim = self.segments.main_victims().next();
            self.segments.protect(victim.expect("it was compared"));
        }
        false
    }
}

/// The maximum number of victims that are compared. A candidate that has not lost by then wins. Without a maximum, a
/// large object could be compared with very many small objects before it is rejected.
const COMPARED_MAX: usize = 4096;
