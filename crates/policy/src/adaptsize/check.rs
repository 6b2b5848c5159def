//! The check on the model: what sampled caches measured, and what to believe in the end.
//!
//! The model knows the shape of the curve between and beyond the points where anything was
//! measured; the sampled caches know the truth at a few points, up to the luck of their sample. So
//! the curve to choose from is the model's plus its error, which is known at the sampled `c` and
//! interpolated over log c between them, and the whole is shifted to agree with the hit ratio the real
//! cache had under the `c` in force.

use edgeward_types::Seed;

use super::gaps::Gaps;
use super::sampled::SampledCaches;
use super::search;
use super::statistics::{NO_BIN, Object};
use super::{CurvePoint, TunerConfig};

/// The sampled caches and the smoothed memory of what they measured.
#[derive(Clone, Debug)]
pub(super) struct Check {
    caches: SampledCaches,
    smoothing: f64,
    requests: f64,
    hits: Vec<f64>,
    /// Real against predicted level, smoothed; nothing before the first window.
    level: Option<f64>,
}

impl Check {
    pub(super) fn new(config: &TunerConfig, seed: Seed) -> Self {
        let one_in = (config.capacity_bytes / SAMPLED_CAPACITY_BYTES_MIN)
            .clamp(1, u64::from(config.sample_one_in_max));
        // The largest power of two not above.
        let one_in = 1 << one_in.ilog2();
        let mut cs: Vec<f64> = (1..)
            .map(|step| config.c_min * 4f64.powi(step))
            // Beyond half the capacity hardly anything that fits is refused.
            .take_while(|&c| c < config.capacity_bytes as f64 / 2.0)
            .take(SAMPLED_CACHES_MAX - 1)
            .collect();
        cs.push(f64::INFINITY);
        let hits = vec![0.0; cs.len()];
        Self {
            caches: SampledCaches::new(config.capacity_bytes, one_in, &cs, seed),
            smoothing: config.smoothing,
            requests: 0.0,
            hits,
            level: None,
        }
    }

    /// A request for an object; a newcomer may join the sample first.
    ///
    /// `position` is the request's place in the window, from 1.
    pub(super) fn request(&mut self, object: &mut Object, position: u32) {
        if object.bin == NO_BIN && object.count == 1 {
            object.sample = self.caches.enrol();
        }
        if let Some(slot) = object.sample {
            self.caches.request(slot, object.size_bytes, position);
        }
    }

    /// Adds the window's gaps between requests of sampled objects. `objects` still hold the window's counts.
    pub(super) fn measure_gaps(
        &mut self,
        objects: &[Object],
        window_requests: u64,
        gaps: &mut Gaps,
    ) {
        let mut counts = vec![0; self.caches.slots()];
        for object in objects {
            if let Some(slot) = object.sample {
                counts[slot.get() as usize - 1] = object.count;
            }
        }
        gaps.fade(self.smoothing);
        for (slot, requests) in self.caches.take_gaps() {
            let count = counts[slot.get() as usize - 1];
            gaps.add(
                f64::from(count),
                f64::from(requests) / window_requests as f64,
            );
        }
    }

    /// Whether a sampled cache holds it, so that it must not be forgotten.
    pub(super) fn holds(&self, object: &Object) -> bool {
        object.sample.is_some_and(|slot| self.caches.holds(slot))
    }

    /// Forgets an object.
    pub(super) fn dismiss(&mut self, object: &Object) {
        if let Some(slot) = object.sample {
            self.caches.dismiss(slot);
        }
    }

    /// The corrected curve and the `c` to use, given the model and what the real cache measured under `c_now`.
    pub(super) fn choose(
        &mut self,
        config: &TunerConfig,
        c_now: f64,
        measured_ohr: f64,
        mut model: impl FnMut(f64) -> f64,
    ) -> (Vec<CurvePoint>, CurvePoint) {
        let (requests, hits) = self.caches.take_hits();
        self.requests = self.smoothing * self.requests + requests as f64;
        for (smoothed, new) in self.hits.iter_mut().zip(hits) {
            *smoothed = self.smoothing * *smoothed + new as f64;
        }
        let errors: Vec<(f64, f64)> = if self.requests > 0.0 {
            self.caches
                .cs()
                .zip(&self.hits)
                .map(|(c, hits)| (position(c, config), hits / self.requests - model(c)))
                .collect()
        } else {
            Vec::new()
        };
        let mut corrected = |c: f64| model(c) + interpolate(&errors, position(c, config));
        let level_now = measured_ohr - corrected(c_now);
        let level =
            LEVEL_SMOOTHING * self.level.unwrap_or(level_now) + (1.0 - LEVEL_SMOOTHING) * level_now;
        self.level = Some(level);
        let mut predict = |c: f64| (corrected(c) + level).clamp(0.0, 1.0);
        let stay = CurvePoint {
            c: c_now,
            ohr: predict(c_now),
        };
        let (curve, best) = search::best(config, |c| Some(predict(c)));
        let chosen = if best.ohr > stay.ohr + config.hysteresis {
            best
        } else {
            stay
        };
        (curve, chosen)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.caches.memory_bytes()
    }
}

/// Where `c` lies on the axis of interpolation: log2, with `∞` two octaves above the capacity, where
/// `e^(-s/c)` is above 0.78 for all that fits.
fn position(c: f64, config: &TunerConfig) -> f64 {
    let beyond = (config.capacity_bytes as f64).log2() + 2.0;
    c.log2().min(beyond)
}

/// Piecewise linear between points ascending in x, constant outside.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let at = points.partition_point(|point| point.0 < x);
    match (
        at.checked_sub(1).map(|before| points[before]),
        points.get(at),
    ) {
        (None, None) => 0.0,
        (Some((_, y)), None) | (None, Some(&(_, y))) => y,
        (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
    }
}

/// A sampled cache smaller than this holds too few objects to speak for the real one.
const SAMPLED_CAPACITY_BYTES_MIN: u64 = 32 << 20;
/// Eleven, two octaves apart, reach from 1 KiB to 1 GiB; the last admits everything.
const SAMPLED_CACHES_MAX: usize = 12;
/// The level wanders with the traffic from window to window; half of each step is taken for noise.
const LEVEL_SMOOTHING: f64 = 0.5;
