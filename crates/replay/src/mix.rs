//! Numbers that look random and are not: the same seed and position give the same draw.

/// The finaliser of splitmix64: a bijection that spreads every bit over all others.
pub(crate) const fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Draw `n` of the stream that `seed` starts, without having drawn those before it.
pub(crate) const fn draw(seed: u64, n: u64) -> u64 {
    finalise(seed.wrapping_add(n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A draw as a number in `0.0..1.0`.
pub(crate) fn unit(draw: u64) -> f64 {
    // 53 bits are what an f64 holds exactly.
    (draw >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}
