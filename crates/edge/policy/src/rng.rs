//! Streams of random numbers. A stream depends only on its seed and number, and is the same on every platform.

use edgeward_types::{Seed, SplitMix64};

/// A stream of random numbers: xoshiro256++ (Blackman and Vigna, 2019), seeded with SplitMix64.
///
/// The state has 32 bytes, and a draw takes less than a nanosecond. The numbers are predictable, so they must not be
/// used as secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Makes stream number `stream`. The streams of one seed are independent.
    pub fn new(seed: Seed, stream: u64) -> Self {
        let mut words = SplitMix64(seed.0 ^ SplitMix64(stream).draw());
        Self {
            state: std::array::from_fn(|_| words.draw()),
        }
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// Returns a number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_repeats_its_stream_and_streams_differ() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(Seed(seed), stream);
            [rng.bits(), rng.bits(), rng.bits()]
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
        assert_ne!(draw(7, 0), draw(8, 0));
    }

    #[test]
    fn unit_draws_fill_the_unit_interval_evenly() {
        let mut rng = Rng::new(Seed(1), 0);
        let mut bins = [0u32; 16];
        for _ in 0..160_000 {
            let u = rng.unit();
            assert!((0.0..1.0).contains(&u));
            bins[(u * 16.0) as usize] += 1;
        }
        // 10 000 per bin are expected, with a standard deviation of 97. The limit is five standard deviations.
        assert!(bins.iter().all(|&n| n.abs_diff(10_000) < 485), "{bins:?}");
    }
}
