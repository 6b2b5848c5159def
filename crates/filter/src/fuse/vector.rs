//! Many questions, compiled for processors with AVX2: the same code as [`ask::many`], by which the compiler
//! works on four ids at once and shifts without moving shift counts about.
//!
//! # Why `unsafe`
//!
//! That the processor has these instructions the compiler cannot know: a value of [`Avx2`] is made by asking the
//! processor and in no other way, so holding one is the proof.
#![expect(
    unsafe_code,
    reason = "instructions not every processor has; the module's doc says what makes it sound"
)]

use std::arch::is_x86_feature_detected;

use super::ask::{self, Shard};
use crate::id::IdHash;

/// Proof that this processor has AVX2 and the shifts that came with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    /// Asks the processor; the answer is remembered.
    pub(super) fn detect() -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2");
        is_there.then_some(Self(()))
    }

    /// As [`ask::many`].
    pub(super) fn many(self, ids: &[IdHash], shards: &[Shard], bytes: &[u8], answers: &mut [bool]) {
        // SAFETY: the processor has both, or there were no `self`.
        unsafe { many(ids, shards, bytes, answers) }
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn many(ids: &[IdHash], shards: &[Shard], bytes: &[u8], answers: &mut [bool]) {
    ask::many(ids, shards, bytes, answers);
}
