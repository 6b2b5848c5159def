//! The value of `--warmup`: requests that fill the cache and are not counted.

use std::str::FromStr;

use edgeward_sim::{ParseShareError, Share};

/// The length of the warm-up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Warmup {
    Requests(u64),
    Share(Share),
}

impl Warmup {
    /// The number of requests of the warm-up. `total` is the number of requests of the trace; only a share needs it.
    pub(super) fn requests(self, total: Option<u64>) -> u64 {
        match self {
            Self::Requests(requests) => requests,
            Self::Share(share) => share.of(total.unwrap_or(0)),
        }
    }
}

impl FromStr for Warmup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.ends_with('%') {
            let share: Result<Share, ParseShareError> = text.parse();
            return share.map(Self::Share).map_err(|error| error.to_string());
        }
        text.parse()
            .map(Self::Requests)
            .map_err(|_| format!("`{text}` is neither a share nor a number; write 20% or 100000"))
    }
}

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
