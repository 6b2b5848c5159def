//! Admission rules as text, and the rule and tuner of each.

use std::fmt;

use edgeward_types::ByteSize;

use crate::adaptsize::{Mode, Tuner, TunerConfig};
use crate::disk_admission::REQUESTS_MAX;
use crate::eviction::EvictionSpec;
use crate::rule_text::{ParsePolicyError, reject_argument, split_argument};

use super::hill_climbing::HillClimbing;
use super::nth_hit::NthHit;
use super::percentile::PercentileTuner;
use super::rule::Admission;
use super::tuner::AdmissionTuner;

/// An admission rule: `threshold:SIZE`, `threshold-percentile:P`, `hill-climbing`, `inverse-size:SIZE`, `exp:SIZE`,
/// `adaptsize`, `adaptsize-horizon`, `adaptsize-code`, `second-hit`, `nth-hit:N`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AdmissionSpec {
    /// Admits every object.
    Always,
    /// Admits objects up to this size.
    Threshold(ByteSize),
    /// Admits objects up to this percentile (1 to 99) of the sizes of recently requested objects.
    ThresholdPercentile(u8),
    /// Admits objects up to a size that is tuned by hill climbing with two shadow caches.
    HillClimbing,
    /// Admits an object of `s` bytes with probability `min(1, SIZE/s)`: always up to this size, then in proportion to
    /// `1/s`.
    InverseSize(ByteSize),
    /// Admits with probability `e^(-size/c)` for a fixed `c`.
    Exponential(ByteSize),
    /// Like [`Exponential`](Self::Exponential), with `c` tuned by the model of the AdaptSize paper (NSDI 2017).
    AdaptSize,
    /// Like [`Exponential`](Self::Exponential), with `c` tuned by a model that predicts the hits of the next window of
    /// requests from the current content of the cache.
    AdaptSizeHorizon,
    /// Like [`AdaptSize`](Self::AdaptSize), with the approximations of the code that the paper's authors published.
    AdaptSizeCode,
    /// Admits an object at its second remembered request.
    SecondHit,
    /// Admits an object at its n-th remembered request. The number n is from 2 to [`REQUESTS_MAX`].
    NthHit(u32),
}

impl AdmissionSpec {
    /// See [`PolicySpec::is_served`](crate::PolicySpec::is_served).
    pub(crate) const fn is_served(self) -> bool {
        !matches!(
            self,
            Self::ThresholdPercentile(_) | Self::HillClimbing | Self::AdaptSizeCode
        )
    }

    /// Returns the rule for a tier of this capacity, with its initial parameter if a tuner changes it.
    pub(crate) fn rule(self, capacity_bytes: u64) -> Admission {
        let adaptsize = |mode| Admission::Exponential {
            c: Tuner::initial_c(mode),
        };
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
            Self::ThresholdPercentile(_) => Admission::Threshold {
                size_bytes_max: u64::MAX,
            },
            Self::HillClimbing => Admission::Threshold {
                size_bytes_max: HillClimbing::initial_c(capacity_bytes) as u64,
            },
            Self::AdaptSize => adaptsize(Mode::Paper),
            Self::AdaptSizeHorizon => adaptsize(Mode::Horizon),
            Self::AdaptSizeCode => adaptsize(Mode::Code),
        }
    }

    /// See [`PolicySpec::tuner`](crate::PolicySpec::tuner).
    pub(crate) fn tuner(
        self,
        eviction: EvictionSpec,
        capacity_bytes: u64,
        window_requests: Option<u32>,
    ) -> Option<Box<dyn AdmissionTuner>> {
        let adaptsize = |mode| -> Box<dyn AdmissionTuner> {
            let mut config = TunerConfig::new(mode, capacity_bytes);
            if let Some(window_requests) = window_requests {
                config.window_requests = window_requests;
            }
            Box::new(Tuner::new(config))
        };
        Some(match self {
            Self::ThresholdPercentile(percent) => Box::new(PercentileTuner::new(percent)),
            Self::HillClimbing => {
                let tuner = HillClimbing::new(eviction, capacity_bytes, window_requests);
                Box::new(tuner)
            }
            Self::AdaptSize => adaptsize(Mode::Paper),
            Self::AdaptSizeHorizon => adaptsize(Mode::Horizon),
            Self::AdaptSizeCode => adaptsize(Mode::Code),
            Self::Always
            | Self::Threshold(_)
            | Self::InverseSize(_)
            | Self::Exponential(_)
            | Self::SecondHit
            | Self::NthHit(_) => return None,
        })
    }

    /// See [`PolicySpec::depends_on_key_hash`](crate::PolicySpec::depends_on_key_hash).
    pub(crate) fn depends_on_key_hash(self) -> bool {
        matches!(self, Self::SecondHit | Self::NthHit(_) | Self::HillClimbing)
    }

    /// Returns one example of each rule that can reject objects.
    pub(crate) fn examples() -> impl Iterator<Item = Self> {
        [
            Self::Threshold(ByteSize::kib(64)),
            Self::Exponential(ByteSize::kib(64)),
            Self::AdaptSize,
            Self::AdaptSizeHorizon,
            Self::AdaptSizeCode,
            Self::ThresholdPercentile(90),
            Self::HillClimbing,
            Self::InverseSize(ByteSize::kib(16)),
            Self::SecondHit,
            Self::NthHit(3),
        ]
        .into_iter()
    }
}

/// Parses `NAME` or `NAME:ARGUMENT`. Returns `None` if no admission rule has this name.
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
        "threshold-percentile" => {
            let text = argument.unwrap_or_default();
            return match text.parse() {
                Ok(percent @ 1..=99) => Ok(Some(AdmissionSpec::ThresholdPercentile(percent))),
                _ => Err(ParsePolicyError::Percentile(text.to_owned())),
            };
        }
        "hill-climbing" => AdmissionSpec::HillClimbing,
        "adaptsize-code" => AdmissionSpec::AdaptSizeCode,
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
        // Writes a number of bytes if the size, rounded in its unit, would parse to a different size.
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
            Self::ThresholdPercentile(percent) => write!(f, "threshold-percentile:{percent}"),
            Self::HillClimbing => f.write_str("hill-climbing"),
            Self::AdaptSizeCode => f.write_str("adaptsize-code"),
            Self::SecondHit => f.write_str("second-hit"),
            Self::NthHit(requests) => write!(f, "nth-hit:{requests}"),
            Self::AdaptSize => f.write_str("adaptsize"),
            Self::AdaptSizeHorizon => f.write_str("adaptsize-horizon"),
        }
    }
}
