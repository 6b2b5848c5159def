//! The admission rules. A rule decides at each miss, before any byte of the object is stored.
//!
//! The file of a rule states its source, its cost and its memory. [`AdmissionSpec`] has the names of the rules.

mod exponential;
mod hill_climbing;
mod inverse_size;
mod nth_hit;
mod percentile;
mod spec;
mod threshold;
mod tuner;

use crate::{Object, rng::Rng};

pub use hill_climbing::HillClimbing;
pub use nth_hit::NthHit;
pub use percentile::PercentileTuner;
pub(crate) use spec::parse_admission;
pub use spec::{ADMISSION_NAMES, AdmissionSpec, SERVED_ADMISSION_NAMES};
pub use tuner::{AdmissionTuner, TunerStep};

/// An admission rule with its state.
#[derive(Debug)]
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
    Exponential {
        /// The size in bytes at which the probability is 1/e. Infinity admits every object.
        c: f64,
    },
    /// Admits an object of `s` bytes with probability `size_bytes / s`, and always if `s` is at most `size_bytes`.
    InverseSize {
        /// The largest size that is always admitted.
        size_bytes: u64,
    },
    /// Admits an object at its N-th remembered miss and at later ones.
    NthHit(NthHit),
}

impl Admission {
    /// Returns true if `object` is admitted. Call this function once per miss, because a rule may count the request.
    /// Only a random rule draws from `rng`, one number per call.
    pub fn admits(&self, object: &Object, rng: &mut Rng) -> bool {
        match self {
            Self::Always => true,
            Self::Threshold { size_bytes_max } => threshold::admits(*size_bytes_max, object),
            Self::Exponential { c } => exponential::admits(*c, object, rng),
            Self::InverseSize { size_bytes } => inverse_size::admits(*size_bytes, object, rng),
            Self::NthHit(rule) => rule.admits(object),
        }
    }

    /// Sets the size parameter of the rule: the largest admitted size of a threshold, or `c` of the exponential rule.
    /// Other rules have no such parameter and do not change. Tuners call this function.
    pub fn set_c(&mut self, c_bytes: f64) {
        match self {
            Self::Threshold { size_bytes_max } => *size_bytes_max = c_bytes as u64,
            Self::Exponential { c } => *c = c_bytes,
            Self::Always | Self::InverseSize { .. } | Self::NthHit(_) => {}
        }
    }

    /// The size parameter that a tuner may set, in bytes. `None` if the rule has no such parameter.
    pub fn c(&self) -> Option<f64> {
        match *self {
            Self::Threshold { size_bytes_max } if size_bytes_max == u64::MAX => Some(f64::INFINITY),
            Self::Threshold { size_bytes_max } => Some(size_bytes_max as f64),
            Self::Exponential { c } => Some(c),
            Self::Always | Self::InverseSize { .. } | Self::NthHit(_) => None,
        }
    }

    /// The bytes of memory of the rule's state, without the memory of its tuner.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::NthHit(rule) => rule.memory_bytes(),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use edgeward_types::{KeyHash, Seed};

    use super::*;

    /// Returns the share of 40,000 offers of an object of this size that the rule admits.
    pub(super) fn share_admitted(admission: &Admission, size_bytes: u64) -> f64 {
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
    fn a_tuner_changes_the_size_parameter_of_the_rule_that_has_one() {
        let mut threshold = Admission::Threshold { size_bytes_max: 10 };
        threshold.set_c(1000.0);
        assert_eq!(share_admitted(&threshold, 1000), 1.0);
        assert_eq!(share_admitted(&threshold, 1001), 0.0);
        threshold.set_c(f64::INFINITY);
        assert_eq!(share_admitted(&threshold, u64::MAX), 1.0);
        let mut exponential = Admission::Exponential { c: f64::INFINITY };
        exponential.set_c(1.0);
        assert_eq!(share_admitted(&exponential, 1000), 0.0);
    }
}
