//! Numbers that look random and are not: the same seed and position give the same draw.

use edgeward_types::mix64;

/// Draw `n` of the stream that `seed` starts, without having drawn those before it.
pub(crate) const fn draw(seed: u64, n: u64) -> u64 {
    mix64(seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A draw as a number in `0.0..1.0`.
pub(crate) fn unit(draw: u64) -> f64 {
    // 53 bits are what an f64 holds exactly.
    (draw >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}
