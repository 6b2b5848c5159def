//! Draws Zipf-distributed ranks without a table, by rejection-inversion.
//!
//! Rank `k` of 1 to `n` is drawn with probability proportional to `k^-s`; callers get `k - 1`. A table of `n`
//! weights would take memory, and each draw would be a miss in the processor's cache. Rejection-inversion needs
//! about 1.1 attempts per draw, with a logarithm and an exponential each.
//!
//! Paper: Hörmann, Derflinger, "Rejection-inversion to generate variates from monotone
//! discrete distributions", ACM TOMACS 6(3), 1996, algorithm RIC.

use super::math::{exp, ln};
use super::random::Random;

/// A Zipf distribution over `0..n`.
#[derive(Clone, Debug)]
pub(super) struct Zipf {
    /// The number of ranks.
    n: u64,
    /// The exponent.
    s: f64,
    /// The lower limit of the area under the hat function, H(1.5) - h(1). `density` returns h, `integral` returns H.
    low: f64,
    /// The upper limit of this area, H(n + 0.5).
    high: f64,
    /// The constant that the paper calls `s`. If a rank exceeds the drawn `x` by at most this value, the rank
    /// is accepted without computing an exponential.
    squeeze: f64,
}

impl Zipf {
    /// Returns a distribution over `n` ranks with the exponent `s`. With the exponent 0 it is uniform; the
    /// popularity of web objects has exponents of 0.6 to 1.2.
    pub(super) fn new(n: u64, s: f64) -> Self {
        assert!(
            n > 0 && s >= 0.0,
            "a Zipf distribution has ranks and an exponent of at least 0"
        );
        let mut zipf = Self {
            n,
            s,
            low: 0.0,
            high: 0.0,
            squeeze: 0.0,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(n as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// Draws a rank. Rank 0 is the most popular.
    #[inline]
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.high + random.unit() * (self.low - self.high);
            let x = self.inverse(area);
            let k = ((x + 0.5) as u64).clamp(1, self.n);
            let rank = k as f64;
            if rank - x <= self.squeeze || area >= self.integral(rank + 0.5) - self.density(rank) {
                return k - 1;
            }
        }
    }

    /// Returns h(x) = x^-s.
    #[inline]
    fn density(&self, x: f64) -> f64 {
        exp(-self.s * ln(x))
    }

    /// Returns H(x), an antiderivative of h: (x^(1-s) - 1) / (1 - s), or ln x if s is 1.
    #[inline]
    fn integral(&self, x: f64) -> f64 {
        let log = ln(x);
        let power = 1.0 - self.s;
        if power.abs() < NEAR_ONE {
            return log;
        }
        (exp(power * log) - 1.0) / power
    }

    /// Returns the `x` at which H(x) is `y`.
    #[inline]
    fn inverse(&self, y: f64) -> f64 {
        let power = 1.0 - self.s;
        if power.abs() < NEAR_ONE {
            return exp(y);
        }
        // If s > 1, rounding may make `1 + power * y` 0 or negative at the upper end of the area.
        exp(ln((1.0 + power * y).max(f64::MIN_POSITIVE)) / power)
    }
}

/// If the exponent differs from 1 by less than this number, ln x is used, because cancellation makes the
/// general formula inexact.
const NEAR_ONE: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use edgeward_types::Seed;

    use super::*;

    /// The shares of the first two ranks, and of ranges of the other ranks, are those of the definition.
    #[test]
    fn the_shares_of_ranks_follow_the_definition() {
        for (n, s) in [
            (1, 0.8),
            (2, 1.0),
            (10, 0.0),
            (1000, 0.7),
            (1000, 1.0),
            (50_000, 1.3),
        ] {
            let zipf = Zipf::new(n, s);
            let mut random = Random::new(Seed(n ^ 99));
            let draws = 200_000;
            let mut counts = vec![0u32; n as usize];
            for _ in 0..draws {
                counts[zipf.draw(&mut random) as usize] += 1;
            }
            let weight = |k: usize| ((k + 1) as f64).powf(-s);
            let total: f64 = (0..n as usize).map(weight).sum();
            for range in [0..1, 1..2, 2..5, 5..50, 50..n as usize] {
                let range = range.start.min(n as usize)..range.end.min(n as usize);
                let expected = range.clone().map(weight).sum::<f64>() / total;
                let got = f64::from(counts[range.clone()].iter().sum::<u32>()) / f64::from(draws);
                // Five standard deviations of a binomial share.
                let slack = 5.0 * (expected * (1.0 - expected) / f64::from(draws)).sqrt() + 1e-9;
                assert!(
                    (got - expected).abs() < slack,
                    "n {n} s {s} {range:?}: {got} {expected}"
                );
            }
        }
    }
}
