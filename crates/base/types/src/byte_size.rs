//! Sizes in bytes, parsed from text such as `64MiB` and printed.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
///
/// Parses `512`, `64KiB`, `1.5 GiB`, `20MB`, in any letter case. Binary units (`KiB`) are powers of 1024, and decimal
/// units (`KB`) are powers of 1000. The letters `K`, `M`, `G`, `T`, `P` alone are binary units, as in nginx.
///
/// Prints the largest binary unit that the size reaches, with two decimals if the number is not whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Returns `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// Returns `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Returns `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for ByteSize {
    type Err = ParseByteSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |kind| ParseByteSizeError {
            text: text.to_owned(),
            kind,
        };
        let trimmed = text.trim();
        let minus = trimmed.strip_prefix('-');
        if minus.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            return Err(error(Problem::Negative));
        }
        let digits_end = trimmed
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits_end);
        let unit = unit.trim_start();
        let scale: u64 = UNITS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|&(_, scale)| scale)
            .ok_or_else(|| error(Problem::Unit))?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole
                .checked_mul(scale)
                .map(Self)
                .ok_or_else(|| error(Problem::TooLarge));
        }
        let fraction: f64 = number.parse().map_err(|_| error(Problem::Number))?;
        let bytes = (fraction * scale as f64).round();
        // A size with a fraction is computed as `f64`, which is not exact near 2^64, so the limit is about 2^63.
        if !(0.0..9.2e18).contains(&bytes) {
            return Err(error(Problem::TooLarge));
        }
        Ok(Self(bytes as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(&(name, scale)) = BINARY_UNITS.iter().find(|&&(_, scale)| self.0 >= scale) else {
            return write!(f, "{} B", self.0);
        };
        if self.0.is_multiple_of(scale) {
            write!(f, "{} {name}", self.0 / scale)
        } else {
            write!(f, "{:.2} {name}", self.0 as f64 / scale as f64)
        }
    }
}

/// The error of parsing a [`ByteSize`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseByteSizeError {
    text: String,
    kind: Problem,
}

impl fmt::Display for ParseByteSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match self.kind {
            Problem::Number => write!(
                f,
                "`{text}` does not start with a number; write 64MiB or 1.5GiB"
            ),
            Problem::Unit => write!(
                f,
                "`{text}` has an unknown unit; use B, KiB, MiB, GiB, TiB or KB, MB, GB, TB"
            ),
            Problem::Negative => write!(f, "`{text}` is below zero; write 64MiB or 1.5GiB"),
            Problem::TooLarge => write!(f, "`{text}` is larger than 64 bits can count"),
        }
    }
}

impl std::error::Error for ParseByteSizeError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Negative,
    Number,
    Unit,
    TooLarge,
}

const BINARY_UNITS: [(&str, u64); 5] = [
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

const UNITS: [(&str, u64); 17] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
    ("P", 1 << 50),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("PiB", 1 << 50),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_spellings_of_sizes_are_parsed() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64KiB", 64 << 10),
            ("64k", 64 << 10),
            ("64 MiB", 64 << 20),
            ("1.5GiB", 3 << 29),
            ("20MB", 20_000_000),
            (" 2T ", 2 << 40),
        ] {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn an_invalid_size_is_refused_with_a_hint() {
        for (text, hint) in [
            ("", "number"),
            ("MiB", "number"),
            ("-1", "below zero"),
            ("12 parsecs", "unit"),
            ("1.2.3M", "number"),
            ("99999999999T", "64 bits"),
        ] {
            let message = text.parse::<ByteSize>().expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }

    #[test]
    fn a_printed_size_is_parsed_back_if_it_is_exact() {
        for size in [0, 1, 1023, 1 << 10, 3 << 20, 5 << 40] {
            let shown = ByteSize(size).to_string();
            assert_eq!(shown.parse(), Ok(ByteSize(size)), "{shown}");
        }
    }
}
