//! Offline policies as text, and all policies that a simulation can run.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use edgeward_policy::{ParsePolicyError, PolicySpec};

/// A policy that knows all future requests: `belady`, `belady-size`, `size-opt`, `size-opt:REQUESTS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfflinePolicy {
    /// Evicts the object whose next request is the latest. Rejects a new object whose next request is not earlier than
    /// that of one of its victims. If all objects have the same size, no policy has more hits.
    Belady,
    /// Evicts the object with about the largest product of its size and the number of requests until its next request.
    /// Rejects a new object whose product is not less than that of one of its victims.
    BeladySize,
    /// SIZE-OPT of the AdaptSize paper: LRU eviction. The admission by size that has the most hits in the next requests
    /// is selected repeatedly.
    SizeOpt {
        /// The number of next requests by which an admission is selected: a million in the paper.
        lookahead_requests: NonZeroU32,
    },
}

impl OfflinePolicy {
    /// SIZE-OPT as in the paper.
    pub const SIZE_OPT: Self = Self::SizeOpt {
        lookahead_requests: NonZeroU32::new(LOOKAHEAD_REQUESTS).unwrap(),
    };
}

impl FromStr for OfflinePolicy {
    type Err = ParseOfflinePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None => [Self::Belady, Self::BeladySize, Self::SIZE_OPT]
                .into_iter()
                .find(|policy| policy.to_string() == text)
                .ok_or(ParseOfflinePolicyError::Unknown),
            Some(("size-opt", requests)) => Ok(Self::SizeOpt {
                lookahead_requests: requests
                    .parse()
                    .map_err(|_| ParseOfflinePolicyError::Lookahead)?,
            }),
            Some(("belady" | "belady-size", _)) => Err(ParseOfflinePolicyError::Argument),
            Some(_) => Err(ParseOfflinePolicyError::Unknown),
        }
    }
}

impl fmt::Display for OfflinePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Belady => f.write_str("belady"),
            Self::BeladySize => f.write_str("belady-size"),
            &Self::SIZE_OPT => f.write_str("size-opt"),
            Self::SizeOpt { lookahead_requests } => write!(f, "size-opt:{lookahead_requests}"),
        }
    }
}

/// The reason why a text is not an offline policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseOfflinePolicyError {
    /// No offline policy has this name.
    Unknown,
    /// The policy takes no argument.
    Argument,
    /// The number of future requests of `size-opt` is invalid.
    Lookahead,
}

impl fmt::Display for ParseOfflinePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown offline policy; use belady, belady-size or size-opt",
            Self::Argument => "`belady` and `belady-size` take no argument",
            Self::Lookahead => "`size-opt` needs a number of requests; write size-opt:1000000",
        })
    }
}

impl std::error::Error for ParseOfflinePolicyError {}

/// A policy that a simulation can run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SimulatedPolicy {
    /// A policy that can also serve.
    Online(PolicySpec),
    /// A policy that knows the future.
    Offline(OfflinePolicy),
}

impl FromStr for SimulatedPolicy {
    type Err = ParseSimulatedPolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse() {
            Ok(policy) => Ok(Self::Offline(policy)),
            Err(ParseOfflinePolicyError::Unknown) => text
                .parse()
                .map(Self::Online)
                .map_err(ParseSimulatedPolicyError::Online),
            Err(error) => Err(ParseSimulatedPolicyError::Offline(error)),
        }
    }
}

impl fmt::Display for SimulatedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Online(policy) => policy.fmt(f),
            Self::Offline(policy) => policy.fmt(f),
        }
    }
}

/// The reason why a text is not a policy of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseSimulatedPolicyError {
    /// The text is neither a policy that can serve nor an offline policy.
    Online(ParsePolicyError),
    /// The text names an offline policy, but its argument is invalid.
    Offline(ParseOfflinePolicyError),
}

impl fmt::Display for ParseSimulatedPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Online(error) => error.fmt(f),
            Self::Offline(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ParseSimulatedPolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Online(error) => error.source(),
            Self::Offline(error) => error.source(),
        }
    }
}

/// The names of the offline policies, for help and error messages.
pub const OFFLINE_NAMES: &str = "belady, belady-size, size-opt, size-opt:REQUESTS";

/// The default lookahead of SIZE-OPT, from section 6.1 of the AdaptSize paper.
const LOOKAHEAD_REQUESTS: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_displayed_policy_parses_to_the_same_policy() {
        for text in [
            "belady",
            "belady-size",
            "size-opt",
            "size-opt:250000",
            "lru",
            "adaptsize+gdsf",
        ] {
            let policy: SimulatedPolicy = text.parse().expect(text);
            assert_eq!(policy.to_string(), text);
        }
        assert_eq!("size-opt:1000000".parse(), Ok(OfflinePolicy::SIZE_OPT));
    }

    #[test]
    fn an_invalid_policy_is_rejected_with_a_hint() {
        for (text, hint) in [
            ("size-opt:0", "write size-opt:1000000"),
            ("size-opt:", "write size-opt:1000000"),
            ("belady:3", "take no argument"),
            ("mru", "unknown policy `mru`"),
        ] {
            let message = text.parse::<SimulatedPolicy>().expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }

    /// A command that needs a policy for serving rejects an offline policy, and its message has the reason.
    #[test]
    fn an_offline_policy_is_not_a_policy_that_can_serve() {
        for text in ["belady", "belady-size", "size-opt", "size-opt:5"] {
            let message = text.parse::<PolicySpec>().expect_err(text).to_string();
            assert!(message.contains("only in `edgeward simulate`"), "{message}");
        }
    }
}
