//! A fingerprint of a sequence of decisions, by which a server and a simulator are compared.

use edgeward_types::mix64;

/// Folds every decision into 64 bits, in order.
///
/// Keys stay out of it: an object is known by its size and by the number of the offer that brought
/// it in, so a server that hashes URLs and a simulator that reads ids agree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digest(u64);

impl Digest {
    /// An object came in.
    pub fn admitted(&mut self, size_bytes: u64) {
        self.fold(1, size_bytes);
    }

    /// An object was not let in.
    pub fn refused(&mut self, size_bytes: u64) {
        self.fold(2, size_bytes);
    }

    /// The object that came in with this number left to make room.
    pub fn evicted(&mut self, entered_at: u64) {
        self.fold(3, entered_at);
    }

    /// It would have had to leave, and was written again.
    pub fn reinserted(&mut self, entered_at: u64) {
        self.fold(0, entered_at);
    }

    /// All decisions so far.
    pub fn value(self) -> u64 {
        self.0
    }

    fn fold(&mut self, decision: u64, operand: u64) {
        self.0 = mix64(self.0.rotate_left(5) ^ mix64(operand ^ (decision << 62)));
    }
}
