//! Calibrates rate estimates with the requests that followed earlier estimates.
//!
//! If past windows have a weight of 0.3, the estimate for an object with one request is 0.7 requests per window. But
//! four of five such objects are never requested again. The mean of the requests that followed all estimates of one
//! bin is unbiased. Storing these means takes a few hundred numbers.

use super::model::Bins;

/// The requests that followed an estimate, by bins of the estimate.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    bins: Bins,
    /// The outcomes per bin, smoothed over windows.
    outcomes: Vec<Outcomes>,
    /// The weight of past windows is multiplied by this factor at each new window.
    smoothing: f64,
}

/// The outcomes of the estimates in one bin. Older windows have less weight in each sum.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    /// The number of objects with an estimate in this bin.
    objects: f64,
    /// The number of objects that were requested again.
    active: f64,
    /// The number of requests that followed the estimates.
    requests: f64,
}

impl Calibration {
    pub(super) fn new(smoothing: f64) -> Self {
        Self {
            bins: Bins::new(PER_OCTAVE),
            outcomes: Vec::new(),
            smoothing,
        }
    }

    /// Returns the bin of an estimate, which is in requests per window.
    pub(super) fn bin(&self, estimate: f64) -> u16 {
        // The first bin is at 2^-16. An estimate of 2^32 is therefore in bin (32 + 16) * 4 = 192.
        self.bins.bin_of(estimate).min(BINS_MAX - 1) as u16
    }

    /// Reduces the weight of past windows. Called before the outcomes of a window are added.
    pub(super) fn decay(&mut self) {
        for outcomes in &mut self.outcomes {
            outcomes.objects *= self.smoothing;
            outcomes.active *= self.smoothing;
            outcomes.requests *= self.smoothing;
        }
    }

    /// Adds the outcome of an estimate in `bin`: the object had `count` requests in the window after the estimate.
    pub(super) fn add_outcome(&mut self, bin: u16, count: u32) {
        if self.outcomes.len() <= usize::from(bin) {
            self.outcomes
                .resize(usize::from(bin) + 1, Outcomes::default());
        }
        let outcomes = &mut self.outcomes[usize::from(bin)];
        outcomes.objects += 1.0;
        outcomes.active += f64::from(u8::from(count > 0));
        outcomes.requests += f64::from(count);
    }

    /// Returns the probability that an object with this estimate is requested in the next window, and its
    /// expected number of requests in that case.
    ///
    /// The prior is two objects with Poisson requests at the estimated rate. It matters only for bins with few
    /// outcomes.
    pub(super) fn predict(&self, estimate: f64) -> (f64, f64) {
        let outcomes = self
            .outcomes
            .get(usize::from(self.bin(estimate)))
            .copied()
            .unwrap_or_default();
        let active = outcomes.active + PRIOR_OBJECTS * -(-estimate).exp_m1();
        let requests = outcomes.requests + PRIOR_OBJECTS * estimate;
        if active <= 0.0 {
            return (0.0, 1.0);
        }
        (
            active / (outcomes.objects + PRIOR_OBJECTS),
            (requests / active).max(1.0),
        )
    }
}

/// The number of bins of estimates for each factor of two.
const PER_OCTAVE: u32 = 4;
const BINS_MAX: usize = 256;
/// The prior has the weight of this many objects.
const PRIOR_OBJECTS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand objects have an estimate of 0.7. One in five is requested again, twice.
    #[test]
    fn a_prediction_equals_the_mean_outcome() {
        let mut calibration = Calibration::new(0.3);
        let bin = calibration.bin(0.7);
        for object in 0..1000 {
            calibration.add_outcome(bin, if object % 5 == 0 { 2 } else { 0 });
        }
        let (active, count) = calibration.predict(0.7);
        assert!((active - 0.2).abs() < 0.002, "{active}");
        assert!((count - 2.0).abs() < 0.02, "{count}");
    }

    #[test]
    fn without_outcomes_the_estimate_itself_is_predicted() {
        let calibration = Calibration::new(0.3);
        let (active, count) = calibration.predict(3.0);
        assert!((active - (1.0 - (-3_f64).exp())).abs() < 1e-12);
        assert!((active * count - 3.0).abs() < 1e-12);
    }

    #[test]
    fn an_estimate_of_zero_predicts_no_requests() {
        let (active, count) = Calibration::new(0.3).predict(0.0);
        assert_eq!((active, count), (0.0, 1.0));
    }

    #[test]
    fn newer_windows_weigh_more() {
        let mut calibration = Calibration::new(0.3);
        let bin = calibration.bin(1.0);
        (0..1000).for_each(|_| calibration.add_outcome(bin, 0));
        calibration.decay();
        (0..1000).for_each(|_| calibration.add_outcome(bin, 1));
        let (active, _) = calibration.predict(1.0);
        // The newer 1000 objects are active and have weight 1, the older ones have weight 0.3.
        assert!((active - 1.0 / 1.3).abs() < 0.002, "{active}");
    }
}
