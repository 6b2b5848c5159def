//! Admission and eviction policies as pure code, used by both the server and the simulator.
//!
//! Start at [`tier`]: a byte budget with an admission rule and an eviction order. There are three kinds of orders:
//! rankings ([`eviction`]), linked lists ([`lists`]), and [`density`]. An [`Objective`] states what
//! they maximise. [`admission`] has the admission rules, and
//! [`adaptsize`] tunes the parameter of one of them. A [`PolicySpec`] is an admission rule and an eviction rule under
//! the names that operators write. [`hierarchy`] decides between memory and disk, and [`log`] manages the space of a
//! disk. [`sketch`] remembers many keys in little memory. [`digest`] compares the decisions of server and simulator.
#![forbid(unsafe_code)]

pub mod adaptsize;
pub mod admission;
pub mod density;
pub mod digest;
pub mod disk_admission;
pub mod eviction;
mod ghosts;
pub mod hierarchy;
pub mod lists;
pub mod log;
mod objective;
mod ranked;
pub mod rng;
pub mod sketch;
mod slots;
mod spec;
#[cfg(test)]
mod test_driver;
pub mod tier;

use edgeward_types::KeyHash;

pub use admission::{ADMISSION_NAMES, Admission, AdmissionSpec, SERVED_ADMISSION_NAMES};
pub use disk_admission::{AnyDiskAdmission, DiskAdmissionSpec, DiskRejectReason, DiskVerdict};
pub use eviction::{EVICTION_NAMES, EvictionSpec, SERVED_EVICTION_NAMES};
pub use hierarchy::{Hierarchy, HierarchyRules, Placement};
pub use objective::{Benefit, OBJECTIVE_NAMES, Objective, ParseObjectiveError};
pub use ranked::RankedTier;
pub use slots::{RESIDENTS_MAX, Slot};
pub use spec::{ParsePolicyError, PolicySpec};
pub use tier::{AnyTier, HitRecorder, Tier};

/// The bytes of bookkeeping that a cache adds to the charge of a resident object: in a [`RankedTier`], the object's
/// entry (32 bytes), its entry in the queue (16) and its state in the ranking (8).
///
/// A tier with more bookkeeping reports the rest; see [`Tier::uncharged_bytes`].
pub const BOOKKEEPING_BYTES_CHARGED: u64 = 32 + 16 + 8;

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
