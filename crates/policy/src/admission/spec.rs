//! The names of the admission rules.

use std::fmt;

use edgeward_types::ByteSize;

use crate::adaptsize::{Mode, Tuner, TunerConfig};
use crate::spec::{ParsePolicyError, reject_argument, split_argument};

use super::Admission;

/// An admission rule: `threshold:SIZE`, `exp:SIZE`, `adaptsize`, `adaptsize-horizon`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AdmissionSpec {
    /// Admits every object.
    Always,
    /// Admits objects up to this size.
    Threshold(ByteSize),
    /// Admits with probability `e^(-size/c)` for a fixed `c`.
    Exponential(ByteSize),
    /// Like [`Exponential`](Self::Exponential), with `c` tuned by the model of the AdaptSize paper (NSDI 2017).
    AdaptSize,
    /// Like [`Exponential`](Self::Exponential), with `c` tuned by a model that predicts the hits of the next window of
    /// requests from the current content of the cache.
    AdaptSizeHorizon,
}

impl AdmissionSpec {
    /// Returns the rule for a tier of this capacity, in its first state.
    pub(crate) fn rule(self, capacity_bytes: u64) -> Admission {
        match self {
            Self::Always => Admission::Always,
            Self::Threshold(size) => Admission::Threshold {
                size_bytes_max: size.bytes(),
            },
            Self::Exponential(c) => Admission::Exponential {
                c: c.bytes() as f64,
            },
            Self::AdaptSize | Self::AdaptSizeHorizon => {
                let tuner = self.tuner(capacity_bytes, None);
                Admission::Exponential {
                    c: tuner.map_or(f64::INFINITY, |tuner| tuner.initial_c()),
                }
            }
        }
    }

    /// See [`PolicySpec::tuner`](crate::PolicySpec::tuner).
    pub(crate) fn tuner(self, capacity_bytes: u64, window_requests: Option<u32>) -> Option<Tuner> {
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

    /// Returns one example for each rule that rejects objects.
    pub(crate) fn examples() -> impl Iterator<Item = Self> {
        [
            Self::Threshold(ByteSize::kib(64)),
            Self::Exponential(ByteSize::kib(64)),
            Self::AdaptSize,
            Self::AdaptSizeHorizon,
        ]
        .into_iter()
    }
}

/// Returns `None` if no admission rule has this name.
pub(crate) fn parse_admission(text: &str) -> Result<Option<AdmissionSpec>, ParsePolicyError> {
    let (name, argument) = split_argument(text);
    let size = |policy| {
        let text = argument.ok_or(ParsePolicyError::SizeMissing { policy })?;
        let size: ByteSize = text.parse().map_err(ParsePolicyError::Size)?;
        if size == ByteSize(0) {
            return Err(ParsePolicyError::SizeZero { policy });
        }
        Ok(size)
    };
    let admission = match name {
        "threshold" => return size("threshold").map(AdmissionSpec::Threshold).map(Some),
        "exp" => return size("exp").map(AdmissionSpec::Exponential).map(Some),
        "adaptsize" => AdmissionSpec::AdaptSize,
        "adaptsize-horizon" => AdmissionSpec::AdaptSizeHorizon,
        _ => return Ok(None),
    };
    reject_argument(name, argument)?;
    Ok(Some(admission))
}

impl fmt::Display for AdmissionSpec {
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
            Self::Always => f.write_str("always"),
            Self::Threshold(threshold) => write!(f, "threshold:{}", size(threshold)),
            Self::Exponential(c) => write!(f, "exp:{}", size(c)),
            Self::AdaptSize => f.write_str("adaptsize"),
            Self::AdaptSizeHorizon => f.write_str("adaptsize-horizon"),
        }
    }
}

/// The names of the rules, for error messages.
pub const ADMISSION_NAMES: &str = "threshold:SIZE, exp:SIZE, adaptsize, adaptsize-horizon";
