//! The memory tier of a simulation run: the tier of the server and an index of its objects, but no bodies.

use std::cell::OnceCell;

use edgeward_policy::{
    AnyTier, Evicted, HitRecorder, Object, Objective, PolicySpec, Slot, Verdict, adaptsize::Tuning,
    admission::AdmissionTuner,
};
use edgeward_types::{KeyHash, Seed, charge_bytes};

use crate::cost::OriginCost;
use crate::objects::{ObjectNumber, ObjectNumbers, ObjectSet, Request};

/// A tier with its index and its tuner.
#[derive(Debug)]
pub(crate) struct Ram {
    residents: ObjectSet,
    /// The slot of each object that was ever admitted, by its number. Valid while the object is resident.
    slots: Vec<Slot>,
    /// The object of each slot that was ever used. Valid while the object is resident.
    objects: Vec<Resident>,
    tier: AnyTier,
    hit_recorder: HitRecorder,
    tuner: Option<Box<dyn AdmissionTuner>>,
    evicted: Vec<Evicted>,
    /// The capacity for objects and uncharged bookkeeping.
    capacity_bytes: u64,
    /// Bytes charged per object in addition to its body; see [`charge_bytes`].
    overhead_bytes: u64,
    /// Bytes charged per object in addition to its charge by [`charge_bytes`].
    metadata_bytes: u64,
    objective: Objective,
    origin_cost: OriginCost,
}

impl Ram {
    /// `window_requests` is the number of requests between two steps of the tuner, or `None` for the default.
    pub(crate) fn new(
        policy: PolicySpec,
        capacity_bytes: u64,
        overhead_bytes: u64,
        window_requests: Option<u32>,
        seed: Seed,
    ) -> Self {
        let tier = policy.tier(capacity_bytes, seed);
        Self {
            residents: ObjectSet::default(),
            slots: Vec::new(),
            objects: Vec::new(),
            hit_recorder: tier.hit_recorder(),
            // The tier's capacity differs from the configured one for the policy `infinite`.
            capacity_bytes: tier.capacity_bytes(),
            tier,
            tuner: policy.tuner(capacity_bytes, window_requests),
            evicted: Vec::new(),
            overhead_bytes,
            metadata_bytes: 0,
            objective: Objective::default(),
            origin_cost: OriginCost::default(),
        }
    }

    pub(crate) fn set_metadata_bytes(&mut self, bytes: u64) {
        self.metadata_bytes = bytes;
    }

    pub(crate) fn set_objective(&mut self, objective: Objective, origin_cost: OriginCost) {
        self.objective = objective;
        self.origin_cost = origin_cost;
    }

    pub(crate) fn objective(&self) -> Objective {
        self.objective
    }

    pub(crate) fn origin_cost(&self) -> OriginCost {
        self.origin_cost
    }

    /// Returns true if the object is present, and records the hit.
    #[inline]
    pub(crate) fn hit(&self, object: ObjectNumber) -> bool {
        let resident = self.residents.contains(object);
        if resident {
            self.hit_recorder.hit_alone(self.slots[object.index()]);
        }
        resident
    }

    /// Returns true if the object is present, without recording a hit.
    pub(crate) fn holds(&self, object: ObjectNumber) -> bool {
        self.residents.contains(object)
    }

    /// Offers an object that is not present. Returns the evicted objects; their `size_bytes` is the size of the
    /// object, not its charge.
    pub(crate) fn offer(&mut self, request: &Request) -> &[Evicted] {
        self.offer_worth(request, 1.0)
    }

    /// Offers an object that is not present, as [`offer`](Self::offer). A hit on it has `worth` times the benefit by the
    /// objective.
    pub(crate) fn offer_worth(&mut self, request: &Request, worth: f64) -> &[Evicted] {
        self.evicted.clear();
        let object = Object {
            key: KeyHash(request.key),
            size_bytes: self.charge(request.size),
        };
        self.reserve_bookkeeping();
        let fetch_seconds = || self.origin_cost.seconds(1, request.size);
        let benefit = self.objective.benefit(object.size_bytes, fetch_seconds);
        let benefit = benefit.times(worth);
        let verdict = self.tier.offer(&object, benefit, &mut self.evicted);
        for evicted in &mut self.evicted {
            let resident = &self.objects[evicted.slot.index()];
            evicted.object.size_bytes = resident.size_bytes;
            self.residents.remove(resident.object);
        }
        if let Verdict::Admit(slot) = verdict {
            self.enter(request, slot);
        }
        &self.evicted
    }

    /// Returns true if requests must be passed to [`record`](Self::record).
    pub(crate) fn is_tuned(&self) -> bool {
        self.tuner.is_some()
    }

    /// Passes a request to the tuner. Returns the result of its step if this request completed a window and the tuner
    /// has a model.
    pub(crate) fn record(&mut self, request: &Request, hit: bool) -> Option<Tuning> {
        let charge_bytes = self.charge(request.size);
        let tuner = self.tuner.as_mut()?;
        if !tuner.record(KeyHash(request.key), charge_bytes, hit) {
            return None;
        }
        // Only AdaptSize's horizon mode queries residents, by key. Its step takes about 0.1 s, much longer than
        // building this table.
        let by_key = OnceCell::new();
        let (objects, residents, slots) = (&self.objects, &self.residents, &self.slots);
        let is_resident = |key: KeyHash| {
            let by_key = by_key.get_or_init(|| residents_by_key(objects, residents, slots));
            by_key.find(key.0).is_some()
        };
        let step = tuner.step(&is_resident);
        self.tier.set_c(step.c);
        step.tuning
    }

    pub(crate) fn tier(&self) -> &AnyTier {
        &self.tier
    }

    /// Returns the bytes of bookkeeping of the tier and the index.
    pub(crate) fn bookkeeping_bytes(&self) -> usize {
        self.tier.bookkeeping_bytes()
            + self.residents.memory_bytes()
            + self.slots.capacity() * size_of::<Slot>()
            + self.objects.capacity() * size_of::<Resident>()
    }

    fn enter(&mut self, request: &Request, slot: Slot) {
        let number = request.object;
        self.residents.insert(number);
        // The value at an unused position is never read.
        if number.index() >= self.slots.len() {
            self.slots.resize(number.index() + 1, slot);
        }
        self.slots[number.index()] = slot;
        let resident = Resident {
            key: request.key,
            size_bytes: request.size,
            object: number,
        };
        if slot.index() >= self.objects.len() {
            self.objects.resize(slot.index() + 1, resident);
        }
        self.objects[slot.index()] = resident;
    }

    /// Reduces the tier's capacity by its uncharged bookkeeping, as the server does. If the overhead is 0, bookkeeping
    /// is not charged at all.
    fn reserve_bookkeeping(&mut self) {
        if self.overhead_bytes > 0 {
            let capacity_bytes = self
                .capacity_bytes
                .saturating_sub(self.tier.uncharged_bytes());
            if capacity_bytes != self.tier.capacity_bytes() {
                self.tier.resize(capacity_bytes, &mut self.evicted);
            }
        }
    }

    pub(crate) fn charge(&self, size_bytes: u64) -> u64 {
        charge_bytes(size_bytes, self.overhead_bytes).saturating_add(self.metadata_bytes)
    }
}

/// Returns a table of the keys of the resident objects.
fn residents_by_key(objects: &[Resident], residents: &ObjectSet, slots: &[Slot]) -> ObjectNumbers {
    let mut by_key = ObjectNumbers::default();
    for (slot, resident) in objects.iter().enumerate() {
        let number = resident.object;
        if residents.contains(number) && slots[number.index()].index() == slot {
            by_key.number(resident.key, resident.size_bytes);
        }
    }
    by_key
}

/// The object of a slot.
#[derive(Clone, Copy, Debug)]
struct Resident {
    key: u64,
    /// The size of the object, without the overhead.
    size_bytes: u64,
    object: ObjectNumber,
}
