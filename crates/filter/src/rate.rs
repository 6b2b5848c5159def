//! False-positive rates: what an operator asks for, within what a filter can give.

use std::fmt;
use std::str::FromStr;

/// How many of the ids that do not exist may pass for existing ones, as a share of them.
///
/// Between 2⁻³² (a fingerprint has 32 bits at most) and one half (a filter that lets more than
/// every second absent id through avoids too little to be worth asking).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// The smallest: 2⁻³².
    pub const MIN: Self = Self(1.0 / 4_294_967_296.0);
    /// The largest: one half.
    pub const MAX: Self = Self(0.5);

    /// A rate given as a share: `0.01` is one in a hundred.
    pub fn new(share: f64) -> Result<Self, RateError> {
        // A NaN is in no range.
        if (Self::MIN.0..=Self::MAX.0).contains(&share) {
            Ok(Self(share))
        } else {
            Err(RateError::OutOfRange { share })
        }
    }

    /// As a share of one.
    pub fn share(self) -> f64 {
        self.0
    }

    /// The least bits an id that any filter of this rate can do with: `log2(1 / rate)`
    /// (Carter et al., "Exact and approximate membership testers", STOC 1978).
    pub fn bits_min(self) -> f64 {
        -self.0.log2()
    }
}

/// `0.01` or `1%`.
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

/// In percent, as many digits as say something.
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

/// Why something is no rate.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// It cannot be read.
    #[error("`{text}` is not a rate; write 0.01 or 1%")]
    NotANumber {
        /// What was written.
        text: String,
    },
    /// It can be read and makes no filter.
    #[error("a false-positive rate of {share} is not between 2.4e-10 (2^-32) and 0.5")]
    OutOfRange {
        /// What was asked for.
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
    fn what_makes_no_filter_is_refused() {
        for text in ["0", "0.51", "51%", "-1", "NaN", "inf", "1e-10", "", "one"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert!(Rate::new(Rate::MIN.share()).is_ok());
        assert!(Rate::new(Rate::MAX.share()).is_ok());
    }
}
