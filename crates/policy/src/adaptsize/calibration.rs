//! What an estimated rate has been worth: what the next window asked of objects with that estimate.
//!
//! The smoothed count of an object seen once says 0.7 requests a window; four in five such objects
//! are never seen again. Averaged over all objects of one bin of estimates, what came next is
//! unbiased, and it takes a few hundred numbers to remember.

use super::model::Bins;

/// Requests that followed an estimate, by bins of the estimate.
#[derive(Clone, Debug)]
pub(super) struct Calibration {
    bins: Bins,
    /// Smoothed over windows.
    followed: Vec<Followed>,
    smoothing: f64,
}

/// What followed estimates of one bin.
#[derive(Clone, Copy, Debug, Default)]
struct Followed {
    objects: f64,
    /// Those requested again.
    active: f64,
    requests: f64,
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
        for followed in &mut self.followed {
            followed.objects *= self.smoothing;
            followed.active *= self.smoothing;
            followed.requests *= self.smoothing;
        }
    }

    /// An object whose estimate fell into `bin` was asked for `count` times.
    pub(super) fn learn(&mut self, bin: u16, count: u32) {
        if self.followed.len() <= usize::from(bin) {
            self.followed
                .resize(usize::from(bin) + 1, Followed::default());
        }
        let followed = &mut self.followed[usize::from(bin)];
        followed.objects += 1.0;
        followed.active += f64::from(u8::from(count > 0));
        followed.requests += f64::from(count);
    }

    /// The probability that an object with this estimate is requested in the next window, and how often if so.
    ///
    /// Where little is known, two objects with Poisson requests at the estimated rate weigh in.
    pub(super) fn expect(&self, estimate: f64) -> (f64, f64) {
        let followed = self
            .followed
            .get(usize::from(self.bin(estimate)))
            .copied()
            .unwrap_or_default();
        let active = followed.active + PRIOR_OBJECTS * -(-estimate).exp_m1();
        let requests = followed.requests + PRIOR_OBJECTS * estimate;
        if active <= 0.0 {
            return (0.0, 1.0);
        }
        (
            active / (followed.objects + PRIOR_OBJECTS),
            (requests / active).max(1.0),
        )
    }
}

const PER_OCTAVE: u32 = 4;
const BINS_MAX: usize = 256;
const PRIOR_OBJECTS: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand objects estimated at 0.7, of which one in five came back, twice each.
    #[test]
    fn an_estimate_is_worth_what_followed_it() {
        let mut calibration = Calibration::new(0.3);
        let bin = calibration.bin(0.7);
        for object in 0..1000 {
            calibration.learn(bin, if object % 5 == 0 { 2 } else { 0 });
        }
        let (active, count) = calibration.expect(0.7);
        assert!((active - 0.2).abs() < 0.002, "{active}");
        assert!((count - 2.0).abs() < 0.02, "{count}");
    }

    #[test]
    fn what_was_never_judged_is_taken_at_its_word() {
        let calibration = Calibration::new(0.3);
        let (active, count) = calibration.expect(3.0);
        assert!((active - (1.0 - (-3_f64).exp())).abs() < 1e-12);
        assert!((active * count - 3.0).abs() < 1e-12);
    }

    #[test]
    fn an_object_nobody_asked_for_expects_nothing() {
        let (active, count) = Calibration::new(0.3).expect(0.0);
        assert_eq!((active, count), (0.0, 1.0));
    }

    #[test]
    fn newer_windows_weigh_more() {
        let mut calibration = Calibration::new(0.3);
        let bin = calibration.bin(1.0);
        (0..1000).for_each(|_| calibration.learn(bin, 0));
        calibration.fade();
        (0..1000).for_each(|_| calibration.learn(bin, 1));
        let (active, _) = calibration.expect(1.0);
        // 1000 of 1000 + 300.
        assert!((active - 1.0 / 1.3).abs() < 0.002, "{active}");
    }
}
