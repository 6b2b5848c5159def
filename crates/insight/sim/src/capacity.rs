//! The capacity of a cache: bytes, or a share of the trace's footprint. Warm-ups are also given as a [`Share`].

use std::fmt;
use std::str::FromStr;

use edgeward_types::{ByteSize, ParseByteSizeError};

/// The size of a cache: bytes, or a share of the trace's footprint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// A number of bytes.
    Bytes(ByteSize),
    /// A share of the footprint.
    OfFootprint(Share),
}

impl Capacity {
    /// Returns the size in bytes for a trace with this footprint.
    pub fn bytes(&self, footprint_bytes: u64) -> u64 {
        match *self {
            Self::Bytes(size) => size.bytes(),
            Self::OfFootprint(share) => share.of(footprint_bytes),
        }
    }
}

impl FromStr for Capacity {
    type Err = ParseCapacityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let capacity = if text.trim_end().ends_with('%') {
            Self::OfFootprint(text.parse().map_err(ParseCapacityError::Share)?)
        } else {
            Self::Bytes(text.parse().map_err(ParseCapacityError::Size)?)
        };
        match capacity {
            Self::Bytes(ByteSize(0)) => Err(ParseCapacityError::Zero),
            Self::OfFootprint(share) if share.0 == 0.0 => Err(ParseCapacityError::Zero),
            capacity => Ok(capacity),
        }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(size) => size.fmt(f),
            Self::OfFootprint(share) => share.fmt(f),
        }
    }
}

/// A share, written as a percentage between 0 % and 100 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(f64);

impl Share {
    /// The share as a number from 0 to 1.
    pub const fn fraction(&self) -> f64 {
        self.0
    }

    /// Returns this share of `whole`, rounded.
    pub fn of(&self, whole: u64) -> u64 {
        (whole as f64 * self.0).round() as u64
    }
}

impl FromStr for Share {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let percent: f64 = text
            .trim()
            .strip_suffix('%')
            .and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| ParseShareError(text.to_owned()))?;
        if !(0.0..=100.0).contains(&percent) {
            return Err(ParseShareError(text.to_owned()));
        }
        Ok(Self(percent / 100.0))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0 * 100.0)
    }
}

/// Why a text is not a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseShareError(String);

impl fmt::Display for ParseShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a percentage from 0% to 100%; write 20%",
            self.0
        )
    }
}

impl std::error::Error for ParseShareError {}

/// Why a text is not a capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseCapacityError {
    /// The text ends in `%` but is not a percentage.
    Share(ParseShareError),
    /// The text is not a size.
    Size(ParseByteSizeError),
    /// The size is zero, so no object would fit.
    Zero,
}

impl fmt::Display for ParseCapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(error) => error.fmt(f),
            Self::Size(error) => error.fmt(f),
            Self::Zero => f.write_str("the capacity is zero; write 64MiB or 1%"),
        }
    }
}

impl std::error::Error for ParseCapacityError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_bytes_or_a_share_of_the_footprint() {
        let bytes = |text: &str| text.parse::<Capacity>().expect(text).bytes(1_000_000);
        assert_eq!(bytes("64KiB"), 65_536);
        assert_eq!(bytes("1%"), 10_000);
        assert_eq!(bytes("0.1 %"), 1_000);
    }

    #[test]
    fn an_invalid_capacity_is_rejected_with_a_hint() {
        for text in ["0", "0%", "101%", "-1%", "x%", "%", "64 parsecs"] {
            let message = text.parse::<Capacity>().expect_err(text).to_string();
            assert!(
                message.contains("write") || message.contains("use"),
                "{text}: {message}"
            );
        }
    }
}
