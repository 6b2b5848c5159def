//! The estimates that follow from the misses of a simulated cache.

use crate::window::{Cell, Misses};

/// The correction of the estimates by the misses of the live cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The factor of the misses of all policies and sizes: 1 without a correction.
    pub requests: f64,
    /// The factor of the missed bytes of all policies and sizes.
    pub bytes: f64,
}

impl Calibration {
    pub(crate) const NONE: Self = Self {
        requests: 1.0,
        bytes: 1.0,
    };
}

/// Returns the correction of estimates by the measured misses. `misses` are those of the present setting.
pub(crate) fn calibration(sum: &Cell, misses: &Misses) -> Calibration {
    if sum.samples() < CALIBRATION_SAMPLES_MIN || is_incomplete(sum.samples(), sum.lost()) {
        return Calibration::NONE;
    }
    let counts = sum.of_objects();
    let factor = |all: u64, hits: u64, estimate: f64| {
        let factor = all.saturating_sub(hits) as f64 / estimate;
        if factor.is_finite() {
            factor.clamp(CALIBRATION_MIN, 1.0 / CALIBRATION_MIN)
        } else {
            1.0
        }
    };
    Calibration {
        requests: factor(counts.requests, counts.hits, misses.requests()),
        bytes: factor(counts.bytes, counts.hit_bytes, misses.sent_bytes),
    }
}

/// The hit ratios and the traffic of origins that a cache would have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Hits per request.
    pub hit_ratio: f64,
    /// The standard error of the hit ratio that follows from the size of the sample.
    pub hit_ratio_error: f64,
    /// Bytes of hits per byte of all responses.
    pub byte_hit_ratio: f64,
    /// Bytes of bodies that the origin would send for objects, per second.
    pub origin_bytes_per_second: f64,
}

/// Returns the estimate for the requests of `sum` if a cache has missed `misses` of them.
pub(crate) fn estimate(
    misses: &Misses,
    sum: &Cell,
    calibration: &Calibration,
    seconds: f64,
) -> Estimate {
    let (of_objects, others) = (sum.of_objects(), sum.others());
    let all = of_objects.plus(others);
    let ratio = |others: u64, of_objects: u64, misses: f64, all: u64| {
        let hits = others as f64 + (of_objects as f64 - misses).max(0.0);
        if all == 0 { 0.0 } else { hits / all as f64 }
    };
    Estimate {
        hit_ratio: ratio(
            others.hits,
            of_objects.requests,
            misses.requests() * calibration.requests,
            all.requests,
        ),
        hit_ratio_error: misses.requests_error() / all.requests.max(1) as f64,
        byte_hit_ratio: ratio(
            others.hit_bytes,
            of_objects.bytes,
            misses.sent_bytes * calibration.bytes,
            all.bytes,
        ),
        origin_bytes_per_second: misses.origin_bytes * calibration.bytes / seconds.max(1.0),
    }
}

/// Returns true if so much of the sample is lost that no estimate is reliable.
pub(crate) fn is_incomplete(samples: u64, lost: u64) -> bool {
    lost as f64 > LOST_MAX * (samples + lost) as f64
}

/// The part of the sample that may be lost before the predictions are too uncertain for a correction or an advice.
pub const LOST_MAX: f64 = 0.01;

/// The fewest requests of the sample in the window for a correction. With fewer, chance decides it.
const CALIBRATION_SAMPLES_MIN: u64 = 1000;

/// The smallest factor of a correction, and the inverse of the largest. A larger difference has another cause, such as
/// a live cache that was full at the start.
const CALIBRATION_MIN: f64 = 0.8;
