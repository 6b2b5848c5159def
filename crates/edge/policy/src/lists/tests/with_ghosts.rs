//! Tests of the eviction orders that remember evicted objects. The front of each deque is its newest entry.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::*;
use super::{Oracle, compare, compare_with_sizes, exercise, requests};

/// Entries `(key, size)`, from the newest to the oldest.
type Queue = VecDeque<(u64, u64)>;

fn bytes(queue: &Queue) -> u64 {
    queue.iter().map(|&(_, size)| size).sum()
}

fn remove(queue: &mut Queue, key: u64) -> Option<(u64, u64)> {
    let at = queue.iter().position(|&(k, _)| k == key)?;
    queue.remove(at)
}

/// Adds a ghost, and drops the oldest ghosts until at most `bytes_max` bytes remain. Ignores an object that is larger
/// than `bytes_max`.
fn remember(ghosts: &mut Queue, entry: (u64, u64), bytes_max: u64) {
    if entry.1 <= bytes_max {
        ghosts.push_front(entry);
        while bytes(ghosts) > bytes_max {
            ghosts.pop_back();
        }
    }
}

/// S3-FIFO on deques of `(key, size, hits)`.
#[derive(Default)]
struct TextbookS3Fifo {
    small: VecDeque<(u64, u64, u32)>,
    main: VecDeque<(u64, u64, u32)>,
    ghosts: Queue,
}

impl TextbookS3Fifo {
    fn evict(&mut self, main_max: u64) {
        let main_bytes: u64 = self.main.iter().map(|entry| entry.1).sum();
        if main_bytes <= main_max {
            while let Some((key, size, hits)) = self.small.pop_back() {
                if hits < 2 {
                    remember(&mut self.ghosts, (key, size), main_max);
                    return;
                }
                self.main.push_front((key, size, 0));
            }
        }
        while let Some((key, size, hits)) = self.main.pop_back() {
            if hits == 0 {
                return;
            }
            self.main.push_front((key, size, hits - 1));
        }
    }
}

impl Oracle for TextbookS3Fifo {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        let mut residents = self.small.iter_mut().chain(&mut self.main);
        if let Some(entry) = residents.find(|entry| entry.0 == key) {
            entry.2 = (entry.2 + 1).min(3);
            return true;
        }
        let small_max = capacity_bytes / 10;
        let was_ghost = remove(&mut self.ghosts, key).is_some();
        let used = |this: &Self| -> u64 { this.small.iter().chain(&this.main).map(|e| e.1).sum() };
        while used(self) + size_bytes > capacity_bytes {
            if size_bytes > small_max && !was_ghost {
                return false;
            }
            self.evict(capacity_bytes - small_max);
        }
        let queue = if was_ghost {
            &mut self.main
        } else {
            &mut self.small
        };
        queue.push_front((key, size_bytes, 0));
        false
    }
}

/// The full version of 2Q.
#[derive(Default)]
struct TextbookTwoQ {
    a1_in: Queue,
    a1_out: Queue,
    am: Queue,
}

impl Oracle for TextbookTwoQ {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        if let Some(entry) = remove(&mut self.am, key) {
            self.am.push_front(entry);
            return true;
        }
        if self.a1_in.iter().any(|entry| entry.0 == key) {
            return true;
        }
        let a1_in_max = capacity_bytes / 4;
        let was_ghost = remove(&mut self.a1_out, key).is_some();
        while bytes(&self.a1_in) + bytes(&self.am) + size_bytes > capacity_bytes {
            if size_bytes > a1_in_max && !was_ghost {
                return false;
            }
            if bytes(&self.a1_in) > a1_in_max || self.am.is_empty() {
                let evicted = self.a1_in.pop_back().expect("bytes are used");
                remember(&mut self.a1_out, evicted, capacity_bytes / 2);
            } else {
                self.am.pop_back();
            }
        }
        let queue = if was_ghost {
            &mut self.am
        } else {
            &mut self.a1_in
        };
        queue.push_front((key, size_bytes));
        false
    }
}

/// ARC with sizes in bytes.
#[derive(Default)]
struct TextbookArc {
    t1: Queue,
    t2: Queue,
    b1: Queue,
    b2: Queue,
    p: u64,
}

impl TextbookArc {
    fn drop_ghosts(&mut self, c: u64) {
        while bytes(&self.t1) + bytes(&self.b1) > c {
            self.b1.pop_back();
        }
        let all = |this: &Self| -> u64 {
            [&this.t1, &this.t2, &this.b1, &this.b2]
                .map(bytes)
                .iter()
                .sum()
        };
        while all(self) > 2 * c {
            self.b2.pop_back();
        }
    }
}

impl Oracle for TextbookArc {
    fn request(&mut self, key: u64, size_bytes: u64, c: u64) -> bool {
        if let Some(entry) = remove(&mut self.t1, key).or_else(|| remove(&mut self.t2, key)) {
            self.t2.push_front(entry);
            return true;
        }
        let (b1, b2) = (bytes(&self.b1), bytes(&self.b2));
        let in_b1 = remove(&mut self.b1, key).is_some();
        let in_b2 = remove(&mut self.b2, key).is_some();
        if in_b1 {
            self.p = (self.p + size_bytes * b1.max(b2) / b1).min(c);
        } else if in_b2 {
            self.p = self.p.saturating_sub(size_bytes * b1.max(b2) / b2);
        }
        while bytes(&self.t1) + bytes(&self.t2) + size_bytes > c {
            let t1 = bytes(&self.t1);
            if !self.t1.is_empty() && (t1 > self.p || (in_b2 && t1 == self.p) || self.t2.is_empty())
            {
                let evicted = self.t1.pop_back().expect("not empty");
                self.b1.push_front(evicted);
            } else {
                let evicted = self.t2.pop_back().expect("bytes are used");
                self.b2.push_front(evicted);
            }
            self.drop_ghosts(c);
        }
        let list = if in_b1 || in_b2 {
            &mut self.t2
        } else {
            &mut self.t1
        };
        list.push_front((key, size_bytes));
        self.drop_ghosts(c);
        false
    }
}

/// ARC with pages of one size: the four cases of figure 4 of the paper.
#[derive(Default)]
struct PublishedArc {
    t1: VecDeque<u64>,
    t2: VecDeque<u64>,
    b1: VecDeque<u64>,
    b2: VecDeque<u64>,
    p: f64,
}

impl PublishedArc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && ((in_b2 && t1 == self.p) || t1 > self.p) {
            self.b1.push_front(self.t1.pop_back().expect("not empty"));
        } else {
            self.b2
                .push_front(self.t2.pop_back().expect("a page is resident"));
        }
    }
}

impl Oracle for PublishedArc {
    fn request(&mut self, key: u64, _size_bytes: u64, capacity_bytes: u64) -> bool {
        let c = capacity_bytes as usize;
        let holds = |list: &VecDeque<u64>| list.contains(&key);
        let (in_t1, in_t2, in_b1, in_b2) = (
            holds(&self.t1),
            holds(&self.t2),
            holds(&self.b1),
            holds(&self.b2),
        );
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if in_b1 {
            // Each change of `p` is rounded down to whole bytes, as in the tier.
            self.p = (self.p + (b2 / b1).max(1.0).floor()).min(c as f64);
            self.replace(false);
        } else if in_b2 {
            self.p = (self.p - (b1 / b2).max(1.0).floor()).max(0.0);
            self.replace(true);
        } else if !in_t1 && !in_t2 {
            if self.t1.len() + self.b1.len() == c {
                if self.t1.len() < c {
                    self.b1.pop_back();
                    self.replace(false);
                } else {
                    self.t1.pop_back();
                }
            } else {
                let pages = self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len();
                if pages >= c {
                    if pages == 2 * c {
                        self.b2.pop_back();
                    }
                    self.replace(false);
                }
            }
            self.t1.push_front(key);
            return false;
        }
        for list in [&mut self.t1, &mut self.t2, &mut self.b1, &mut self.b2] {
            list.retain(|&page| page != key);
        }
        self.t2.push_front(key);
        in_t1 || in_t2
    }
}

/// LRU-2 with entries `(key, size, times)`. The times are those of all requests that are remembered.
#[derive(Default)]
struct TextbookLru2 {
    residents: Vec<(u64, u64, Vec<u64>)>,
    /// The evicted objects, from the oldest eviction to the newest.
    history: Vec<(u64, u64, Vec<u64>)>,
    now: u64,
}

impl Oracle for TextbookLru2 {
    fn request(&mut self, key: u64, size_bytes: u64, capacity_bytes: u64) -> bool {
        self.now += 1;
        if let Some(entry) = self.residents.iter_mut().find(|entry| entry.0 == key) {
            entry.2.push(self.now);
            return true;
        }
        let remembered = self.history.iter().position(|entry| entry.0 == key);
        // Only the newest request of an evicted object is remembered.
        let last = remembered.and_then(|at| self.history.remove(at).2.pop());
        let times = last.into_iter().chain([self.now]).collect();
        let bytes =
            |entries: &[(u64, u64, Vec<u64>)]| entries.iter().map(|entry| entry.1).sum::<u64>();
        while bytes(&self.residents) + size_bytes > capacity_bytes {
            // Objects are ordered by the second-newest time, or 0 without one, then by the newest time.
            let distance = |entry: &(u64, u64, Vec<u64>)| {
                let mut newest = entry.2.iter().rev().copied();
                let last = newest.next();
                (newest.next().unwrap_or(0), last)
            };
            let first = (0..self.residents.len()).min_by_key(|&at| distance(&self.residents[at]));
            self.history
                .push(self.residents.remove(first.expect("bytes are used")));
            while bytes(&self.history) > capacity_bytes {
                self.history.remove(0);
            }
        }
        self.residents.push((key, size_bytes, times));
        false
    }
}

proptest! {
    #[test]
    fn s3_fifo_equals_deques(keys in requests(), capacity in 40u64..600) {
        compare::<S3Fifo>(TextbookS3Fifo::default(), &keys, capacity);
    }

    #[test]
    fn two_q_equals_deques(keys in requests(), capacity in 40u64..600) {
        compare::<TwoQ>(TextbookTwoQ::default(), &keys, capacity);
    }

    #[test]
    fn arc_equals_deques(keys in requests(), capacity in 40u64..600) {
        compare::<AdaptiveReplacement>(TextbookArc::default(), &keys, capacity);
    }

    #[test]
    fn arc_with_objects_of_one_size_is_the_published_arc(keys in requests(), capacity in 1u64..30) {
        compare_with_sizes::<AdaptiveReplacement>(PublishedArc::default(), &keys, capacity, |_| 1);
    }

    #[test]
    fn lru_2_equals_lists_of_all_requests(keys in requests(), capacity in 40u64..600) {
        compare::<LruK>(TextbookLru2::default(), &keys, capacity);
    }

    /// Any sequence of offers, hits, removals and resizes keeps the tier within its budget and its counts correct.
    #[test]
    fn the_budget_is_never_exceeded(
        steps in prop::collection::vec((0u8..10, 0u64..60, 1u64..100), 0..500),
    ) {
        exercise::<S3Fifo>(&steps);
        exercise::<TwoQ>(&steps);
        exercise::<AdaptiveReplacement>(&steps);
        exercise::<LruK>(&steps);
    }
}
