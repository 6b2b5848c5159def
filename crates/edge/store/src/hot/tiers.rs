//! The tier of the current policy and, during a change of policy, the tier of the previous policy.
//!
//! Tiers are numbered in the order in which they became current. While the objects move, the current tier has the
//! number `n` and the previous tier `n - 1`, so one bit distinguishes their slots: a slot of an odd tier has a mark
//! ([`Slot::with_mark`]). This module sets the mark of each slot that it returns, and clears it for the tiers.

use std::collections::HashMap;

use edgeward_policy::{AnyTier, Benefit, Evicted, Object, PolicySpec, RejectReason, Slot, Verdict};

/// The tiers. Every object is in one of them.
#[derive(Debug)]
pub(super) struct Tiers {
    policy: PolicySpec,
    current: AnyTier,
    number: u64,
    /// The tier of the previous policy, while its objects move to the current tier.
    previous: Option<AnyTier>,
    /// The new slot of each fill in progress whose object moved, by its earlier slot. The index does not have such an
    /// object yet. An entry is removed when its fill ends.
    moved_fills: HashMap<SlotOfFill, SlotOfFill>,
}

/// The slot of a fill in progress, with the number of its tier. A fill may outlive its tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SlotOfFill {
    tier: u64,
    slot: Slot,
}

impl Tiers {
    pub(super) fn new(policy: PolicySpec, tier: AnyTier) -> Self {
        Self {
            policy,
            current: tier,
            number: 0,
            previous: None,
            moved_fills: HashMap::new(),
        }
    }

    pub(super) fn policy(&self) -> PolicySpec {
        self.policy
    }

    pub(super) fn current(&self) -> &AnyTier {
        &self.current
    }

    pub(super) fn set_c(&mut self, c_bytes: f64) {
        self.current.set_c(c_bytes);
    }

    /// Returns true while objects move to the current tier.
    pub(super) fn is_changing(&self) -> bool {
        self.previous.is_some()
    }

    /// Returns the mark of the current tier's slots.
    pub(super) fn mark(&self) -> bool {
        self.number % 2 == 1
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.current.used_bytes() + self.previous_used_bytes()
    }

    pub(super) fn residents(&self) -> usize {
        self.all().map(|tier| tier.residents()).sum()
    }

    pub(super) fn bookkeeping_bytes(&self) -> usize {
        self.all().map(|tier| tier.bookkeeping_bytes()).sum()
    }

    /// Returns the bytes of bookkeeping by which the capacity for objects is reduced. While objects move, this is the
    /// larger number of the two tiers. With their sum, a change between similar policies would evict objects.
    pub(super) fn uncharged_bytes(&self) -> u64 {
        let uncharged = self.all().map(|tier| tier.uncharged_bytes());
        uncharged.max().unwrap_or(0)
    }

    /// Offers an object to the current tier.
    pub(super) fn offer(
        &mut self,
        object: &Object,
        benefit: Benefit,
        evicted: &mut Vec<Evicted>,
    ) -> Result<SlotOfFill, RejectReason> {
        let first = evicted.len();
        let verdict = self.current.offer(object, benefit, evicted);
        self.mark_slots(&mut evicted[first..]);
        match verdict {
            Verdict::Admit(slot) => Ok(self.fill(slot)),
            Verdict::Reject(reason) => Err(reason),
        }
    }

    /// Removes the object in a slot. Returns false if the object was already removed or evicted.
    pub(super) fn remove(&mut self, slot: Slot) -> bool {
        let unmarked = slot.with_mark(false);
        match (slot.is_marked() == self.mark(), &mut self.previous) {
            (true, _) => self.current.remove(unmarked),
            (false, Some(previous)) => previous.remove(unmarked),
            (false, None) => false,
        }
    }

    /// Ends a fill. Returns the current slot of its object, or `None` if the object was removed or evicted.
    pub(super) fn end_fill(&mut self, mut fill: SlotOfFill) -> Option<Slot> {
        while let Some(moved) = self.moved_fills.remove(&fill) {
            fill = moved;
        }
        let unmarked = fill.slot.with_mark(false);
        let is_resident = match self.number - fill.tier {
            0 => self.current.holds(unmarked),
            1 => self.previous.as_ref()?.holds(unmarked),
            _ => false,
        };
        is_resident.then_some(fill.slot)
    }

    /// Limits the bytes of both tiers together.
    pub(super) fn resize(&mut self, capacity_bytes: u64, evicted: &mut Vec<Evicted>) {
        let current_bytes = capacity_bytes.saturating_sub(self.previous_used_bytes());
        let first = evicted.len();
        if self.current.capacity_bytes() != current_bytes {
            self.current.resize(current_bytes, evicted);
            self.mark_slots(&mut evicted[first..]);
        }
        let mark = self.mark();
        if let Some(previous) = &mut self.previous
            && previous.used_bytes() > capacity_bytes
        {
            let first = evicted.len();
            previous.resize(capacity_bytes, evicted);
            for object in &mut evicted[first..] {
                object.slot = object.slot.with_mark(!mark);
            }
        }
    }

    /// Returns the capacity of the current tier. While objects move, it lacks the bytes of the previous tier.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.current.capacity_bytes()
    }

    /// Makes `tier`, which must be empty, the current tier. A later call of [`resize`](Self::resize) sets its capacity.
    pub(super) fn begin_change(&mut self, policy: PolicySpec, tier: AnyTier) {
        assert!(self.previous.is_none(), "one change at a time");
        self.previous = Some(std::mem::replace(&mut self.current, tier));
        self.policy = policy;
        self.number += 1;
    }

    /// Takes up to `objects_max` objects out of the previous tier, in the order of eviction. The caller must then
    /// [resize](Self::resize) the current tier and pass each object to [`adopt`](Self::adopt).
    pub(super) fn take_previous(&mut self, objects_max: usize) -> Vec<Evicted> {
        let mark = self.mark();
        let Some(previous) = &mut self.previous else {
            return Vec::new();
        };
        let mut taken = Vec::with_capacity(objects_max);
        while taken.len() < objects_max
            && let Some(mut object) = previous.evict_next()
        {
            object.slot = object.slot.with_mark(!mark);
            taken.push(object);
        }
        taken
    }

    /// Evicts up to `objects_max` objects, in the order of eviction.
    pub(super) fn evict(&mut self, objects_max: usize) -> Vec<Evicted> {
        let mut evicted = self.take_previous(objects_max);
        let first = evicted.len();
        while evicted.len() < objects_max
            && let Some(object) = self.current.evict_next()
        {
            evicted.push(object);
        }
        self.mark_slots(&mut evicted[first..]);
        evicted
    }

    /// Adds an object of the previous tier, or of an earlier process, to the current tier and returns its slot. Returns
    /// `None` if the object does not fit into the tier.
    pub(super) fn adopt(
        &mut self,
        object: &Object,
        was_hit: bool,
        benefit: Benefit,
        evicted: &mut Vec<Evicted>,
    ) -> Option<Slot> {
        let first = evicted.len();
        let slot = self.current.adopt(object, benefit, was_hit, evicted);
        self.mark_slots(&mut evicted[first..]);
        slot.map(|slot| slot.with_mark(self.mark()))
    }

    /// Returns the slot of an object that [`adopt`](Self::adopt) has added to the current tier, and whose value is
    /// stored later.
    pub(super) fn adopted_fill(&self, slot: Slot) -> SlotOfFill {
        SlotOfFill {
            tier: self.number,
            slot,
        }
    }

    /// Records that a fill in progress moved from a slot of the previous tier to a slot of the current tier.
    pub(super) fn record_moved_fill(&mut self, from: Slot, to: Slot) {
        let (tier, number) = (self.number - 1, self.number);
        let from = SlotOfFill { tier, slot: from };
        let to = SlotOfFill {
            tier: number,
            slot: to,
        };
        self.moved_fills.insert(from, to);
    }

    /// Ends the change if the previous tier is empty, and returns this tier, to be freed outside the lock.
    pub(super) fn end_change(&mut self) -> Option<AnyTier> {
        self.previous.take_if(|tier| tier.residents() == 0)
    }

    fn fill(&self, slot: Slot) -> SlotOfFill {
        SlotOfFill {
            tier: self.number,
            slot: slot.with_mark(self.mark()),
        }
    }

    fn previous_used_bytes(&self) -> u64 {
        self.previous.as_ref().map_or(0, |tier| tier.used_bytes())
    }

    fn all(&self) -> impl Iterator<Item = &AnyTier> {
        std::iter::once(&self.current).chain(&self.previous)
    }

    /// Marks the slots of objects evicted from the current tier, if this tier is odd.
    fn mark_slots(&self, evicted: &mut [Evicted]) {
        if self.mark() {
            for object in evicted {
                object.slot = object.slot.with_mark(true);
            }
        }
    }
}
