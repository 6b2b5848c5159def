//! 2Q: a FIFO queue for new objects, ghosts of the objects that left it, and an LRU list for those that return.
//!
//! A new object enters the queue `A1in`, in which hits do not move it. If `A1in` exceeds 25 % of the budget, its oldest
//! object is evicted and becomes a ghost in `A1out`. Otherwise the least recently used object of the list `Am` is
//! evicted. An object with a ghost enters `Am`. The objects of `A1out` had at most 50 % of the bytes of the budget.
//!
//! Queues are measured in bytes, in the paper in pages. An object larger than the share of `A1in` would evict all other
//! objects of that queue and then objects of `Am`. It is rejected unless it has a ghost or fits into free space.
//!
//! Source: the full version in Johnson and Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement
//! Algorithm", VLDB 1994. Cost: O(1). Memory: 49 bytes per object, 44 bytes per ghost.

use edgeward_types::Seed;

use super::ghosts::Ghosts;
use super::links::{Index, Lists};
use super::order::{HitLog, Hits, ListOrder};
use crate::object::Object;

/// Evicts new objects in FIFO order; objects that were requested again after their eviction are kept in LRU order.
#[derive(Debug)]
pub struct TwoQ {
    /// The lists `A1_IN` and `AM`.
    queues: Lists<2>,
    a1_out: Ghosts<1>,
    a1_in_bytes_max: u64,
    a1_out_bytes_max: u64,
    /// True if the object to admit had a ghost.
    was_ghost: bool,
}

impl ListOrder for TwoQ {
    const HITS: Hits = Hits::InOrder;

    fn new(capacity_bytes: u64, _seed: Seed) -> Self {
        let mut order = Self {
            queues: Lists::new(),
            a1_out: Ghosts::new(),
            a1_in_bytes_max: 0,
            a1_out_bytes_max: 0,
            was_ghost: false,
        };
        order.resize(capacity_bytes);
        order
    }

    fn prepare(&mut self, object: &Object) {
        self.was_ghost = self.a1_out.take(object.key).is_some();
    }

    fn enter(&mut self, index: Index, object: &Object) {
        let queue = if self.was_ghost { AM } else { A1_IN };
        self.queues.push(queue, index, object.size_bytes);
    }

    fn hit(&mut self, index: Index) {
        if self.queues.list_of(index) == Some(AM) {
            self.queues.move_to(AM, index);
        }
    }

    fn victim(&mut self, incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        let is_large = |object: &Object| object.size_bytes > self.a1_in_bytes_max;
        if !self.was_ghost && incoming.is_some_and(is_large) {
            return None;
        }
        let (first, second) = if self.queues.bytes(A1_IN) > self.a1_in_bytes_max {
            (A1_IN, AM)
        } else {
            (AM, A1_IN)
        };
        self.queues
            .oldest(first)
            .or_else(|| self.queues.oldest(second))
    }

    fn evict(&mut self, index: Index, object: &Object) {
        let is_new = self.queues.remove(index) == Some(A1_IN);
        if is_new && object.size_bytes <= self.a1_out_bytes_max {
            self.a1_out.insert(0, object);
            self.trim_ghosts();
        }
    }

    fn remove(&mut self, index: Index) {
        self.queues.remove(index);
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.a1_in_bytes_max = capacity_bytes / 4;
        self.a1_out_bytes_max = capacity_bytes / 2;
        self.trim_ghosts();
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.queues.bookkeeping_bytes() + self.a1_out.bookkeeping_bytes()
    }
}

impl TwoQ {
    fn trim_ghosts(&mut self) {
        let residents = self.queues.objects(A1_IN) + self.queues.objects(AM);
        self.a1_out.trim(0, self.a1_out_bytes_max, residents);
    }
}

const A1_IN: usize = 0;
const AM: usize = 1;
