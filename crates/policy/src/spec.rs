//! Parsing of policy names.

use std::fmt;
use std::str::FromStr;

use edgeward_types::{ByteSize, ParseByteSizeError, Seed};

use crate::adaptsize::{Mode, Tuner, TunerConfig};
use crate::admission::Admission;
use crate::any::AnyTier;
use crate::eviction::{Gdsf, GdsfPlain, Lru};
use crate::tier::Tier;

/// A policy as written in a flag or a configuration file.
///
/// `lru`, `threshold:SIZE`, `exp:SIZE`, `adaptsize`, `adaptsize-horizon`, `gdsf`, `gdsf-plain`, `infinite`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PolicySpec {
    /// Admits every object, evicts the least recently used.
    Lru,
    /// Admits objects up to this size, evicts the least recently used.
    Threshold(ByteSize),
    /// Admits with probability `e^(-size/c)` for a fixed `c`, evicts the least recently used.
    Exponential(ByteSize),
    /// Like [`Exponential`](Self::Exponential), with `c` tuned by the paper's model.
    AdaptSize,
    /// Like [`Exponential`](Self::Exponential), with `c` tuned by a finite-horizon model with calibrated rates.
    AdaptSizeHorizon,
    /// Evicts the object with the fewest requests per byte. Rejects an object that is worth much less per byte than
    /// one of its victims.
    ///
    /// The default. It has the highest object hit ratio of these policies on all available traces but one
    /// (docs/explanation/policies.md).
    #[default]
    Gdsf,
    /// Admits every object, evicts the object with the fewest requests per byte: GDSF as published.
    GdsfPlain,
    /// Admits every object and evicts none: the upper bound of hits for any policy.
    Infinite,
}

impl PolicySpec {
    /// Makes a tier with this policy.
    pub fn tier(&self, capacity_bytes: u64, seed: Seed) -> AnyTier {
        let lru = |admission| AnyTier::Lru(Tier::<Lru>::new(capacity_bytes, admission, seed));
        match *self {
            Self::Lru => lru(Admission::Always),
            Self::Threshold(size) => lru(Admission::Threshold {
                size_bytes_max: size.bytes(),
            }),
            Self::Exponential(c) => lru(Admission::Exponential {
                c: c.bytes() as f64,
            }),
            Self::AdaptSize | Self::AdaptSizeHorizon => {
                let c = self
                    .tuner(capacity_bytes, None)
                    .map_or(f64::INFINITY, |tuner| tuner.initial_c());
                lru(Admission::Exponential { c })
            }
            Self::Gdsf => AnyTier::Gdsf(Tier::<Gdsf>::new(capacity_bytes, Admission::Always, seed)),
            Self::GdsfPlain => AnyTier::GdsfPlain(Tier::<GdsfPlain>::new(
                capacity_bytes,
                Admission::Always,
                seed,
            )),
            Self::Infinite => AnyTier::Lru(Tier::<Lru>::new(u64::MAX, Admission::Always, seed)),
        }
    }

    /// Returns the tuner of the tier's admission, if the policy has a parameter to tune.
    ///
    /// `window_requests` is the paper's Δ. The default is the paper's 250 000.
    pub fn tuner(&self, capacity_bytes: u64, window_requests: Option<u32>) -> Option<Tuner> {
        let mode = match self {
            Self::AdaptSize => Mode::Paper,
            Self::AdaptSizeHorizon => Mode::Horizon,
            _ => return None,
        };
        let mut config = TunerConfig::new(mode, capacity_bytes);
        if let Some(window_requests) = window_requests {
            config.window_requests = window_requests;
        }
        Some(Tuner::new(config))
    }

    /// Returns one example per variant, for lists and tests.
    pub fn examples() -> [Self; 8] {
        [
            Self::Lru,
            Self::Threshold(ByteSize::kib(64)),
            Self::Exponential(ByteSize::kib(64)),
            Self::AdaptSize,
            Self::AdaptSizeHorizon,
            Self::Gdsf,
            Self::GdsfPlain,
            Self::Infinite,
        ]
    }
}

impl FromStr for PolicySpec {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (text, None),
        };
        let size = |what| {
            let text = argument.ok_or(ParsePolicyError::SizeMissing { policy: what })?;
            let size: ByteSize = text.parse().map_err(ParsePolicyError::Size)?;
            if size == ByteSize(0) {
                return Err(ParsePolicyError::SizeZero { policy: what });
            }
            Ok(size)
        };
        let spec = match name {
            "threshold" => return size("threshold").map(Self::Threshold),
            "exp" => return size("exp").map(Self::Exponential),
            "lru" => Self::Lru,
            "adaptsize" => Self::AdaptSize,
            "adaptsize-horizon" => Self::AdaptSizeHorizon,
            "gdsf" => Self::Gdsf,
            "gdsf-plain" => Self::GdsfPlain,
            "infinite" => Self::Infinite,
            _ => return Err(ParsePolicyError::Unknown(text.to_owned())),
        };
        match argument {
            Some(argument) => Err(ParsePolicyError::NoArgument {
                policy: name.to_owned(),
                argument: argument.to_owned(),
            }),
            None => Ok(spec),
        }
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Writes bytes if the rounded unit would not parse back to the same size.
        let size = |size: ByteSize| {
            let shown = size.to_string().replace(' ', "");
            if shown.parse() == Ok(size) {
                shown
            } else {
                size.bytes().to_string()
            }
        };
        match *self {
            Self::Lru => f.write_str("lru"),
            Self::Threshold(threshold) => write!(f, "threshold:{}", size(threshold)),
            Self::Exponential(c) => write!(f, "exp:{}", size(c)),
            Self::AdaptSize => f.write_str("adaptsize"),
            Self::AdaptSizeHorizon => f.write_str("adaptsize-horizon"),
            Self::Gdsf => f.write_str("gdsf"),
            Self::GdsfPlain => f.write_str("gdsf-plain"),
            Self::Infinite => f.write_str("infinite"),
        }
    }
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParsePolicyError {
    /// No policy has this name.
    Unknown(String),
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
                "unknown policy `{text}`; use lru, threshold:SIZE, exp:SIZE, adaptsize, \
                 adaptsize-horizon, gdsf, gdsf-plain or infinite"
            ),
            Self::SizeMissing { policy } => {
                write!(f, "`{policy}` needs a size; write {policy}:64KiB")
            }
            Self::SizeZero { policy } => {
                write!(f, "`{policy}:0` would admit nothing; write {policy}:64KiB")
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_policy_reads_back() {
        let odd = [
            PolicySpec::Threshold(ByteSize(123_457)),
            PolicySpec::Exponential(ByteSize(u64::MAX)),
        ];
        for spec in PolicySpec::examples().into_iter().chain(odd) {
            assert_eq!(spec.to_string().parse(), Ok(spec), "{spec}");
        }
    }

    #[test]
    fn an_invalid_policy_is_rejected_with_a_hint() {
        for (text, hint) in [
            ("mru", "use lru"),
            ("threshold", "threshold:64KiB"),
            ("exp:", "cannot be read"),
            ("exp:0", "admit nothing"),
            ("lru:3", "write lru"),
        ] {
            let message = text.parse::<PolicySpec>().expect_err(text).to_string();
            assert!(message.contains(hint), "{text}: {message}");
        }
    }
}
