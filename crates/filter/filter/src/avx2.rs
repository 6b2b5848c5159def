//! A value that proves that the processor has the instruction sets AVX2 and BMI2.
//!
//! Code with these instructions must not run on a processor without them. Each module with such code requires an
//! [`Avx2`] argument. A value of this type exists only if the processor reported both instruction sets.

use std::arch::is_x86_feature_detected;

/// Proof that this processor has AVX2 and BMI2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// Queries the processor; the standard library caches the result.
    pub(crate) fn detect() -> Option<Self> {
        let is_supported = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
        is_supported.then_some(Self(()))
    }
}
