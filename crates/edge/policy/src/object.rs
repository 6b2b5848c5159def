//! An object, and what a tier decides about it.

use edgeward_types::KeyHash;

use crate::slots::Slot;

/// The properties of an object on which decisions depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub key: KeyHash,
    /// The charge of the object: its body and the data stored with it.
    pub size_bytes: u64,
}

/// The result of offering an object to a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The object was admitted into this slot.
    Admit(Slot),
    /// The object was not admitted.
    Reject(RejectReason),
}

/// Why an object was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The object is larger than the tier.
    LargerThanTier,
    /// The admission rule rejected the object.
    Admission,
    /// The object is worth too little compared with the objects that would be evicted for it.
    LowRank,
    /// The tier holds the maximum number of objects.
    ObjectLimit,
}

/// An evicted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its key and the released bytes.
    pub object: Object,
    /// The slot that it occupied.
    pub slot: Slot,
    /// True if the object was hit since its admission.
    pub was_hit: bool,
}
