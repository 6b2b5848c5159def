//! The objective of a policy: the sum over all hits that the policy maximises.

use std::fmt;
use std::str::FromStr;

/// Defines the benefit of a hit. A policy maximises the sum of the benefits.
///
/// [`PolicySpec::weighs_benefits`](crate::PolicySpec::weighs_benefits) returns true for the policies that follow an
/// objective. All other policies ignore it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Objective {
    /// Each hit counts the same: the policy maximises the object hit ratio.
    #[default]
    Requests,
    /// A hit counts as many units as the object has bytes: the policy maximises the byte hit ratio.
    Bytes,
    /// A hit counts as the time that the last fetch of the object took. The policy maximises the time that hits save.
    OriginCost,
}

impl Objective {
    /// Returns the benefit of a hit on an object. `fetch_seconds` returns the time of its last fetch from the origin.
    /// It is called only for [`Objective::OriginCost`].
    #[inline]
    pub fn benefit(self, size_bytes: u64, fetch_seconds: impl FnOnce() -> f64) -> Benefit {
        match self {
            Self::Requests => Benefit::ONE,
            Self::Bytes => Benefit::new(size_bytes as f64),
            Self::OriginCost => Benefit::new(fetch_seconds()),
        }
    }
}

/// The objectives by name.
const OBJECTIVES: [(&str, Objective); 3] = [
    ("requests", Objective::Requests),
    ("bytes", Objective::Bytes),
    ("origin-cost", Objective::OriginCost),
];

/// The names of the objectives, for messages and help.
pub const OBJECTIVE_NAMES: &str = "requests, bytes, origin-cost";

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = OBJECTIVES.iter().find(|entry| entry.1 == *self);
        f.write_str(entry.expect("every objective has a name").0)
    }
}

impl FromStr for Objective {
    type Err = ParseObjectiveError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let entry = OBJECTIVES.iter().find(|entry| entry.0 == text);
        entry
            .map(|entry| entry.1)
            .ok_or_else(|| ParseObjectiveError(text.to_owned()))
    }
}

/// The text is not the name of an objective.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseObjectiveError(String);

impl fmt::Display for ParseObjectiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(f, "unknown objective `{text}`; use {OBJECTIVE_NAMES}")
    }
}

impl std::error::Error for ParseObjectiveError {}

/// The benefit of one hit on an object, from 10⁻⁶ to 10¹⁵. Only ratios of benefits matter, so the unit is arbitrary.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Benefit(f32);

impl Benefit {
    /// The benefit of every hit for [`Objective::Requests`].
    pub const ONE: Self = Self(1.0);

    /// Returns a benefit with this value, rounded and clamped to the range. NaN gives the minimum.
    pub fn new(value: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a relative error of 1e-7 changes no order that matters"
        )]
        let value = if value > BENEFIT_MIN {
            value.min(BENEFIT_MAX) as f32
        } else {
            BENEFIT_MIN as f32
        };
        Self(value)
    }

    /// Returns the benefit of a hit that saves this part of it, for example because a peer is nearer than the origin.
    pub fn times(self, factor: f64) -> Self {
        Self::new(f64::from(self.0) * factor)
    }

    pub(crate) fn value(self) -> f32 {
        self.0
    }

    /// Returns the nearest power of two.
    pub(crate) fn rounded(self) -> RoundedBenefit {
        // The range of the logarithm, -20 to 50, fits.
        RoundedBenefit(self.0.log2().round() as i8)
    }
}

/// A benefit rounded to a power of two. One byte stores the exponent. The default is [`Benefit::ONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundedBenefit(i8);

impl RoundedBenefit {
    pub(crate) fn value(self) -> f64 {
        f64::from(self.0).exp2()
    }
}

/// The minimum of a benefit: one microsecond for the objective `origin-cost`.
const BENEFIT_MIN: f64 = 1e-6;

/// The maximum of a benefit. No object has as many bytes.
const BENEFIT_MAX: f64 = 1e15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_displayed_objective_parses_to_the_same_objective() {
        for (name, objective) in OBJECTIVES {
            assert_eq!(name.parse(), Ok(objective));
            assert_eq!(objective.to_string(), name);
        }
        assert_eq!(
            OBJECTIVE_NAMES,
            OBJECTIVES.map(|entry| entry.0).join(", "),
            "the messages name every objective"
        );
        let error = "hits".parse::<Objective>().expect_err("no objective");
        assert!(error.to_string().contains("use requests, bytes"));
    }

    #[test]
    fn a_benefit_is_positive_and_finite() {
        assert_eq!(Benefit::new(1.0), Benefit::ONE);
        let zero = Benefit::new(0.0);
        assert!(zero.value() > 0.0);
        assert_eq!(Benefit::new(-1.0), zero);
        assert_eq!(Benefit::new(f64::NAN), zero);
        assert!(Benefit::new(f64::INFINITY).value().is_finite());
    }

    #[test]
    fn a_rounded_benefit_is_the_nearest_power_of_two() {
        let rounded = |value: f64| Benefit::new(value).rounded().value();
        assert_eq!(rounded(1.0), 1.0);
        assert_eq!((rounded(1000.0), rounded(0.3)), (1024.0, 0.25));
        assert_eq!(rounded(f64::INFINITY), 2f64.powi(50));
        assert_eq!(rounded(0.0), 2f64.powi(-20));
        assert_eq!(RoundedBenefit::default().value(), 1.0);
    }

    #[test]
    fn each_objective_counts_a_hit_by_its_own_measure() {
        let unused = || panic!("the time of a fetch has no effect");
        assert_eq!(Objective::Requests.benefit(3000, unused), Benefit::ONE);
        assert_eq!(Objective::Bytes.benefit(3000, unused), Benefit::new(3000.0));
        assert_eq!(
            Objective::OriginCost.benefit(3000, || 0.25),
            Benefit::new(0.25)
        );
    }
}
