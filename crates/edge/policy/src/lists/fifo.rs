//! First in, first out: the simplest order. Hits do not change it.

use edgeward_types::Seed;

use super::links::{Index, Lists};
use super::order::{HitLog, Hits, ListOrder};
use crate::object::Object;

/// Evicts the object that was admitted first. Cost: O(1).
#[derive(Debug)]
pub struct Fifo(Lists<1>);

impl ListOrder for Fifo {
    const HITS: Hits = Hits::Ignored;

    fn new(_capacity_bytes: u64, _seed: Seed) -> Self {
        Self(Lists::new())
    }

    fn enter(&mut self, index: Index, object: &Object) {
        self.0.push(0, index, object.size_bytes);
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
