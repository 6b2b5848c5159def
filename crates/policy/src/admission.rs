//! The admission rules. A rule decides at each miss, before any byte of the object is stored.

use crate::{Object, rng::Rng};

/// An admission rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// Admits every object.
    Always,
    /// Admits objects up to a size.
    Threshold {
        /// The largest admitted size.
        size_bytes_max: u64,
    },
    /// Admits an object of `s` bytes with probability `e^(-s/c)`: small objects nearly always, large objects
    /// rarely.
    ///
    /// AdaptSize is this rule with a new `c` after every window of requests (NSDI'17, section 4). The text of the
    /// paper has `e^(-s/c)`; its Theorem 1 prints `e^(-c·s)`, which is a misprint.
    Exponential {
        /// The size in bytes at which the probability is 1/e. Infinity admits every object.
        c: f64,
    },
}

impl Admission {
    /// Returns true if `object` is admitted. Draws at most one number from `rng`, and only for a random rule.
    pub fn admits(&self, object: &Object, rng: &mut Rng) -> bool {
        match *self {
            Self::Always => true,
            Self::Threshold { size_bytes_max } => object.size_bytes <= size_bytes_max,
            Self::Exponential { c } => rng.unit() < (-(object.size_bytes as f64) / c).exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use edgeward_types::{KeyHash, Seed};

    use super::*;

    fn share_admitted(admission: Admission, size_bytes: u64) -> f64 {
        let mut rng = Rng::new(Seed(3), 0);
        let object = Object {
            key: KeyHash(1),
            size_bytes,
        };
        let admitted = (0..40_000)
            .filter(|_| admission.admits(&object, &mut rng))
            .count();
        admitted as f64 / 40_000.0
    }

    #[test]
    fn a_threshold_admits_up_to_its_size_and_not_beyond() {
        let threshold = Admission::Threshold {
            size_bytes_max: 1000,
        };
        assert_eq!(share_admitted(threshold, 1000), 1.0);
        assert_eq!(share_admitted(threshold, 1001), 0.0);
    }

    #[test]
    fn an_object_of_c_bytes_is_admitted_with_probability_one_over_e() {
        let exponential = Admission::Exponential { c: 4096.0 };
        for (size, expected) in [(0, 1.0), (4096, 1.0 / 1f64.exp()), (8192, (-2f64).exp())] {
            let share = share_admitted(exponential, size);
            // Standard deviation at most 0.0025 with 40 000 draws.
            assert!((share - expected).abs() < 0.0125, "{size}: {share}");
        }
    }

    #[test]
    fn an_infinite_c_admits_everything() {
        let all = Admission::Exponential { c: f64::INFINITY };
        assert_eq!(share_admitted(all, u64::MAX), 1.0);
    }
}
