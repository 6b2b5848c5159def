//! S3-FIFO: a small FIFO queue for new objects, a main queue and a ghost queue.
//!
//! A new object enters the small queue, which has 10 % of the budget. The oldest object of this queue moves to the main
//! queue if it was hit at least twice; otherwise it is evicted and becomes a ghost. An object with a ghost enters the
//! main queue. The oldest object of the main queue is evicted if its count of hits is zero; otherwise the count falls
//! by one and the object becomes the newest. Hits are counted up to three. The objects of the ghosts had at most the
//! bytes of the main queue.
//!
//! Queues are measured in bytes, in the paper in objects. An object larger than the small queue would evict all other
//! objects of that queue. It is rejected unless it has a ghost or fits into free space. libCacheSim always rejects it.
//! While its cache fills for the first time, libCacheSim also inserts new objects into the main queue when the small
//! queue is full.
//!
//! Source: Yang, Zhang, Qiu, Yue and Rashmi, "FIFO Queues are All You Need for Cache Eviction", SOSP 2023. Cost:
//! amortised O(1) per eviction, because each examined object that stays was hit; one relaxed store for each of the
//! first three hits. Memory: 49 bytes per object, 44 bytes per ghost.

use edgeward_types::Seed;

use super::ghosts::Ghosts;
use super::links::{Index, Lists};
use super::order::{HitLog, Hits, ListOrder};
use crate::object::Object;

/// Soon evicts new objects with fewer than two hits; evicts other objects in FIFO order when they are no longer hit.
#[derive(Debug)]
pub struct S3Fifo {
    queues: Lists<2>,
    ghosts: Ghosts<1>,
    small_bytes_max: u64,
    main_bytes_max: u64,
    /// True if the object to admit had a ghost.
    was_ghost: bool,
}

impl ListOrder for S3Fifo {
    const HITS: Hits = Hits::Counted(HITS_MAX);

    fn new(capacity_bytes: u64, _seed: Seed) -> Self {
        let mut order = Self {
            queues: Lists::new(),
            ghosts: Ghosts::new(),
            small_bytes_max: 0,
            main_bytes_max: 0,
            was_ghost: false,
        };
        order.resize(capacity_bytes);
        order
    }

    fn prepare(&mut self, object: &Object) {
        self.was_ghost = self.ghosts.take(object.key).is_some();
    }

    fn enter(&mut self, index: Index, object: &Object) {
        let queue = if self.was_ghost { MAIN } else { SMALL };
        self.queues.push(queue, index, object.size_bytes);
    }

    fn victim(&mut self, incoming: Option<&Object>, hits: &HitLog<Self>) -> Option<Index> {
        let is_large = |object: &Object| object.size_bytes > self.small_bytes_max;
        if !self.was_ghost && incoming.is_some_and(is_large) {
            return None;
        }
        if self.queues.bytes(MAIN) <= self.main_bytes_max {
            self.victim_of_small(hits)
                .or_else(|| self.victim_of_main(hits))
        } else {
            self.victim_of_main(hits)
        }
    }

    fn evict(&mut self, index: Index, object: &Object) {
        let is_small = self.queues.remove(index) == Some(SMALL);
        if is_small && object.size_bytes <= self.main_bytes_max {
            self.ghosts.insert(0, object);
            self.trim_ghosts();
        }
    }

    fn remove(&mut self, index: Index) {
        self.queues.remove(index);
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.small_bytes_max = capacity_bytes / SMALL_SHARE;
        self.main_bytes_max = capacity_bytes - self.small_bytes_max;
        self.trim_ghosts();
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.queues.bookkeeping_bytes() + self.ghosts.bookkeeping_bytes()
    }
}

impl S3Fifo {
    /// Returns the oldest object of the small queue with too few hits. Older objects move to the main queue.
    fn victim_of_small(&mut self, hits: &HitLog<Self>) -> Option<Index> {
        loop {
            let oldest = self.queues.oldest(SMALL)?;
            if hits.count(oldest) < PROMOTION_HITS {
                return Some(oldest);
            }
            hits.set_count(oldest, 0);
            self.queues.move_to(MAIN, oldest);
        }
    }

    /// Returns the first object of the main queue whose count of hits is zero.
    fn victim_of_main(&mut self, hits: &HitLog<Self>) -> Option<Index> {
        // Each round reduces each count by one. Concurrent hits may raise counts, so the number of visits is limited.
        let mut visits_left = (usize::from(HITS_MAX) + 1) * self.queues.objects(MAIN);
        loop {
            let oldest = self.queues.oldest(MAIN)?;
            let count = hits.count(oldest);
            if count == 0 || visits_left == 0 {
                return Some(oldest);
            }
            hits.set_count(oldest, count - 1);
            self.queues.move_to(MAIN, oldest);
            visits_left -= 1;
        }
    }

    fn trim_ghosts(&mut self) {
        let residents = self.queues.objects(SMALL) + self.queues.objects(MAIN);
        self.ghosts.trim(0, self.main_bytes_max, residents);
    }
}

const SMALL: usize = 0;
const MAIN: usize = 1;

/// The small queue has one tenth of the budget, as in the paper.
const SMALL_SHARE: u64 = 10;

/// The least number of hits with which an object moves from the small queue to the main queue.
const PROMOTION_HITS: u8 = 2;

/// Hits are counted up to this number.
const HITS_MAX: u8 = 3;
