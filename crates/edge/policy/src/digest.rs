//! A fingerprint of a sequence of decisions, used to compare the server with the simulator.

use edgeward_types::mix64;

/// Combines all decisions, in order, into 64 bits.
///
/// The digest does not contain keys. An admission or rejection is identified by the object's size. An
/// eviction or reinsertion is identified by the object's number: `n` if the object was the `n`-th object that was
/// offered for admission. A server that hashes URLs and a simulator that reads ids therefore have equal
/// digests if they make the same decisions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Digest(u64);

impl Digest {
    /// Adds an admission.
    pub fn admitted(&mut self, size_bytes: u64) {
        self.fold(1, size_bytes);
    }

    /// Adds a rejection.
    pub fn rejected(&mut self, size_bytes: u64) {
        self.fold(2, size_bytes);
    }

    /// Adds the eviction of an object. `entered_at` is the number of objects offered for admission up to this object.
    pub fn evicted(&mut self, entered_at: u64) {
        self.fold(3, entered_at);
    }

    /// Adds the reinsertion of an object during a reclaim. For `entered_at` see [`evicted`](Self::evicted).
    pub fn reinserted(&mut self, entered_at: u64) {
        self.fold(0, entered_at);
    }

    /// Returns the digest of all decisions.
    pub fn value(self) -> u64 {
        self.0
    }

    fn fold(&mut self, decision: u64, operand: u64) {
        self.0 = mix64(self.0.rotate_left(5) ^ mix64(operand ^ (decision << 62)));
    }
}
