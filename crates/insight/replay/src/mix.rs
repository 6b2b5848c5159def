//! Deterministic pseudo-random numbers: the same seed and position give the same number.

use edgeward_types::mix64;

/// Returns number `n` of the sequence of `seed`. The numbers before it need not be computed.
pub(crate) const fn draw(seed: u64, n: u64) -> u64 {
    mix64(seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Converts a draw to a number in `0.0..1.0`.
pub(crate) fn unit(draw: u64) -> f64 {
    // An f64 represents 53 bits exactly.
    (draw >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}
