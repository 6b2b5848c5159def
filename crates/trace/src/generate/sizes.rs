//! Object sizes: a lognormal body with a Pareto tail, cut to a range.

use super::math::{exp, ln};
use super::random::Random;

/// How large the objects of a class are.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// The median of the body, in bytes.
    pub median_bytes: f64,
    /// The spread of the body: the standard deviation of the size's natural logarithm.
    pub sigma: f64,
    /// The tail, if there is one.
    pub tail: Option<Tail>,
    /// No object is smaller.
    pub min_bytes: u64,
    /// No object is larger.
    pub max_bytes: u64,
}

/// A Pareto tail: the share of objects larger than `x` falls as `x^-alpha`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// Which share of the objects is drawn from it.
    pub share: f64,
    /// Where it begins, in bytes.
    pub from_bytes: f64,
    /// How fast it falls; at 1 and below the mean is set by the cut alone.
    pub alpha: f64,
}

impl Sizes {
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        let bytes = match &self.tail {
            Some(tail) if random.unit() < tail.share => {
                tail.from_bytes * exp(-ln(random.unit_above_zero()) / tail.alpha)
            }
            _ => self.median_bytes * exp(self.sigma * random.normal()),
        };
        (bytes as u64).clamp(self.min_bytes, self.max_bytes)
    }

    /// What makes the description senseless, if anything does.
    pub(super) fn flaw(&self) -> Option<&'static str> {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        if !positive(self.median_bytes) || !self.sigma.is_finite() || self.sigma < 0.0 {
            return Some("the median of its sizes must be positive and their spread not negative");
        }
        if self.min_bytes > self.max_bytes || self.max_bytes > Self::BYTES_MAX {
            return Some("its sizes must have min_bytes <= max_bytes <= 2^53");
        }
        match &self.tail {
            Some(tail)
                if !positive(tail.from_bytes)
                    || !positive(tail.alpha)
                    || !(0.0..=1.0).contains(&tail.share) =>
            {
                Some("the tail of its sizes needs a share of 0 to 1, a positive start and slope")
            }
            _ => None,
        }
    }

    /// Up to here a double counts single bytes.
    const BYTES_MAX: u64 = 1 << 53;
}
