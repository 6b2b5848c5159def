//! A fingerprint of a sequence of decisions.

use crate::rng::scramble;

/// Folds every decision into 64 bits, in order.
///
/// Keys stay out of it: an object is known by its size and by the number of the offer that brought
/// it in, so a server that hashes URLs and a simulator that reads ids agree.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn admitted(&mut self, size_bytes: u64) {
        self.fold(1, size_bytes);
    }

    pub(crate) fn refused(&mut self, size_bytes: u64) {
        self.fold(2, size_bytes);
    }

    pub(crate) fn evicted(&mut self, entered_at: u32) {
        self.fold(3, u64::from(entered_at));
    }

    pub(crate) fn value(self) -> u64 {
        self.0
    }

    fn fold(&mut self, decision: u64, operand: u64) {
        self.0 = scramble(self.0.rotate_left(5) ^ scramble(operand ^ (decision << 62)));
    }
}
