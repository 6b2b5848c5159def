//! Whether this processor has AVX2, as something to hold.
//!
//! The code for processors with AVX2 may run on no other. Each module that has some takes an [`Avx2`] for it, and that is
//! the proof: a value is made by asking the processor and in no other way.

use std::arch::is_x86_feature_detected;

/// Proof that this processor has AVX2 and the shifts that came with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Asks the processor; the answer is remembered.
    pub(crate) fn detect() -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
        is_there.then_some(Self(()))
    }
}
