//! Tuners: they watch all requests, hits included, and set the size parameter of an admission rule.
//!
//! A hit in the server reports the request through the ring of its worker, and one thread runs the tuner; the
//! simulator calls the tuner directly. A hit on the tier itself costs the same with and without a tuner.

use std::fmt::Debug;

use edgeward_types::KeyHash;

use crate::adaptsize::tuning::Tuning;

/// Watches requests on behalf of an admission rule.
pub trait AdmissionTuner: Debug + Send {
    /// Records one request with the object's charged size, hit or miss. Returns true if [`step`](Self::step) is due.
    fn record(&mut self, key: KeyHash, size_bytes: u64, hit: bool) -> bool;

    /// Chooses the rule's size parameter for the next requests. `resident` returns true if a key is in the cache now.
    fn step(&mut self, resident: &dyn Fn(KeyHash) -> bool) -> TunerStep;

    /// Bytes of memory, for the memory budget.
    fn memory_bytes(&self) -> usize;
}

/// The result of a tuner's step.
#[derive(Clone, Debug, PartialEq)]
pub struct TunerStep {
    /// The new size parameter in bytes; see [`Admission::set_c`](super::Admission::set_c).
    pub c: f64,
    /// The prediction, if the tuner has a model of the hit ratio.
    pub tuning: Option<Tuning>,
}

impl TunerStep {
    /// Returns a step of a tuner without a model.
    pub(super) fn without_model(c: f64) -> Self {
        Self { c, tuning: None }
    }
}
