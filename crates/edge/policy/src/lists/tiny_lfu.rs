//! The lists of W-TinyLFU and TinyLFU-AV: a window for new objects, and two main segments.
//!
//! The window is an LRU list with 1 % of the budget. The main segments are a segmented LRU, with at most 80 % of the
//! main bytes in the protected segment. A [`FrequencySketch`] estimates the number of recent requests of each object,
//! resident or not.

use edgeward_types::KeyHash;

use super::links::{Index, Lists};
use crate::object::Object;
use crate::sketch::FrequencySketch;

/// The window, the main segments and the sketch.
#[derive(Debug)]
pub(super) struct Segments {
    lists: Lists<3>,
    /// The key of each resident object, by its index.
    keys: Vec<KeyHash>,
    pub(super) sketch: FrequencySketch,
    pub(super) window_bytes_max: u64,
    pub(super) main_bytes_max: u64,
    pub(super) protected_bytes_max: u64,
}

impl Segments {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let mut segments = Self {
            lists: Lists::new(),
            keys: Vec::new(),
            sketch: FrequencySketch::new(),
            window_bytes_max: 0,
            main_bytes_max: 0,
            protected_bytes_max: 0,
        };
        segments.resize(capacity_bytes);
        segments
    }

    /// Returns true if the object does not fit into the window.
    pub(super) fn is_large(&self, object: &Object) -> bool {
        object.size_bytes > self.window_bytes_max
    }

    /// Adds an admitted object as the newest of `segment`.
    pub(super) fn add(&mut self, segment: usize, index: Index, object: &Object) {
        let at = index as usize;
        if at >= self.keys.len() {
            self.keys.resize(at + 1, object.key);
        }
        self.keys[at] = object.key;
        self.lists.push(segment, index, object.size_bytes);
        let objects = (WINDOW..=PROTECTED).map(|list| self.lists.objects(list));
        self.sketch.set_objects(objects.sum());
    }

    /// Counts a hit. Moves an object of a main segment to the protected segment, as its newest. Returns true if this
    /// demoted objects.
    pub(super) fn hit(&mut self, index: Index) -> bool {
        self.sketch.record(self.keys[index as usize]);
        match self.lists.list_of(index) {
            Some(WINDOW) => {
                self.lists.move_to(WINDOW, index);
                false
            }
            _ => self.protect(index),
        }
    }

    /// Moves an object to the protected segment, as its newest. Returns true if this demoted objects.
    pub(super) fn protect(&mut self, index: Index) -> bool {
        self.lists.move_to(PROTECTED, index);
        self.demote()
    }

    pub(super) fn move_to(&mut self, segment: usize, index: Index) {
        self.lists.move_to(segment, index);
    }

    pub(super) fn remove(&mut self, index: Index) {
        self.lists.remove(index);
    }

    pub(super) fn bytes(&self, segment: usize) -> u64 {
        self.lists.bytes(segment)
    }

    pub(super) fn main_bytes(&self) -> u64 {
        self.bytes(PROBATION) + self.bytes(PROTECTED)
    }

    pub(super) fn size_bytes(&self, index: Index) -> u64 {
        self.lists.size_bytes(index)
    }

    pub(super) fn oldest(&self, segment: usize) -> Option<Index> {
        self.lists.oldest(segment)
    }

    /// Returns the objects of the main segments in the order in which they would be evicted.
    pub(super) fn main_victims(&self) -> impl Iterator<Item = Index> {
        [PROBATION, PROTECTED].into_iter().flat_map(|segment| {
            std::iter::successors(self.oldest(segment), |&index| self.lists.newer(index))
        })
    }

    /// Returns the estimated number of recent requests of a resident object.
    pub(super) fn estimate(&self, index: Index) -> u32 {
        self.sketch.estimate(self.keys[index as usize])
    }

    /// Changes the budget. Returns true if this demoted objects.
    pub(super) fn resize(&mut self, capacity_bytes: u64) -> bool {
        self.window_bytes_max = capacity_bytes / 100;
        self.main_bytes_max = capacity_bytes - self.window_bytes_max;
        self.protected_bytes_max = self.main_bytes_max / 5 * 4;
        self.demote()
    }

    pub(super) fn bookkeeping_bytes(&self) -> usize {
        self.lists.bookkeeping_bytes()
            + self.keys.len() * size_of::<KeyHash>()
            + self.sketch.bookkeeping_bytes()
    }

    /// Moves the oldest protected objects to probation until the protected segment is within its share. Returns true if
    /// any object moved.
    fn demote(&mut self) -> bool {
        let demotes = self.bytes(PROTECTED) > self.protected_bytes_max;
        while self.bytes(PROTECTED) > self.protected_bytes_max {
            let oldest = self.oldest(PROTECTED).expect("bytes are used");
            self.lists.move_to(PROBATION, oldest);
        }
        demotes
    }
}

pub(super) const WINDOW: usize = 0;
pub(super) const PROBATION: usize = 1;
pub(super) const PROTECTED: usize = 2;
