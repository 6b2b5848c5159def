//! Tests of W-TinyLFU and TinyLFU-AV. The reference implementations count requests exactly. With the few keys of these
//! tests, the sketch is exact too.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::super::*;
use super::{Oracle, compare_with_sizes, exercise, requests};
use crate::test_driver::{object, size_of_key};

/// Entries `(key, size)`, from the newest to the oldest.
type Queue = VecDeque<(u64, u64)>;

fn bytes(queue: &Queue) -> u64 {
    queue.iter().map(|&(_, size)| size).sum()
}

/// A reference implementation of the lists of both policies, with deques.
#[derive(Default)]
struct Textbook {
    window: Queue,
    probation: Queue,
    protected: Queue,
    requests: HashMap<u64, u32>,
    window_max: u64,
    main_max: u64,
    protected_max: u64,
    /// True after a demotion, until W-TinyLFU clears it.
    has_demoted: bool,
}

impl Textbook {
    /// Counts a request. Returns true for a hit.
    fn count(&mut self, key: u64, capacity_bytes: u64) -> bool {
        self.window_max = capacity_bytes / 100;
        self.main_max = capacity_bytes - self.window_max;
        self.protected_max = self.main_max / 5 * 4;
        let count = self.requests.entry(key).or_default();
        *count = (*count + 1).min(15);
        let take = |queue: &mut Queue| {
            let at = queue.iter().position(|entry| entry.0 == key)?;
            queue.remove(at)
        };
        if let Some(entry) = take(&mut self.window) {
            self.window.push_front(entry);
            return true;
        }
        let main = take(&mut self.probation).or_else(|| take(&mut self.protected));
        let is_hit = main.is_some();
        main.into_iter().for_each(|entry| self.protect(entry));
        is_hit
    }

    fn protect(&mut self, entry: (u64, u64)) {
        self.protected.push_front(entry);
        while bytes(&self.protected) > self.protected_max {
            let demoted = self.protected.pop_back().expect("bytes are used");
            self.probation.push_front(demoted);
            self.has_demoted = true;
        }
    }

    fn main_bytes(&self) -> u64 {
        bytes(&self.probation) + bytes(&self.protected)
    }

    fn used_bytes(&self) -> u64 {
        bytes(&self.window) + self.main_bytes()
    }

    fn take_main_victim(&mut self) -> Option<(u64, u64)> {
        self.probation
            .pop_back()
            .or_else(|| self.protected.pop_back())
    }

    fn put_back(&mut self, victim: (u64, u64), was_probation: bool) {
        match was_probation {
            true => self.probation.push_back(victim),
            false => self.protected.push_back(victim),
        }
    }
}

#[derive(Default)]
struct TextbookWTinyLfu(Textbook);

impl TextbookWTinyLfu {
    fn push_main(&mut self, entry: (u64, u64)) {
        let lists = &mut self.0;
        let probation_max = lists.main_max - lists.protected_max;
        if bytes(&lists.probation) + entry.1 > probation_max
            && bytes(&lists.protected) + entry.1 <= lists.protected_max
        {
            lists.protected.push_front(entry);
        } else {
            lists.probation.push_front(entry);
        }
    }

    /// Evicts one object to make space for an object that fits into the window.
    fn evict(&mut self) {
        loop {
            let lists = &mut self.0;
            let is_over = bytes(&lists.probation) > lists.main_max - lists.protected_max;
            lists.has_demoted = lists.has_demoted && is_over;
            if lists.has_demoted || lists.main_bytes() > lists.main_max {
                lists.take_main_victim();
                return;
            }
            let Some(candidate) = lists.window.pop_back() else {
                lists.take_main_victim();
                return;
            };
            if lists.main_bytes() + candidate.1 <= lists.main_max {
                self.push_main(candidate);
                continue;
            }
            let was_probation = !lists.probation.is_empty();
            let victim = lists.take_main_victim().expect("the main lists are full");
            let wins = lists.requests[&candidate.0] > lists.requests[&victim.0];
            lists.put_back(victim, was_probation);
            if wins {
                self.push_main(candidate);
                for queue in [&mut self.0.probation, &mut self.0.protected] {
                    queue.retain(|entry| entry.0 != victim.0);
                }
            }
            return;
        }
    }
}

impl Oracle for TextbookWTinyLfu {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        if self.0.count(key, capacity_bytes) {
            return true;
        }
        let is_large = size_bytes > self.0.window_max;
        while self.0.used_bytes() + size_bytes > capacity_bytes {
            if is_large {
                return false;
            }
            self.evict();
        }
        match is_large {
            true => self.push_main((key, size_bytes)),
            false => self.0.window.push_front((key, size_bytes)),
        }
        false
    }
}

#[derive(Default)]
struct TextbookTinyLfuAv {
    lists: Textbook,
    /// True if the requested object has won its comparison. The object is then not compared again.
    has_won: bool,
}

impl TextbookTinyLfuAv {
    fn excess(&self, size_bytes: u64) -> u64 {
        (self.lists.main_bytes() + size_bytes).saturating_sub(self.lists.main_max)
    }

    /// Compares a candidate with its victims, and protects the compared victims if it loses.
    fn wins(&mut self, (key, size_bytes): (u64, u64)) -> bool {
        let lists = &mut self.lists;
        let requests = lists.requests[&key];
        let excess = (lists.main_bytes() + size_bytes).saturating_sub(lists.main_max);
        let probation = lists.probation.iter().rev();
        let victims = probation.chain(lists.protected.iter().rev());
        let (mut freed, mut sum, mut compared) = (0, 0, 0);
        for victim in victims {
            if freed >= excess || sum > requests {
                break;
            }
            freed += victim.1;
            sum += lists.requests[&victim.0];
            compared += 1;
        }
        if sum > requests {
            for _ in 0..compared {
                let victim = lists.take_main_victim().expect("it was compared");
                lists.protect(victim);
            }
            return false;
        }
        freed >= excess
    }

    /// Evicts one object, or returns false to reject the requested object.
    fn evict(&mut self, requested: (u64, u64)) -> bool {
        let is_large = requested.1 > self.lists.window_max;
        if is_large && self.excess(requested.1) > 0 {
            self.has_won = self.has_won || self.wins(requested);
            return self.has_won && self.lists.take_main_victim().is_some();
        }
        let window_bytes = bytes(&self.lists.window) + if is_large { 0 } else { requested.1 };
        match self.lists.window.back().copied() {
            Some(oldest) if window_bytes > self.lists.window_max => {
                if self.excess(oldest.1) == 0 {
                    self.lists.window.pop_back();
                    self.lists.probation.push_front(oldest);
                } else if self.wins(oldest) {
                    self.lists.take_main_victim();
                } else {
                    self.lists.window.pop_back();
                }
            }
            _ => {
                if self.lists.take_main_victim().is_none() {
                    self.lists.window.pop_back();
                }
            }
        }
        true
    }
}

impl Oracle for TextbookTinyLfuAv {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        if self.lists.count(key, capacity_bytes) {
            return true;
        }
        self.has_won = false;
        while self.lists.used_bytes() + size_bytes > capacity_bytes {
            if !self.evict((key, size_bytes)) {
                return false;
            }
        }
        match size_bytes > self.lists.window_max {
            true => self.lists.probation.push_front((key, size_bytes)),
            false => self.lists.window.push_front((key, size_bytes)),
        }
        while bytes(&self.lists.window) > self.lists.window_max {
            let oldest = *self.lists.window.back().expect("bytes are used");
            if self.excess(oldest.1) > 0 {
                break;
            }
            self.lists.window.pop_back();
            self.lists.probation.push_front(oldest);
        }
        false
    }
}

/// Sizes from 1 to 321 bytes, most of them below 40.
fn skewed_size_of_key(key: u64) -> u64 {
    1 + size_of_key(key).pow(3) / 200
}

proptest! {
    /// With a small budget, all objects are larger than the window. With a large budget, about half of them are.
    #[test]
    fn w_tinylfu_equals_deques_with_exact_counts(
        keys in requests(),
        small in 40u64..100,
        large in 1000u64..4000,
    ) {
        compare_with_sizes::<WTinyLfu>(TextbookWTinyLfu::default(), &keys, small, size_of_key);
        compare_with_sizes::<WTinyLfu>(TextbookWTinyLfu::default(), &keys, large, skewed_size_of_key);
    }

    /// With a large budget, about half of the objects are larger than the window.
    #[test]
    fn tinylfu_av_equals_deques_with_exact_counts(
        keys in requests(),
        small in 40u64..600,
        large in 1000u64..4000,
    ) {
        compare_with_sizes::<TinyLfuAv>(TextbookTinyLfuAv::default(), &keys, small, size_of_key);
        compare_with_sizes::<TinyLfuAv>(TextbookTinyLfuAv::default(), &keys, large, skewed_size_of_key);
    }

    /// Any sequence of offers, hits, removals and resizes keeps the tier within its budget and its counts correct.
    #[test]
    fn the_budget_is_never_exceeded(
        steps in prop::collection::vec((0u8..10, 0u64..60, 1u64..100), 0..500),
    ) {
        exercise::<WTinyLfu>(&steps);
        exercise::<TinyLfuAv>(&steps);
    }
}

/// A large object is compared with at most 4,096 victims.
///
/// Method: the oldest objects have no requests, the other objects have 15 each. The large object has five.
#[test]
fn a_candidate_that_has_not_lost_after_4096_victims_wins() {
    for (without_requests, wins) in [(4096, true), (4095, false)] {
        let capacity_bytes = 5000;
        let mut order = TinyLfuAv::new(capacity_bytes, Seed(1));
        for index in 0..4300u32 {
            let small = object(u64::from(index), 1);
            if index >= without_requests {
                (0..15).for_each(|_| order.offered(&small));
            }
            order.enter(index, &small);
        }
        let large = object(u64::MAX, 4900);
        (0..5).for_each(|_| order.offered(&large));
        order.prepare(&large);
        let victim = order.victim(Some(&large), &HitLog::new());
        assert_eq!(victim, wins.then_some(0));
    }
}

/// A smaller budget evicts objects of the window that are larger than the new budget.
#[test]
fn a_smaller_budget_evicts_larger_objects_of_the_window() {
    fn resize<O: ListOrder>() {
        let mut tier = ListTier::<O>::new(100_000, Admission::Always, Seed(1));
        let mut evicted = Vec::new();
        tier.offer(&object(1, 900), Benefit::ONE, &mut evicted);
        tier.resize(500, &mut evicted);
        assert_eq!((evicted.len(), tier.used_bytes()), (1, 0));
    }
    resize::<WTinyLfu>();
    resize::<TinyLfuAv>();
}
