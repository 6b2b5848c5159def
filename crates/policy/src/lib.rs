//! What to admit, what to evict: pure decisions, driven alike by the server and the simulator.
//!
//! Start at [`tier`]: one byte budget with a rule of admission and a ranking for eviction. The
//! parameter of a size-aware admission is chosen by [`adaptsize`]. [`PolicySpec`] puts them together
//! by the names operators write.
#![forbid(unsafe_code)]

pub mod adaptsize;
pub mod admission;
mod any;
pub mod digest;
pub mod disk_admission;
pub mod eviction;
pub mod hierarchy;
pub mod log;
pub mod rng;
pub mod sketch;
mod slots;
mod spec;
pub mod tier;

use edgeward_types::KeyHash;

pub use admission::Admission;
pub use any::{AnyTier, AnyTouch};
pub use disk_admission::{AnyDiskAdmission, DiskAdmissionSpec, DiskRefusal, DiskVerdict};
pub use hierarchy::{Hierarchy, HierarchyRules, Placement};
pub use slots::{RESIDENTS_MAX, Slot};
pub use spec::{ParsePolicyError, PolicySpec};
pub use tier::{Tier, Touch};

/// What a decision needs to know of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub key: KeyHash,
    /// What it costs the tier: its bytes and all that is kept beside them.
    pub size_bytes: u64,
}

/// The answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has a place.
    Admit(Slot),
    /// It passes by.
    Refuse(Refusal),
}

/// Why an object was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It would not fit if everything else left.
    LargerThanTier,
    /// The rule of admission said no.
    Admission,
    /// The tier holds as many objects as it can number.
    ObjectLimit,
}

/// One that had to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Its key and the bytes that came free.
    pub object: Object,
    /// The place it had.
    pub slot: Slot,
    /// Whether it was hit since it entered.
    pub was_hit: bool,
}
