//! LRU-K for K = 2: evicts the object whose second-to-last request is the oldest.
//!
//! An object with a single known request is evicted before all others; among these, the least recently used one is
//! evicted first. A history keeps the time of the last request of evicted objects, which together had at most the bytes
//! of the budget. An object that is admitted again while it is in the history therefore has two known requests. As in
//! the paper's experiments, each request counts: the period of correlated references is zero. libCacheSim has no
//! history; without it, this order has the same hit ratios.
//!
//! Source: O'Neil, O'Neil and Weikum, "The LRU-K Page Replacement Algorithm for Database Disk Buffering", SIGMOD 1993.
//! Cost: O(log n). Memory: about 71 bytes per object, 52 bytes per object of the history.

use std::collections::BTreeMap;

use edgeward_types::Seed;

use super::ghosts::Ghosts;
use super::links::Index;
use super::order::{HitLog, Hits, ListOrder};
use crate::object::Object;

/// Evicts the object whose second-to-last request is the oldest.
#[derive(Debug, Default)]
pub struct LruK {
    /// The residents by the times of their requests; the first is evicted next.
    order: BTreeMap<Requests, Index>,
    /// The times of the requests of each resident, by its index.
    requests: Vec<Requests>,
    history: History,
    capacity_bytes: u64,
    /// The number of requests so far, which is the time of the current request.
    now: u64,
    /// The time of the last request of the offered object, if the history had it.
    remembered: Option<u64>,
}

/// The times of an object's last two requests. Objects are ordered by the older time, then by the newer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Requests {
    /// The time of the second-to-last request, or zero if only one request is known.
    last_but_one: u64,
    last: u64,
}

impl ListOrder for LruK {
    const HITS: Hits = Hits::InOrder;

    fn new(capacity_bytes: u64, _seed: Seed) -> Self {
        Self {
            capacity_bytes,
            ..Self::default()
        }
    }

    fn offered(&mut self, _object: &Object) {
        self.now += 1;
    }

    fn prepare(&mut self, object: &Object) {
        self.remembered = self.history.take(object);
    }

    fn enter(&mut self, index: Index, _object: &Object) {
        let at = index as usize;
        if at >= self.requests.len() {
            self.requests.resize(at + 1, Requests::default());
        }
        self.requests[at] = Requests {
            last_but_one: self.remembered.unwrap_or(0),
            last: self.now,
        };
        self.order.insert(self.requests[at], index);
    }

    fn hit(&mut self, index: Index) {
        self.now += 1;
        let requests = &mut self.requests[index as usize];
        self.order.remove(requests);
        *requests = Requests {
            last_but_one: requests.last,
            last: self.now,
        };
        self.order.insert(*requests, index);
    }

    fn victim(&mut self, _incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        self.order.first_key_value().map(|(_, &index)| index)
    }

    fn evict(&mut self, index: Index, object: &Object) {
        self.remove(index);
        self.history
            .insert(object, self.requests[index as usize].last);
        self.trim_history();
    }

    fn remove(&mut self, index: Index) {
        self.order.remove(&self.requests[index as usize]);
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        self.trim_history();
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.requests.len() * size_of::<Requests>()
            + self.order.len() * TREE_ENTRY_BYTES
            + self.history.bookkeeping_bytes()
    }
}

impl LruK {
    fn trim_history(&mut self) {
        self.history
            .ghosts
            .trim(0, self.capacity_bytes, self.order.len());
    }
}

/// The times of the last requests of evicted objects.
#[derive(Debug)]
struct History {
    ghosts: Ghosts<1>,
    /// The time of each ghost's last request, by the number of the ghost.
    last: Vec<u64>,
}

impl History {
    fn insert(&mut self, object: &Object, last: u64) {
        let index = self.ghosts.insert(0, object) as usize;
        if index >= self.last.len() {
            self.last.resize(index + 1, 0);
        }
        self.last[index] = last;
    }

    /// Removes an object from the history. Returns the time of its last request.
    fn take(&mut self, object: &Object) -> Option<u64> {
        let ghost = self.ghosts.take(object.key)?;
        Some(self.last[ghost.index as usize])
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.ghosts.bookkeeping_bytes() + self.last.len() * size_of::<u64>()
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            ghosts: Ghosts::new(),
            last: Vec::new(),
        }
    }
}

/// The mean bytes of an entry in `LruK::order`: 20 bytes, in nodes that are two thirds full.
const TREE_ENTRY_BYTES: usize = 30;
