//! The objects asked for more than once: who lives at which rank, and who is still owed a
//! request.
//!
//! Each class has a row of slots, one a rank. A slot is empty until its rank first comes up.
//! A birth puts a new object into an occupied slot; the one before it dies and is drawn no
//! more. To keep the promise that each object here is asked for at least twice, the catalogue
//! counts what it owes: two requests for an object not seen yet, one for an object seen once.

use super::random::Random;
use super::workload::Class;

pub(super) struct Catalogue {
    /// The object living in each slot, or [`EMPTY`].
    slots: Vec<u32>,
    objects: Vec<Object>,
    /// Slots that were empty when last looked at; cleaned when drawn from.
    empty_slots: Vec<u32>,
    /// Objects that were owed a second request when last looked at; cleaned likewise.
    seen_once: Vec<u32>,
    /// Objects that exist by plan and were never asked for.
    unseen: u64,
    /// Objects asked for once so far.
    owed_second: u64,
    rows: Vec<Row>,
}

/// One class's slots.
pub(super) struct Row {
    first: u32,
    pub(super) ranks: u32,
    /// Objects still to be born.
    pub(super) births: u32,
}

#[derive(Clone, Copy)]
struct Object {
    key: u64,
    /// The size, and in the top bit whether it was asked for more than once.
    size: u64,
}

/// What to ask for.
pub(super) enum Request {
    /// An object seen before.
    Known { key: u64, size: u64 },
    /// An object of this class that nobody saw before, to be put into this slot.
    New { class: usize, slot: u32 },
}

impl Catalogue {
    /// Deals `objects` out to the classes by weight; of each class's part the share `churn`
    /// is left to be born.
    pub(super) fn new(classes: &[Class], objects: u64, churn: f64) -> Self {
        let total: f64 = classes.iter().map(|class| class.catalogue_weight).sum();
        let mut rows = Vec::with_capacity(classes.len());
        let (mut first, mut weight_so_far, mut dealt) = (0u32, 0.0, 0u64);
        for class in classes {
            // Dealing by running total leaves no remainder to distribute.
            weight_so_far += class.catalogue_weight;
            let upto = ((objects as f64 * (weight_so_far / total) + 0.5) as u64).min(objects);
            let part = (upto - dealt) as u32;
            dealt = upto;
            let births = ((f64::from(part) * churn) as u32).min(part.saturating_sub(1));
            rows.push(Row {
                first,
                ranks: part - births,
                births,
            });
            first += part - births;
        }
        assert_eq!(dealt, objects, "the running total ends at the whole");
        Self {
            slots: vec![EMPTY; first as usize],
            objects: Vec::new(),
            empty_slots: (0..first).collect(),
            seen_once: Vec::new(),
            unseen: objects,
            owed_second: 0,
            rows,
        }
    }

    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Requests without which the promise would be broken.
    pub(super) const fn owed(&self) -> u64 {
        2 * self.unseen + self.owed_second
    }

    pub(super) fn births_left(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.births)).sum()
    }

    /// Asks for whoever lives at a class's rank.
    #[inline]
    pub(super) fn ask(&mut self, class: usize, rank: u64) -> Request {
        let slot = self.rows[class].first + rank as u32;
        let object = self.slots[slot as usize];
        if object == EMPTY {
            return Request::New { class, slot };
        }
        self.touch(object)
    }

    /// Lets a newcomer take over a class's rank, or fills it if it is empty.
    pub(super) fn bear(&mut self, class: usize, rank: u64) -> Request {
        let row = &mut self.rows[class];
        let slot = row.first + rank as u32;
        if self.slots[slot as usize] != EMPTY {
            assert!(row.births > 0, "births are counted out beforehand");
            row.births -= 1;
        }
        Request::New { class, slot }
    }

    /// Something that is owed, all debts being equally likely.
    pub(super) fn ask_owed(&mut self, random: &mut Random) -> Request {
        assert!(self.owed() > 0, "nothing is owed");
        if random.below(self.unseen + self.owed_second) < self.owed_second {
            loop {
                let at = random.below(self.seen_once.len() as u64) as usize;
                let object = self.seen_once.swap_remove(at);
                if !self.objects[object as usize].asked_again() {
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
            .expect("with no slot empty the unseen are the unborn");
        let rank = random.below(u64::from(self.rows[class].ranks));
        self.bear(class, rank)
    }

    /// Puts a new object where [`Request::New`] said.
    pub(super) fn settle(&mut self, slot: u32, key: u64, size: u64) {
        let object = self.objects.len() as u32;
        self.objects.push(Object { key, size });
        self.slots[slot as usize] = object;
        self.seen_once.push(object);
        self.unseen -= 1;
        self.owed_second += 1;
    }

    #[inline]
    fn touch(&mut self, object: u32) -> Request {
        let object = &mut self.objects[object as usize];
        if !object.asked_again() {
            object.size |= Object::AGAIN;
            self.owed_second -= 1;
        }
        Request::Known {
            key: object.key,
            size: object.size & !Object::AGAIN,
        }
    }
}

impl Object {
    /// Sizes end at 2^53.
    const AGAIN: u64 = 1 << 63;

    const fn asked_again(self) -> bool {
        self.size & Self::AGAIN != 0
    }
}

/// No object: objects are at most `u32::MAX`, so the last has the number before this.
const EMPTY: u32 = u32::MAX;
