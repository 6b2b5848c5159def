//! Corrects the model with measurements: the hits of sampled caches and of the real cache.
//!
//! The model predicts the curve of the object hit ratio over AdaptSize's parameter `c`, also between and beyond the
//! measured points. The sampled caches measure the hit ratio at a few values of `c`, up to the sampling error. There,
//! the measured minus the predicted hit ratio is the model's error. The error is interpolated over log c between these
//! values, and the corrected curve is the prediction plus this error. The whole curve is then shifted to agree with
//! the hit ratio of the real cache under its current `c`.

use edgeward_types::Seed;

use super::config::TunerConfig;
use super::gaps::Gaps;
use super::sampled::SampledCaches;
use super::search;
use super::statistics::{NO_BIN, Object};
use super::tuning::CurvePoint;

/// The sampled caches with their smoothed hits, and the smoothed error of the last predictions.
#[derive(Clone, Debug)]
pub(super) struct Correction {
    caches: SampledCaches,
    /// The weight of past windows in the smoothed counts.
    smoothing: f64,
    /// Smoothed requests of the sample, and smoothed hits of each sampled cache.
    requests: f64,
    hits: Vec<f64>,
    /// The smoothed difference between the hit ratio of the real cache and the prediction for its `c`. `None` before
    /// the first step.
    shift: Option<f64>,
}

impl Correction {
    pub(super) fn new(config: &TunerConfig, seed: Seed) -> Self {
        let one_in = (config.capacity_bytes / SAMPLED_CAPACITY_BYTES_MIN)
            .clamp(1, u64::from(config.sample_one_in_max));
        // On average, one object in this many is in the sample. The number is rounded down to a power of two.
        let one_in = 1 << one_in.ilog2();
        let mut cs: Vec<f64> = (1..)
            .map(|step| config.c_min * 4f64.powi(step))
            // With a larger `c`, the admission probability e^(-s/c) is near 1 for nearly all objects.
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
            shift: None,
        }
    }

    /// Records a request for an object. A new object may first be added to the sample.
    ///
    /// `position` is the number of the request in the window, from 1.
    pub(super) fn request(&mut self, object: &mut Object, position: u32) {
        // An object without a bin was not known when the window began. A count of 1 means that this request is its
        // first.
        if object.bin == NO_BIN && object.count == 1 {
            object.sample = self.caches.try_sample();
        }
        if let Some(slot) = object.sample {
            self.caches.request(slot, object.size_bytes, position);
        }
    }

    /// Adds the window's gaps between requests of sampled objects. `objects` must still have the counts of this
    /// window.
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
        gaps.decay(self.smoothing);
        for (slot, requests) in self.caches.take_gaps() {
            let count = counts[slot.get() as usize - 1];
            gaps.add(
                f64::from(count),
                f64::from(requests) / window_requests as f64,
            );
        }
    }

    /// Returns true if a sampled cache has the object, which must then not be forgotten.
    pub(super) fn holds(&self, object: &Object) -> bool {
        object.sample.is_some_and(|slot| self.caches.holds(slot))
    }

    /// Removes an object from the sample.
    pub(super) fn remove(&mut self, object: &Object) {
        if let Some(slot) = object.sample {
            self.caches.remove(slot);
        }
    }

    /// Returns the corrected curve and the chosen `c`. `measured_ohr` is the hit ratio of the real cache under
    /// `c_now`.
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
                .map(|(c, hits)| (log2_limited(c, config), hits / self.requests - model(c)))
                .collect()
        } else {
            Vec::new()
        };
        let mut corrected = |c: f64| model(c) + interpolate(&errors, log2_limited(c, config));
        let shift_now = measured_ohr - corrected(c_now);
        let shift =
            SHIFT_SMOOTHING * self.shift.unwrap_or(shift_now) + (1.0 - SHIFT_SMOOTHING) * shift_now;
        self.shift = Some(shift);
        let mut predict = |c: f64| (corrected(c) + shift).clamp(0.0, 1.0);
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

/// Returns log2 of `c`, at which the error is interpolated. `∞` counts as four times the capacity, because
/// `e^(-s/c)` is above 0.77 there for all objects that fit.
fn log2_limited(c: f64, config: &TunerConfig) -> f64 {
    let log2_max = (config.capacity_bytes as f64).log2() + 2.0;
    c.log2().min(log2_max)
}

/// Interpolates linearly between points ascending in x. Beyond the first and last point the value is constant.
fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let next = points.partition_point(|point| point.0 < x);
    match (
        next.checked_sub(1).map(|before| points[before]),
        points.get(next),
    ) {
        (None, None) => 0.0,
        (Some((_, y)), None) | (None, Some(&(_, y))) => y,
        (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
    }
}

/// The smallest capacity of a sampled cache. A smaller one would have too few objects to represent the real cache.
const SAMPLED_CAPACITY_BYTES_MIN: u64 = 32 << 20;
/// With the default `c_min`: eleven values of `c` from 1 KiB to 1 GiB, each four times the previous one. The last
/// cache admits every object.
const SAMPLED_CACHES_MAX: usize = 12;
/// The weight of past windows in the shift, which varies with the traffic. Half of each change is treated as noise.
const SHIFT_SMOOTHING: f64 = 0.5;
