//! Tests that a tier of lists has the same hits as simple reference implementations of its policies.

mod tiny_lfu;
mod with_ghosts;

use std::collections::VecDeque;

use edgeward_types::Seed;
use proptest::prelude::*;

use super::*;
use crate::test_driver::{Driver, object, size_of_key};

/// A reference implementation of a policy. Each requested object must fit into the tier.
trait Oracle {
    /// Processes a request. Returns true for a hit.
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool;
}

/// Textbook LRU or FIFO: a deque in order of use or admission. The front is the newest object.
#[derive(Default)]
struct TextbookQueue {
    newest_to_oldest: VecDeque<(u64, u64)>,
    moves_on_hit: bool,
}

impl Oracle for TextbookQueue {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        let queue = &mut self.newest_to_oldest;
        if let Some(at) = queue.iter().position(|&(k, _)| k == key) {
            if self.moves_on_hit {
                let entry = queue.remove(at).expect("found there");
                queue.push_front(entry);
            }
            return true;
        }
        queue.push_front((key, size_bytes));
        while queue.iter().map(|&(_, s)| s).sum::<u64>() > capacity_bytes {
            queue.pop_back();
        }
        false
    }
}

/// SIEVE on a vector from the oldest object to the newest: `(key, size, visited)`.
#[derive(Default)]
struct TextbookSieve {
    oldest_to_newest: Vec<(u64, u64, bool)>,
    hand: usize,
}

impl Oracle for TextbookSieve {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        let queue = &mut self.oldest_to_newest;
        if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == key) {
            entry.2 = true;
            return true;
        }
        while queue.iter().map(|entry| entry.1).sum::<u64>() + size_bytes > capacity_bytes {
            if self.hand >= queue.len() {
                self.hand = 0;
            }
            if std::mem::take(&mut queue[self.hand].2) {
                self.hand += 1;
            } else {
                queue.remove(self.hand);
            }
        }
        queue.push((key, size_bytes, false));
        // A hand that passed the newest object restarts at the oldest, not at the object just added.
        if self.hand + 1 >= queue.len() {
            self.hand = 0;
        }
        false
    }
}

/// Segmented LRU on deques from the lowest segment to the highest. The front of a deque is its newest object.
struct TextbookSegments {
    segments: Vec<VecDeque<(u64, u64)>>,
    upper_percent: u64,
}

impl TextbookSegments {
    fn new(segments: usize, upper_percent: u64) -> Self {
        Self {
            segments: vec![VecDeque::new(); segments],
            upper_percent,
        }
    }
}

impl Oracle for TextbookSegments {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        let bytes = |segment: &VecDeque<(u64, u64)>| segment.iter().map(|&(_, s)| s).sum::<u64>();
        let top = self.segments.len() - 1;
        let upper_bytes_max = capacity_bytes * self.upper_percent / 100 / top as u64;
        for n in 0..=top {
            let Some(at) = self.segments[n].iter().position(|&(k, _)| k == key) else {
                continue;
            };
            let entry = self.segments[n].remove(at).expect("found there");
            self.segments[(n + 1).min(top)].push_front(entry);
            for segment in (1..=top).rev() {
                while bytes(&self.segments[segment]) > upper_bytes_max {
                    let demoted = self.segments[segment].pop_back().expect("bytes are used");
                    self.segments[segment - 1].push_front(demoted);
                }
            }
            return true;
        }
        while self.segments.iter().map(bytes).sum::<u64>() + size_bytes > capacity_bytes {
            let lowest = self.segments.iter_mut().find(|segment| !segment.is_empty());
            lowest.expect("bytes are used").pop_back();
        }
        self.segments[0].push_front((key, size_bytes));
        false
    }
}

/// CAMP on a vector in order of the last requests: `(key, size, rank)`.
#[derive(Default)]
struct TextbookCamp {
    oldest_to_newest: Vec<(u64, u64, f64)>,
    inflation: f64,
}

impl TextbookCamp {
    /// `1 / s`, rounded down to five significant bits.
    fn ratio(size_bytes: u64) -> f64 {
        let ratio = 1.0 / size_bytes as f64;
        let unit = (ratio.log2().floor() - 4.0).exp2();
        (ratio / unit).floor() * unit
    }

    /// Returns the position of the object with the lowest rank. Among equal ranks, the smallest object is first; among
    /// these, the oldest.
    fn lowest(&self) -> Option<usize> {
        let entries = self.oldest_to_newest.iter().enumerate();
        let rank = |entry: &(u64, u64, f64)| (entry.2, -Self::ratio(entry.1));
        let lowest = entries.min_by(|a, b| rank(a.1).partial_cmp(&rank(b.1)).expect("no NaN"));
        lowest.map(|(position, _)| position)
    }
}

impl Oracle for TextbookCamp {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        let known = self
            .oldest_to_newest
            .iter()
            .position(|entry| entry.0 == key);
        if let Some(at) = known {
            self.oldest_to_newest.remove(at);
            if let Some(lowest) = self.lowest() {
                self.inflation = self.oldest_to_newest[lowest].2;
            }
        }
        while self
            .oldest_to_newest
            .iter()
            .map(|entry| entry.1)
            .sum::<u64>()
            + size_bytes
            > capacity_bytes
        {
            let lowest = self.lowest().expect("bytes are used");
            self.inflation = self.oldest_to_newest.remove(lowest).2;
        }
        let rank = self.inflation + Self::ratio(size_bytes);
        self.oldest_to_newest.push((key, size_bytes, rank));
        known.is_some()
    }
}

fn compare<O: ListOrder>(oracle: impl Oracle, keys: &[u64], capacity_bytes: u64) {
    compare_with_sizes::<O>(oracle, keys, capacity_bytes, size_of_key);
}

fn compare_with_sizes<O: ListOrder>(
    mut oracle: impl Oracle,
    keys: &[u64],
    capacity_bytes: u64,
    size_of_key: fn(u64) -> u64,
) {
    let tier = ListTier::<O>::new(capacity_bytes, Admission::Always, Seed(1));
    let mut ours = Driver::new(tier);
    for &key in keys {
        let size_bytes = size_of_key(key);
        let hit = oracle.request(key, size_bytes, capacity_bytes);
        assert_eq!(ours.request(key, size_bytes), hit, "key {key}");
    }
}

fn requests() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(0u64..40, 0..400)
}

fn exercise<O: ListOrder>(steps: &[(u8, u64, u64)]) {
    let tier = ListTier::<O>::new(500, Admission::Exponential { c: 60.0 }, Seed(1));
    let mut driver = Driver::new(tier);
    for &(step, key, number) in steps {
        driver.step(step, key, number);
    }
}

proptest! {
    #[test]
    fn lru_equals_textbook_lru(keys in requests(), capacity in 40u64..300) {
        let oracle = TextbookQueue { moves_on_hit: true, ..Default::default() };
        compare::<Lru>(oracle, &keys, capacity);
    }

    #[test]
    fn fifo_equals_textbook_fifo(keys in requests(), capacity in 40u64..300) {
        compare::<Fifo>(TextbookQueue::default(), &keys, capacity);
    }

    #[test]
    fn sieve_equals_a_scan_of_a_vector(keys in requests(), capacity in 40u64..300) {
        compare::<Sieve>(TextbookSieve::default(), &keys, capacity);
    }

    #[test]
    fn camp_equals_a_search_for_the_lowest_rank(keys in requests(), capacity in 40u64..300) {
        compare::<Camp>(TextbookCamp::default(), &keys, capacity);
    }

    #[test]
    fn segmented_lru_equals_deques(keys in requests(), capacity in 40u64..300) {
        compare::<Slru>(TextbookSegments::new(2, 80), &keys, capacity);
        compare::<S4Lru>(TextbookSegments::new(4, 75), &keys, capacity);
    }

    /// The tier keeps its budget, and its counts agree, for any sequence of offers, hits, removals and resizes.
    #[test]
    fn the_budget_is_never_exceeded(
        steps in prop::collection::vec((0u8..10, 0u64..60, 1u64..100), 0..500),
    ) {
        exercise::<Lru>(&steps);
        exercise::<Fifo>(&steps);
        exercise::<Slru>(&steps);
        exercise::<S4Lru>(&steps);
        exercise::<Sieve>(&steps);
        exercise::<Camp>(&steps);
        exercise::<Hyperbolic>(&steps);
    }
}

/// LHD keeps its budget. Its tables are large, so a single sequence of steps is tested.
#[test]
fn the_budget_of_lhd_is_never_exceeded() {
    let number = |n: u64, below: u64| edgeward_types::mix64(n) % below;
    let steps: Vec<(u8, u64, u64)> = (0..20_000)
        .map(|n| {
            (
                number(3 * n, 10) as u8,
                number(3 * n + 1, 60),
                1 + number(3 * n + 2, 99),
            )
        })
        .collect();
    exercise::<Lhd>(&steps);
}

/// A hit protects its object even if the list of hits between two offers is full: objects without hits are evicted
/// first.
#[test]
fn a_hit_beyond_the_list_of_hits_protects_the_object() {
    let objects = 4000;
    let tier = ListTier::<Lru>::new(objects, Admission::Always, Seed(1));
    let mut driver = Driver::new(tier);
    (0..objects).for_each(|key| _ = driver.request(key, 1));
    // These hits fill the list. Then all objects but one in the middle are hit.
    (0..70_000).for_each(|_| assert!(driver.request(0, 1)));
    let without_hit = 2000;
    for key in (0..objects).filter(|&key| key != without_hit) {
        assert!(driver.request(key, 1));
    }
    let mut evicted = Vec::new();
    driver
        .tier
        .offer(&object(objects, 1), Benefit::ONE, &mut evicted);
    assert_eq!(evicted[0].object.key.0, without_hit);
    assert!(!evicted[0].was_hit);
}
