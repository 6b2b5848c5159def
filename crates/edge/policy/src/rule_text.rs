//! The text of a rule: its parts, the names of the rules for messages, and the errors.

use std::fmt;

use edgeward_types::ParseByteSizeError;

use crate::disk_admission::REQUESTS_MAX;

/// Splits `name:argument` at the first colon. The argument is `None` without a colon.
pub(crate) fn split_argument(text: &str) -> (&str, Option<&str>) {
    match text.split_once(':') {
        Some((name, argument)) => (name, Some(argument)),
        None => (text, None),
    }
}

/// Returns an error if the rule `name`, which takes no argument, has one.
pub(crate) fn reject_argument(name: &str, argument: Option<&str>) -> Result<(), ParsePolicyError> {
    match argument {
        None => Ok(()),
        Some(argument) => Err(ParsePolicyError::NoArgument {
            policy: name.to_owned(),
            argument: argument.to_owned(),
        }),
    }
}

/// The reason why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParsePolicyError {
    /// No rule has the name in this text.
    Unknown(String),
    /// The policy knows all future requests, so it cannot serve.
    Offline(String),
    /// The policy, or one of its rules, runs only in the simulator.
    OnlySimulated(String),
    /// The part before `+` is not an admission rule.
    UnknownAdmission(String),
    /// The part after `+` is not an eviction rule.
    UnknownEviction(String),
    /// The policy requires a size: `threshold:64KiB`.
    SizeMissing {
        /// The policy.
        policy: &'static str,
    },
    /// The size must not be zero, because no object would be admitted.
    SizeZero {
        /// The policy.
        policy: &'static str,
    },
    /// The size is invalid.
    Size(ParseByteSizeError),
    /// `nth-hit` requires a number of requests from 2 to 8.
    Requests(String),
    /// `threshold-percentile` requires a number from 1 to 99.
    Percentile(String),
    /// The policy takes no argument.
    NoArgument {
        /// The policy.
        policy: String,
        /// The unexpected argument.
        argument: String,
    },
}

impl fmt::Display for ParsePolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(text) => write!(
                f,
                "unknown policy `{text}`; use lru, gdsf, density, adaptsize+gdsf or another policy of \
                 `edgeward simulate --help`"
            ),
            Self::Offline(text) => write!(
                f,
                "`{text}` knows all future requests, so it runs only in `edgeward simulate`"
            ),
            Self::OnlySimulated(text) => write!(
                f,
                "`{text}` runs only in `edgeward simulate`; use an eviction rule ({SERVED_EVICTION_NAMES}), an \
                 admission rule ({SERVED_ADMISSION_NAMES}), or both, such as adaptsize+gdsf"
            ),
            Self::UnknownAdmission(text) => write!(
                f,
                "unknown admission rule `{text}` before the +; use {ADMISSION_NAMES}"
            ),
            Self::UnknownEviction(text) => write!(
                f,
                "unknown eviction rule `{text}` after the +; use {EVICTION_NAMES}"
            ),
            Self::SizeMissing { policy } => {
                write!(f, "`{policy}` needs a size; write {policy}:64KiB")
            }
            Self::SizeZero { policy } => {
                write!(f, "`{policy}:0` would admit nothing; write {policy}:64KiB")
            }
            Self::Requests(text) => write!(
                f,
                "`nth-hit:{text}` needs a number of requests from 2 to {REQUESTS_MAX}; write nth-hit:3"
            ),
            Self::Percentile(text) => write!(
                f,
                "`threshold-percentile:{text}` needs a whole number from 1 to 99; write threshold-percentile:90"
            ),
            Self::Size(_) => f.write_str("the policy's size cannot be read"),
            Self::NoArgument { policy, argument } => {
                write!(f, "`{policy}` takes no `:{argument}`; write {policy}")
            }
        }
    }
}

impl std::error::Error for ParsePolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Size(error) => Some(error),
            _ => None,
        }
    }
}

/// The names of the admission rules that an edge serves with.
pub const SERVED_ADMISSION_NAMES: &str = "threshold:SIZE, inverse-size:SIZE, exp:SIZE, adaptsize, \
     adaptsize-horizon, second-hit, nth-hit:N";

/// The names of the rules, for error messages.
pub const ADMISSION_NAMES: &str = "threshold:SIZE, threshold-percentile:P, hill-climbing, inverse-size:SIZE, \
     exp:SIZE, adaptsize, adaptsize-horizon, adaptsize-code, second-hit, nth-hit:N";

/// The names of the eviction rules, for messages and help.
pub const EVICTION_NAMES: &str = "lru, fifo, slru, s4lru, sieve, s3-fifo, 2q, arc, lru-k, w-tinylfu, tinylfu-av, \
     size, lfu-da, gds, camp, hyperbolic, lhd, gdsf, gdsf-ghosts, gdsf-plain, density, infinite";

/// The names of the eviction rules that an edge serves with.
pub const SERVED_EVICTION_NAMES: &str = "lru, lfu-da, gdsf, gdsf-ghosts, gdsf-plain, density";
