//! Object sizes: a lognormal distribution with a Pareto tail, clamped to a range.

use super::math::{exp, ln};
use super::random::Random;

/// The distribution of the object sizes of a class of traffic, such as images.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// The median of the lognormal part, in bytes.
    pub median_bytes: f64,
    /// The spread of the lognormal part: the standard deviation of the natural logarithm of the size.
    pub sigma: f64,
    /// The Pareto tail. `None` if all sizes are lognormal.
    pub tail: Option<Tail>,
    /// The minimum size in bytes.
    pub min_bytes: u64,
    /// The maximum size in bytes.
    pub max_bytes: u64,
}

/// A Pareto tail: the share of objects larger than `x` falls as `x^-alpha`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// The share of objects whose sizes are drawn from the tail.
    pub share: f64,
    /// The smallest size of the tail, in bytes.
    pub from_bytes: f64,
    /// The exponent. If it is 1 or less, only `max_bytes` limits the mean.
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

    /// Returns a description of the problem if the fields are inconsistent.
    pub(super) fn problem(&self) -> Option<&'static str> {
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
                Some(
                    "the tail of its sizes needs a share of 0 to 1, and a positive from_bytes and alpha",
                )
            }
            _ => None,
        }
    }

    /// The upper limit of `max_bytes`: up to this number, a double represents every whole number.
    const BYTES_MAX: u64 = 1 << 53;
}
