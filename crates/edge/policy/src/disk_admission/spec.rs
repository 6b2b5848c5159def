//! Parsing of disk admission rule names.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use edgeward_types::{ByteSize, ParseByteSizeError};

/// A disk admission rule as written in a flag or a configuration file.
///
/// `second-hit`, `nth-hit:N`, `always`, `never`, `size-density`, `size-density:SIZE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DiskAdmissionSpec {
    /// Writes an object at its second request.
    #[default]
    SecondHit,
    /// Writes an object at its n-th request. The number n is from 2 to [`REQUESTS_MAX`].
    NthHit(u32),
    /// Writes every object.
    Always,
    /// Writes no object.
    Never,
    /// Like [`SizeDensity`](Self::SizeDensity), with half of the mean size of requested objects as the size.
    MeasuredDensity,
    /// Writes an object when its number of requests is at least its size divided by this number of bytes. Objects
    /// up to this size are written at the first request, up to twice this size at the second request, and so on.
    /// [`REQUESTS_MAX`] requests suffice for any size.
    SizeDensity(NonZeroU64),
}

/// The maximum number of requests that a rule requires.
pub const REQUESTS_MAX: u32 = 8;

impl DiskAdmissionSpec {
    /// Returns the number of requests that suffice for any object. `never` returns the largest number.
    pub fn requests_needed_max(&self) -> u32 {
        match *self {
            Self::SecondHit => 2,
            Self::NthHit(requests) => requests.clamp(2, REQUESTS_MAX),
            Self::Always => 1,
            Self::Never => u32::MAX,
            Self::MeasuredDensity | Self::SizeDensity(_) => REQUESTS_MAX,
        }
    }

    /// Returns one example per variant, for lists and tests.
    pub fn examples() -> [Self; 6] {
        [
            Self::SecondHit,
            Self::NthHit(3),
            Self::Always,
            Self::Never,
            Self::MeasuredDensity,
            Self::SizeDensity(NonZeroU64::new(1 << 20).expect("the number is not zero")),
        ]
    }
}

impl FromStr for DiskAdmissionSpec {
    type Err = ParseDiskAdmissionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        let spec = match (name, argument) {
            ("second-hit", None) => Self::SecondHit,
            ("always", None) => Self::Always,
            ("never", None) => Self::Never,
            ("nth-hit", Some(requests)) => match requests.parse() {
                Ok(requests @ 2..=REQUESTS_MAX) => Self::NthHit(requests),
                _ => return Err(ParseDiskAdmissionError::Requests(requests.to_owned())),
            },
            ("nth-hit", None) => return Err(ParseDiskAdmissionError::Requests(String::new())),
            ("size-density", None) => Self::MeasuredDensity,
            ("size-density", Some(size)) => {
                let size: ByteSize = size.parse().map_err(ParseDiskAdmissionError::Size)?;
                let size = NonZeroU64::new(size.bytes());
                Self::SizeDensity(size.ok_or(ParseDiskAdmissionError::SizeZero)?)
            }
            ("second-hit" | "always" | "never", Some(argument)) => {
                return Err(ParseDiskAdmissionError::NoArgument {
                    rule: name.to_owned(),
                    argument: argument.to_owned(),
                });
            }
            _ => return Err(ParseDiskAdmissionError::Unknown(text.to_owned())),
        };
        Ok(spec)
    }
}

impl fmt::Display for DiskAdmissionSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SecondHit => f.write_str("second-hit"),
            Self::NthHit(requests) => write!(f, "nth-hit:{requests}"),
            Self::Always => f.write_str("always"),
            Self::Never => f.write_str("never"),
            Self::MeasuredDensity => f.write_str("size-density"),
            Self::SizeDensity(size) => {
                // Units such as MiB are rounded. If the rounded text does not parse to the same size, the size is
                // written in bytes.
                let shown = ByteSize(size.get()).to_string().replace(' ', "");
                if shown.parse() == Ok(ByteSize(size.get())) {
                    write!(f, "size-density:{shown}")
                } else {
                    write!(f, "size-density:{size}")
                }
            }
        }
    }
}

/// Why a text is not a disk admission rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseDiskAdmissionError {
    /// No rule has this name.
    Unknown(String),
    /// Not a number of requests from 2 to [`REQUESTS_MAX`].
    Requests(String),
    /// The size must not be zero: every object would need the maximum number of requests.
    SizeZero,
    /// The size is invalid.
    Size(ParseByteSizeError),
    /// The rule takes no argument.
    NoArgument {
        /// The rule.
        rule: String,
        /// The unexpected argument.
        argument: String,
    },
}

impl fmt::Display for ParseDiskAdmissionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => write!(
                f,
                "unknown disk admission rule `{text}`; use second-hit, nth-hit:N, always, never, \
                 size-density or size-density:SIZE"
            ),
            Self::Requests(text) => write!(
                f,
                "`nth-hit:{text}` is not a number of requests from 2 to {REQUESTS_MAX}; write nth-hit:3, or \
                 `always` to write an object at its first request"
            ),
            Self::SizeZero => {
                f.write_str("`size-density:0` is not a valid size; write size-density:1MiB")
            }
            Self::Size(_) => f.write_str("the size of `size-density` cannot be read"),
            Self::NoArgument { rule, argument } => {
                write!(f, "`{rule}` takes no `:{argument}`; write {rule}")
            }
        }
    }
}

impl std::error::Error for ParseDiskAdmissionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Size(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_displayed_rule_parses_to_the_same_rule() {
        let odd = [
            DiskAdmissionSpec::SizeDensity(
                NonZeroU64::new(123_457).expect("the number is not zero"),
            ),
            DiskAdmissionSpec::NthHit(2),
            DiskAdmissionSpec::NthHit(REQUESTS_MAX),
        ];
        for spec in DiskAdmissionSpec::examples().into_iter().chain(odd) {
            assert_eq!(spec.to_string().parse(), Ok(spec), "{spec}");
        }
    }

    #[test]
    fn an_invalid_rule_is_rejected_with_a_hint() {
        for (text, hint) in [
            ("third-hit", "use second-hit"),
            ("nth-hit", "write nth-hit:3"),
            ("nth-hit:1", "`always` to write"),
            ("nth-hit:9", "from 2 to 8"),
            ("size-density:", "cannot be read"),
            ("size-density:0", "write size-density:1MiB"),
            ("always:2", "write always"),
        ] {
            let error = text.parse::<DiskAdmissionSpec>().expect_err(text);
            assert!(error.to_string().contains(hint), "{text}: {error}");
        }
    }
}
