//! Least recently used.

use edgeward_types::Seed;

use super::links::{Index, Lists};
use super::order::{HitLog, Hits, ListOrder};
use crate::object::Object;

/// Evicts the object whose last request is the oldest. Cost: O(1).
#[derive(Debug)]
pub struct Lru(Lists<1>);

impl ListOrder for Lru {
    const HITS: Hits = Hits::InOrder;

    fn new(_capacity_bytes: u64, _seed: Seed) -> Self {
        Self(Lists::new())
    }

    fn enter(&mut self, index: Index, object: &Object) {
        self.0.push(0, index, object.size_bytes);
    }

    fn hit(&mut self, index: Index) {
        self.0.move_to(0, index);
    }

    fn victim(&mut self, _incoming: Option<&Object>, _hits: &HitLog<Self>) -> Option<Index> {
        self.0.oldest(0)
    }

    fn remove(&mut self, index: Index) {
        self.0.remove(index);
    }

    fn bookkeeping_bytes(&self) -> usize {
        self.0.bookkeeping_bytes()
    }
}
