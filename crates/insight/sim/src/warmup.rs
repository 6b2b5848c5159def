//! The length of a warm-up: requests at the start of a trace that fill the cache and are not counted.

use std::fmt;
use std::str::FromStr;

use crate::capacity::{ParseShareError, Share};

/// The length of a warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// A number of requests.
    Requests(u64),
    /// A share of the requests of the trace.
    Share(Share),
}

impl Warmup {
    /// The number of requests of the warm-up. `total` is the number of requests of the trace. Only a share needs it;
    /// without it, a share returns 0.
    pub fn requests(self, total: Option<u64>) -> u64 {
        match self {
            Self::Requests(requests) => requests,
            Self::Share(share) => share.of(total.unwrap_or(0)),
        }
    }
}

impl FromStr for Warmup {
    type Err = ParseWarmupError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.ends_with('%') {
            return text
                .parse()
                .map(Self::Share)
                .map_err(ParseWarmupError::Share);
        }
        text.parse()
            .map(Self::Requests)
            .map_err(|_| ParseWarmupError::NoNumber(text.to_owned()))
    }
}

/// Why a text is not the length of a warm-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseWarmupError {
    /// The text ends in `%` but is not a percentage from 0 % to 100 %.
    Share(ParseShareError),
    /// The text is neither a percentage nor a whole number.
    NoNumber(String),
}

impl fmt::Display for ParseWarmupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(error) => error.fmt(f),
            Self::NoNumber(text) => write!(
                f,
                "`{text}` is neither a share nor a number; write 20% or 100000"
            ),
        }
    }
}

impl std::error::Error for ParseWarmupError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warmup_is_a_share_or_a_number() {
        let requests = |text: &str| text.parse().map(|warmup: Warmup| warmup.requests(Some(50)));
        assert_eq!(requests("20%"), Ok(10));
        assert_eq!(requests("1000"), Ok(1000));
        for text in ["", "many", "101%", "-5"] {
            assert!(requests(text).is_err(), "{text}");
        }
    }
}
