//! The names of the admission rules.

use std::fmt;

use edgeward_types::ByteSize;

use crate::adaptsize::{Mode, Tuner, TunerConfig};
use crate::disk_admission::REQUESTS_MAX;
use crate::spec::{ParsePolicyError, reject_argument, split_argument};

use super::{Admission, NthHit};

/// An admission rule: `threshold:SIZE`, `inverse-size:SIZE`, `exp:SIZE`, `adaptsize`, `adaptsize-horizon`,
/// `second-hit`, `nth-hit:N`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AdmissionSpec {
    /// Admits every object.
    Always,
    /// Admits objects up to this size.
    Threshold(ByteSize),
    /// Admits with a probability that falls with the inverse of the size. Objects up to this size are always admitted.
    InverseSize(ByteSize),
    /// Admits with probability `e^(-size/c)` for a fixed `c`.
    Exponential(ByteSize),
    /// Like [`Exponential`](Self::Exponential), with `c` tuned by the model of the AdaptSize paper (NSDI 2017).
    AdaptSize,
    /// Like [`Exponential`](Self::Exponential), with `c` tuned by a model that predicts the hits of the next window of
    /// requests from the current content of the cache.
    AdaptSizeHorizon,
    /// Admits an object at its second remembered request.
    SecondHit,
    /// Admits an object at its n-th remembered request. The number n is from 2 to [`REQUESTS_MAX`].
    NthHit(u32),
}

impl AdmissionSpec {
    /// Returns the rule for a tier of this capacity, in its first state.
    pub(crate) fn rule(self, capacity_bytes: u64) -> Admission {
        match self {
            Self::Always => Admission::Always,
            Self::Threshold(size) => Admission::Threshold {
                size_bytes_max: size.bytes(),
            },
            Self::InverseSize(size) => Admission::InverseSize {
                size_bytes: size.bytes(),
            },
            Self::SecondHit => Admission::NthHit(NthHit::new(2, capacity_bytes)),
            Self::NthHit(requests) => {
                Admission::NthHit(NthHit::new(requests.clamp(2, REQUESTS_MAX), capacity_bytes))
            }
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

    /// See [`PolicySpec::depends_on_key_hash`](crate::PolicySpec::depends_on_key_hash).
    pub(crate) fn depends_on_key_hash(self) -> bool {
        matches!(self, Self::SecondHit | Self::NthHit(_))
    }

    /// Returns one example for each rule that rejects objects.
    pub(crate) fn examples() -> impl Iterator<Item = Self> {
        [
            Self::Threshold(ByteSize::kib(64)),
            Self::Exponential(ByteSize::kib(64)),
            Self::AdaptSize,
            Self::AdaptSizeHorizon,
            Self::InverseSize(ByteSize::kib(16)),
            Self::SecondHit,
            Self::NthHit(3),
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
        "inverse-size" => {
            return size("inverse-size")
                .map(AdmissionSpec::InverseSize)
                .map(Some);
        }
        "nth-hit" => {
            let text = argument.unwrap_or_default();
            return match text.parse() {
                Ok(requests @ 2..=REQUESTS_MAX) => Ok(Some(AdmissionSpec::NthHit(requests))),
                _ => Err(ParsePolicyError::Requests(text.to_owned())),
            };
        }
        "second-hit" => AdmissionSpec::SecondHit,
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
            Self::InverseSize(at) => write!(f, "inverse-size:{}", size(at)),
            Self::SecondHit => f.write_str("second-hit"),
            Self::NthHit(requests) => write!(f, "nth-hit:{requests}"),
            Self::AdaptSize => f.write_str("adaptsize"),
            Self::AdaptSizeHorizon => f.write_str("adaptsize-horizon"),
        }
    }
}

/// The names of the rules, for error messages.
pub const ADMISSION_NAMES: &str = "threshold:SIZE, inverse-size:SIZE, exp:SIZE, adaptsize, adaptsize-horizon, \
     second-hit, nth-hit:N";
