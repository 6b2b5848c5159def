//! What an estimated rate has been worth: the mean number of requests in the next window of objects with that estimate.
//!
//! The smoothed count of an object seen once says 0.7 requests a window; four in five such objects
//! are never seen again. Averaged over all objects of one bin of estimates, what came next is
//! an unbiased rate, and it takes a few hundred numbers to remember.

use super::model::Bins;

/// Requests that followed an estimate, by bins of the estimate.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    bins: Bins,
    /// Σ of the next counts and the number of objects, smoothed over windows.
    followed: Vec<(f64, f64)>,
    smoothing: f64,
}

impl Calibration {
    pub(super) fn new(smoothing: f64) -> Self {
        Self {
            bins: Bins::new(PER_OCTAVE),
            followed: Vec::new(),
            smoothing,
        }
    }

    /// The bin an estimate belongs to.
    pub(super) fn bin(&self, estimate: f64) -> u16 {
        // 2^32 requests per window are (32 + 16) * 4 = 192 bins.
        self.bins.of(estimate).min(BINS_MAX - 1) as u16
    }

    /// Lets the past fade before a window's outcomes are added.
    pub(super) fn fade(&mut self) {
        for (counts, objects) in &mut self.followed {
            *counts *= self.smoothing;
            *objects *= self.smoothing;
        }
    }

    /// An object whose estimate fell into `bin` was asked for `count` times.
    pub(super) fn learn(&mut self, bin: u16, count: u32) {
        if self.followed.len() <= usize::from(bin) {
            self.followed.resize(usize::from(bin) + 1, (0.0, 0.0));
        }
        let followed = &mut self.followed[usize::from(bin)];
        followed.0 += f64::from(count);
        followed.1 += 1.0;
    }

    /// The rate that follows an estimate. Where little is known the estimate itself weighs in, as two objects would.
    pub(super) fn rate(&self, estimate: f64) -> f64 {
        let (counts, objects) = self
            .followed
            .get(usize::from(self.bin(estimate)))
            .copied()
            .unwrap_or_default();
        (counts + PRIOR_OBJECTS * estimate) / (objects + PRIOR_OBJECTS)
    }
}

const PER_OCTAVE: u32 = 4;
const BINS_MAX: usize = 256;
const PRIOR_OBJECTS: f64 = 2.0;
