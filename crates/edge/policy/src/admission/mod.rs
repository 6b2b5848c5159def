//! The admission rules. A rule decides at each miss, before any byte of the object is stored.
//!
//! The file of a rule states its source, its cost and its memory. [`AdmissionSpec`] has the names of the rules.

mod exponential;
mod hill_climbing;
mod inverse_size;
mod nth_hit;
mod percentile;
pub(crate) mod rule;
mod spec;
mod threshold;
pub(crate) mod tuner;

pub use hill_climbing::HillClimbing;
pub use nth_hit::NthHit;
pub use percentile::PercentileTuner;
pub use rule::Admission;
pub use spec::AdmissionSpec;
pub(crate) use spec::parse_admission;
pub use tuner::{AdmissionTuner, TunerStep};

#[cfg(test)]
mod tests {
    use edgeward_types::{KeyHash, Seed};

    use super::*;
    use crate::object::Object;
    use crate::rng::Rng;

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
