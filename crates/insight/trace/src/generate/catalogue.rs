//! The objects that get two requests or more. The catalogue has the object at each popularity rank, and the
//! objects that still need requests.
//!
//! A class is a group of objects with its own distributions of sizes and popularity. It has a row of slots, one per
//! rank. A slot is empty until its rank is first drawn.
//! A birth puts a new object into an occupied slot; the previous object then gets at most its pending request.
//! Every object of the catalogue gets at least two requests. To ensure this, the catalogue counts
//! the pending requests: two for an object without a request, one for an object with one request.

use super::random::Random;
use super::workload::Class;

pub(super) struct Catalogue {
    /// The object in each slot, or [`EMPTY`].
    slots: Vec<u32>,
    objects: Vec<Object>,
    /// Slots that may be empty. Occupied slots in this list are removed when they are drawn.
    empty_slots: Vec<u32>,
    /// Objects that may have exactly one request. Objects with more requests are removed from this list when
    /// they are drawn.
    requested_once: Vec<u32>,
    /// The number of planned objects without a request.
    unrequested: u64,
    /// The number of objects with exactly one request.
    pending_second: u64,
    rows: Vec<Row>,
}

/// The slots of one class.
pub(super) struct Row {
    /// The index of the first slot in [`Catalogue::slots`].
    first: u32,
    /// The number of slots, and thereby of popularity ranks.
    pub(super) ranks: u32,
    /// The number of objects of the class that must still be born.
    pub(super) births: u32,
}

#[derive(Clone, Copy)]
struct Object {
    key: u64,
    /// The size; the top bit is set after the second request.
    size: u64,
}

/// The object of the next request.
pub(super) enum Request {
    /// An object with earlier requests.
    Existing { key: u64, size: u64 },
    /// A new object of this class, for this slot.
    New { class: usize, slot: u32 },
}

impl Catalogue {
    /// Distributes `objects` over the classes by weight. The share `churn` of each class is
    /// reserved for births.
    pub(super) fn new(classes: &[Class], objects: u64, churn: f64) -> Self {
        let total: f64 = classes.iter().map(|class| class.catalogue_weight).sum();
        let mut rows = Vec::with_capacity(classes.len());
        let (mut first, mut weight_so_far, mut objects_assigned) = (0u32, 0.0, 0u64);
        for class in classes {
            // Rounding the running total leaves no remainder to distribute.
            weight_so_far += class.catalogue_weight;
            let objects_end =
                ((objects as f64 * (weight_so_far / total) + 0.5) as u64).min(objects);
            let part = (objects_end - objects_assigned) as u32;
            objects_assigned = objects_end;
            let births = ((f64::from(part) * churn) as u32).min(part.saturating_sub(1));
            rows.push(Row {
                first,
                ranks: part - births,
                births,
            });
            first += part - births;
        }
        assert_eq!(
            objects_assigned, objects,
            "the classes have all objects together"
        );
        Self {
            slots: vec![EMPTY; first as usize],
            objects: Vec::new(),
            empty_slots: (0..first).collect(),
            requested_once: Vec::new(),
            unrequested: objects,
            pending_second: 0,
            rows,
        }
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The number of requests that are still needed so that every object has two requests.
    pub(super) const fn pending(&self) -> u64 {
        2 * self.unrequested + self.pending_second
    }

    pub(super) fn births_left(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.births)).sum()
    }

    /// Returns a request for the object at a rank of a class. If the slot is empty, the object is new.
    #[inline]
    pub(super) fn request(&mut self, class: usize, rank: u64) -> Request {
        let slot = self.rows[class].first + rank as u32;
        let object = self.slots[slot as usize];
        if object == EMPTY {
            return Request::New { class, slot };
        }
        self.touch(object)
    }

    /// Returns a request for a new object at a rank of a class. The new object replaces the object at this rank, if
    /// the slot is not empty.
    pub(super) fn request_new(&mut self, class: usize, rank: u64) -> Request {
        let row = &mut self.rows[class];
        let slot = row.first + rank as u32;
        if self.slots[slot as usize] != EMPTY {
            assert!(row.births > 0, "the caller checks that births remain");
            row.births -= 1;
        }
        Request::New { class, slot }
    }

    /// Returns a request for an object with pending requests. Objects with one request and objects without a request
    /// have the same probability.
    pub(super) fn request_pending(&mut self, random: &mut Random) -> Request {
        assert!(self.pending() > 0, "no request is pending");
        if random.below(self.unrequested + self.pending_second) < self.pending_second {
            loop {
                let at = random.below(self.requested_once.len() as u64) as usize;
                let object = self.requested_once.swap_remove(at);
                if !self.objects[object as usize].requested_again() {
                    return self.touch(object);
                }
            }
        }
        while !self.empty_slots.is_empty() {
            let at = random.below(self.empty_slots.len() as u64) as usize;
            let slot = self.empty_slots.swap_remove(at);
            if self.slots[slot as usize] == EMPTY {
                let class = self
                    .rows
                    .partition_point(|row| row.first + row.ranks <= slot);
                return Request::New { class, slot };
            }
        }
        let class = self
            .rows
            .iter()
            .position(|row| row.births > 0)
            .expect("without an empty slot all unrequested objects are births");
        let rank = random.below(u64::from(self.rows[class].ranks));
        self.request_new(class, rank)
    }

    /// Puts a new object into the slot of [`Request::New`].
    pub(super) fn insert(&mut self, slot: u32, key: u64, size: u64) {
        let object = self.objects.len() as u32;
        self.objects.push(Object { key, size });
        self.slots[slot as usize] = object;
        self.requested_once.push(object);
        self.unrequested -= 1;
        self.pending_second += 1;
    }

    #[inline]
    fn touch(&mut self, object: u32) -> Request {
        let object = &mut self.objects[object as usize];
        if !object.requested_again() {
            object.size |= Object::REPEATED_BIT;
            self.pending_second -= 1;
        }
        Request::Existing {
            key: object.key,
            size: object.size & !Object::REPEATED_BIT,
        }
    }
}

impl Object {
    /// The bit that is set after the second request. Sizes are at most 2^53, so they do not use this bit.
    const REPEATED_BIT: u64 = 1 << 63;

    const fn requested_again(self) -> bool {
        self.size & Self::REPEATED_BIT != 0
    }
}

/// Marks an empty slot. There are at most `u32::MAX` objects, numbered from 0.
const EMPTY: u32 = u32::MAX;
