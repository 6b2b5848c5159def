//! Admission and eviction policies as pure code, used by both the server and the simulator.
//!
//! Start at [`tier`]: a byte budget with an admission rule and an eviction order. There are three kinds of orders:
//! rankings ([`eviction`]), linked lists ([`lists`]), and [`density`]. An [`Objective`] states what
//! they maximise. [`admission`] has the admission rules, and
//! [`adaptsize`] tunes the parameter of one of them. A [`PolicySpec`] is an admission rule and an eviction rule under
//! the names that operators write. [`hierarchy`] decides between memory and disk, and [`log`] manages the space of a
//! disk. [`sketch`] remembers many keys in little memory. A [`KeySample`] of the objects is enough to predict hit
//! ratios. [`digest`] compares the decisions of server and simulator.
#![forbid(unsafe_code)]

pub mod adaptsize;
pub mod admission;
pub mod density;
pub mod digest;
pub mod disk_admission;
pub mod eviction;
mod ghosts;
pub mod hierarchy;
mod key_sample;
pub mod lists;
pub mod log;
mod object;
mod objective;
mod ranked;
pub mod rng;
mod rule_text;
pub mod sketch;
mod slots;
mod spec;
#[cfg(test)]
mod test_driver;
pub mod tier;

pub use admission::{Admission, AdmissionSpec};
pub use disk_admission::{AnyDiskAdmission, DiskAdmissionSpec, DiskRejectReason, DiskVerdict};
pub use eviction::EvictionSpec;
pub use hierarchy::{Hierarchy, HierarchyRules, Placement};
pub use key_sample::KeySample;
pub use object::{Evicted, Object, RejectReason, Verdict};
pub use objective::{Benefit, OBJECTIVE_NAMES, Objective, ParseObjectiveError};
pub use ranked::RankedTier;
pub use rule_text::{
    ADMISSION_NAMES, EVICTION_NAMES, ParsePolicyError, SERVED_ADMISSION_NAMES,
    SERVED_EVICTION_NAMES,
};
pub use slots::{RESIDENTS_MAX, Slot};
pub use spec::PolicySpec;
pub use tier::{AnyTier, BOOKKEEPING_BYTES_CHARGED, HitRecorder, Tier};
