//! The random number generator: xoshiro256++ seeded by SplitMix64.
//!
//! Algorithms: Blackman, Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS
//! 47(4), 2021; Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.

use edgeward_types::{Seed, SplitMix64};

use super::math;

/// A random number generator.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: [u64; 4],
}

impl Random {
    pub(super) fn new(seed: Seed) -> Self {
        let mut words = SplitMix64(seed.0);
        Self {
            state: std::array::from_fn(|_| words.draw()),
        }
    }

    /// Returns 64 random bits.
    #[inline]
    pub(super) fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Returns a uniform number in `[0, 1)`, from the high 53 bits.
    #[inline]
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniform number in `(0, 1]`; its logarithm is finite.
    #[inline]
    pub(super) fn unit_above_zero(&mut self) -> f64 {
        1.0 - self.unit()
    }

    /// Returns a uniform number in `0..bound`, by multiplication. The bias is below `bound / 2^64`, which is
    /// too small to be visible in a trace.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a standard normal number, by Marsaglia's polar method, without trigonometric functions.
    pub(super) fn normal(&mut self) -> f64 {
        loop {
            let (u, v) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                return u * (-2.0 * math::ln(s) / s).sqrt();
            }
        }
    }

    /// Returns an exponentially distributed number with mean 1.
    #[inline]
    pub(super) fn exponential(&mut self) -> f64 {
        -math::ln(self.unit_above_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output equals that of the reference implementations, for SplitMix64 with seed 0 and for
    /// xoshiro256++ with the state 1, 2, 3, 4.
    #[test]
    fn the_output_is_that_of_the_reference_implementations() {
        let random = Random::new(Seed(0));
        assert_eq!(
            random.state[..2],
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]
        );
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let first: Vec<u64> = (0..4).map(|_| random.bits()).collect();
        assert_eq!(
            first,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386
            ]
        );
    }

    #[test]
    fn normals_and_exponentials_have_their_moments() {
        let mut random = Random::new(Seed(7));
        let n = 200_000;
        let normals: Vec<f64> = (0..n).map(|_| random.normal()).collect();
        let mean = normals.iter().sum::<f64>() / f64::from(n);
        let variance = normals.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!(
            mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02,
            "{mean} {variance}"
        );
        let mean = (0..n).map(|_| random.exponential()).sum::<f64>() / f64::from(n);
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
    }
}
