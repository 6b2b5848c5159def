//! ARC: two LRU lists whose shares of the capacity adapt to the requests for ghosts.
//!
//! `T1` has the objects with one request, `T2` those with several. `B1` has the ghosts of objects evicted from `T1`,
//! `B2` those of `T2`. `p` is the target size of `T1`: if `T1` is larger, its least recently used object is evicted,
//! otherwise that of `T2`. If `T1` has exactly `p` bytes, an object with a ghost in `B2` also evicts from `T1`. A
//! request for a ghost in `B1` increases `p`; a request for a ghost in `B2` decreases `p`. The object then enters `T2`.
//!
//! The paper has pages of one size. Here all sizes are in bytes:
//!
//! - The budget is `c`. `T1` and `B1` together have at most `c` bytes, all four lists at most `2c`. The oldest ghosts
//!   of `B1`, then those of `B2`, are dropped until both limits hold.
//! - A ghost of `s` bytes in `B1` increases `p` by `s · max(1, |B2| / |B1|)`, and one in `B2` decreases it by
//!   `s · max(1, |B1| / |B2|)`.
//! - Objects are evicted from `T1` or `T2` until the new object fits.
//!
//! If all objects have one size, the evictions are those of the paper, with changes of `p` rounded down to bytes.
//!
//! Source: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003. Cost: O(1). Memory: 49
//! bytes per object, 44 bytes per ghost.

use edgeward_types::Seed;

use super::ghosts::Ghosts;
use super::links::{Index, Lists};
use super::order::{HitLog, Hits, ListOrder};
use crate::object::Object;

/// Balances recency and frequency by the requests of evicted objects.
#[derive(Debug)]
pub struct AdaptiveReplacement {
    /// `T1` and `T2`.
    residents: Lists<2>,
    /// `B1` and `B2`.
    ghosts: Ghosts<2>,
    /// `c`.
    capacity_bytes: u64,
    /// `p`.
    once_bytes_target: u64,
    /// The list that had a ghost of the offered object, or `None` without a ghost.
    ghost_list: Option<usize>,
}

impl ListOrder for AdaptiveReplacement {
    const HITS: Hits = Hits::InOrder;

    fn new(capacity_bytes: u64, _seed: Seed) -> Self {
        Self {
            residents: Lists::new(),
            ghosts: Ghosts::new(),
            capacity_bytes,
            once_bytes_target: 0,
            ghost_list: None,
        }
    }

    fn prepare(&mut self, object: &Object) {
        let [once, again] = [ONCE, AGAIN].map(|list| self.ghosts.bytes(list));
        let ghost = self.ghosts.take(object.key);
        self.ghost_list = ghost.map(|ghost| ghost.list);
        let Some(ghost) = ghost else { return };
        let target = self.once_bytes_target;
        self.once_bytes_target = if ghost.list == ONCE {
            let step = step_bytes(ghost.size_bytes, again, once);
            target.saturating_add(step).min(self.capacity_bytes)
        } else {
            target.saturating_sub(step_bytes(ghost.size_bytes, once, again))
        };
    }

    fn enter(&mut self, index: Index, object: &Object) {
        let list = self.ghost_list.map_or(ONCE, |_| AGAIN);
        self.residents.push(list, index, object.size_bytes);
        self.trim_ghosts();
    }

    fn hit(&mut self, index: Index) {
        self.residents.move_to(AGAIN, index);
    }

    fn victim(&mut self, _incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        let once_bytes = self.residents.bytes(ONCE);
        let (first, second) = if once_bytes > self.once_bytes_target
            || (once_bytes == self.once_bytes_target && self.ghost_list == Some(AGAIN))
        {
            (ONCE, AGAIN)
        } else {
            (AGAIN, ONCE)
        };
        self.residents
            .oldest(first)
            .or_else(|| self.residents.oldest(second))
    }

    fn evict(&mut self, index: Index, object: &Object) {
        let list = self
            .residents
            .remove(index)
            .expect("the object is resident");
        self.ghosts.insert(list, object);
        self.trim_ghosts();
    }

    fn remove(&mut self, index: Index) {
        self.residents.remove(index);
    }

    fn resize(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        self.once_bytes_target = self.once_bytes_target.min(capacity_bytes);
        self.trim_ghosts();
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.residents.bookkeeping_bytes() + self.ghosts.bookkeeping_bytes()
    }
}

impl AdaptiveReplacement {
    /// Drops the oldest ghosts until both limits of bytes hold.
    fn trim_ghosts(&mut self) {
        let [once, again] = [ONCE, AGAIN].map(|list| self.residents.bytes(list));
        let residents = self.residents.objects(ONCE) + self.residents.objects(AGAIN);
        let b1_bytes_max = self.capacity_bytes.saturating_sub(once);
        self.ghosts.trim(ONCE, b1_bytes_max, residents);
        let others = once
            .saturating_add(again)
            .saturating_add(self.ghosts.bytes(ONCE));
        let b2_bytes_max = self.capacity_bytes.saturating_mul(2).saturating_sub(others);
        self.ghosts.trim(AGAIN, b2_bytes_max, residents);
    }
}

/// Returns the change of the target in bytes for a request for a ghost of `size_bytes`. `same` is the sum of the sizes
/// in the ghost's list, including this ghost; `other` is the sum in the other list of ghosts.
fn step_bytes(size_bytes: u64, other: u64, same: u64) -> u64 {
    let step = u128::from(size_bytes) * u128::from(other.max(same)) / u128::from(same.max(1));
    u64::try_from(step).unwrap_or(u64::MAX)
}

/// The number of the lists `T1` and `B1`.
const ONCE: usize = 0;
/// The number of the lists `T2` and `B2`.
const AGAIN: usize = 1;
