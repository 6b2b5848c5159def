//! The false-positive rate of a filter, which the operator chooses.

use std::fmt;
use std::str::FromStr;

/// The false-positive rate of a filter: the share of absent ids for which the filter answers "maybe".
///
/// The rate is at least 2⁻³², because a fingerprint has at most 32 bits. It is at most one half, because a filter
/// with a higher rate saves too few requests to be useful.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// The smallest rate, 2⁻³².
    pub const MIN: Self = Self(1.0 / 4_294_967_296.0);
    /// The largest rate, one half.
    pub const MAX: Self = Self(0.5);

    /// Returns the rate with a share between 0 and 1: `0.01` is one in a hundred. Refuses a share outside of
    /// [`Self::MIN`] to [`Self::MAX`].
    pub fn new(share: f64) -> Result<Self, RateError> {
        // The range does not contain NaN.
        if (Self::MIN.0..=Self::MAX.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(RateError::OutOfRange { share })
        }
    }

    /// The rate as a number between 0 and 1.
    pub fn share(self) -> f64 {
        self.0
    }

    /// The smallest number of bits per id of any filter with this rate: `log2(1 / rate)` (Carter et al., "Exact
    /// and approximate membership testers", STOC 1978).
    pub fn bits_min(self) -> f64 {
        -self.0.log2()
    }
}

/// Parses `0.01` or `1%`.
impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, unit) = match text.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100.0),
            None => (text, 1.0),
        };
        let share: f64 = number.parse().map_err(|_| RateError::NotANumber {
            text: text.to_owned(),
        })?;
        Self::new(share / unit)
    }
}

/// Formats the rate in percent with at most three decimal places, and a rate below 0.01 % in scientific notation.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        if percent >= 0.01 {
            let text = format!("{percent:.3}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            write!(f, "{text} %")
        } else {
            write!(f, "{percent:.2e} %")
        }
    }
}

/// Why a rate is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// The text is not a number.
    #[error("`{text}` is not a rate; write 0.01 or 1%")]
    NotANumber {
        /// The text.
        text: String,
    },
    /// The number is outside the range of rates.
    #[error("a false-positive rate of {share} is not between 2.4e-10 (2^-32) and 0.5")]
    OutOfRange {
        /// The number.
        share: f64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_a_share_or_in_percent() {
        assert_eq!("0.01".parse(), Ok(Rate(0.01)));
        assert_eq!("1%".parse(), Ok(Rate(0.01)));
        assert_eq!("3 %".parse(), Ok(Rate(0.03)));
        assert_eq!(Rate(0.01).to_string(), "1 %");
        assert_eq!(Rate(0.0279).to_string(), "2.79 %");
    }

    #[test]
    fn a_rate_out_of_range_is_refused() {
        for text in ["0", "0.51", "51%", "-1", "NaN", "inf", "1e-10", "", "one"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert!(Rate::new(Rate::MIN.share()).is_ok());
        assert!(Rate::new(Rate::MAX.share()).is_ok());
    }
}
