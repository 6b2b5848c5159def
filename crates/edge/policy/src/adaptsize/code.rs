//! The AdaptSize of its authors' published code: the class `AdaptSize` of their simulator webcachesim, implemented
//! again here. [`Mode::Code`](super::Mode::Code) exists to reproduce published figures.
//!
//! It differs from [`Mode::Paper`](super::Mode::Paper) in these points:
//!
//! - `c` is 32 KiB until the first step. The first step comes after two windows, 500,000 requests, and later steps
//!   after one window each. A step waits until the known objects have more than three times the bytes of the cache.
//! - The rate of an object that is new in a window is its full count. For other objects the count has the weight 0.7.
//! - `T` comes from ten rounds of a fixed point, `T ← K·T / C(T)`, without a test of convergence.
//! - The hit ratio of an object is computed with the [4/3] Padé approximant of the exponential function. Its
//!   denominator is negative for `rT` above 5.65, so the resulting probability is clamped to 0 or 1 there.
//! - The candidates for `c` are 2^2, 2^6, 2^10 and so on below the capacity. A golden-section search from 1 byte to the
//!   capacity follows. It starts with the best candidate and a point on its larger side. `c = ∞` is no candidate.
//!
//! One difference from webcachesim remains: an object is identified by its key, and not by its key and size.
//!
//! Cost: a step evaluates the model up to 24 times for a cache of 16 GiB, with ten passes over the known objects each.
//! A step takes about 1 s for 250,000 objects. Memory: at most 48 bytes per known object, and 24 more during a step.

use super::config::TunerConfig;
use super::statistics::{NO_BIN, Statistics};
use super::tuning::CurvePoint;

/// An object of the model: its rate in requests per window, and its size.
#[derive(Clone, Copy, Debug)]
struct Demand {
    rate: f64,
    size_bytes: f64,
}

/// The model of one step.
struct Model {
    capacity_bytes: f64,
    demands: Vec<Demand>,
    /// The admission probabilities of `demands` for the current `c`.
    admitted: Vec<f64>,
}

/// The parameter `c` before the first step, in bytes.
pub(super) const INITIAL_C: f64 = 32768.0;

/// Returns true if a step is due. `requests` counts from the last step; `is_first` is true before the first step.
pub(super) fn is_step_due(
    config: &TunerConfig,
    statistics: &Statistics,
    requests: u64,
    is_first: bool,
) -> bool {
    let window = u64::from(config.window_requests);
    let due = if is_first { 2 * window } else { window };
    if requests < due {
        return false;
    }
    // If the known objects have too few bytes, the next attempt is 10,000 requests later (for a window of 250,000).
    let retry = (window / 25).max(1);
    (requests - due).is_multiple_of(retry)
        && known_bytes(statistics) > 3 * u128::from(config.capacity_bytes)
}

/// Updates the rates after a window. `weight` is the weight of the earlier rate. The caller then removes the objects
/// with rates below `rate_min`.
pub(super) fn smooth(statistics: &mut Statistics, weight: f64) {
    for object in statistics.objects_mut() {
        if object.bin == NO_BIN {
            object.past = object.count as f32;
        } else {
            object.smooth(weight);
        }
    }
}

/// Returns the curve of the coarse candidates and the chosen point.
///
/// `current_c` is kept if the arithmetic fails.
pub(super) fn choose(
    config: &TunerConfig,
    statistics: &Statistics,
    current_c: f64,
) -> (Vec<CurvePoint>, CurvePoint) {
    let mut model = Model::new(config, statistics);
    let rates: f64 = model.demands.iter().map(|demand| demand.rate).sum();
    let mut hits = |log2_c: f64| model.hits(log2_c);
    let point = |log2_c: f64, hits: f64| CurvePoint {
        c: log2_c.exp2(),
        ohr: if rates > 0.0 { hits / rates } else { 0.0 },
    };
    let high = (config.capacity_bytes as f64).log2();
    let mut curve = Vec::new();
    let (mut best, mut best_hits) = (high, 0.0);
    for log2_c in (2..).step_by(4).map(f64::from).take_while(|&x| x < high) {
        let hits = hits(log2_c);
        curve.push(point(log2_c, hits));
        if hits > best_hits {
            (best, best_hits) = (log2_c, hits);
        }
    }
    // The bracket has a < x < y < b. The best candidate is `x` or `y`; the other point is on the larger side of it.
    let (mut a, mut b) = (0.0, high);
    let (mut x, mut y, mut at_x, mut at_y);
    if b - best > best - a {
        (x, at_x) = (best, best_hits);
        y = x + (1.0 - GOLDEN) * (b - x);
        at_y = hits(y);
    } else {
        (y, at_y) = (best, best_hits);
        x = a + (1.0 - GOLDEN) * (y - a);
        at_x = hits(x);
    }
    for _ in 0..GOLDEN_STEPS {
        if at_x.is_nan() || at_y.is_nan() || b - a <= TOLERANCE * (x.abs() + y.abs()) {
            break;
        }
        if at_y > at_x {
            (a, x, at_x) = (x, y, at_y);
            y = GOLDEN * x + (1.0 - GOLDEN) * b;
            at_y = hits(y);
        } else {
            (b, y, at_y) = (y, x, at_x);
            x = GOLDEN * y + (1.0 - GOLDEN) * a;
            at_x = hits(x);
        }
    }
    let chosen = if at_x.is_nan() || at_y.is_nan() {
        CurvePoint {
            c: current_c,
            ohr: 0.0,
        }
    } else if at_x > at_y {
        point(x, at_x)
    } else {
        point(y, at_y)
    };
    (curve, chosen)
}

fn known_bytes(statistics: &Statistics) -> u128 {
    let objects = statistics.objects().iter();
    objects.map(|object| u128::from(object.size_bytes)).sum()
}

impl Model {
    fn new(config: &TunerConfig, statistics: &Statistics) -> Self {
        let demands = statistics.objects().iter().map(|object| Demand {
            rate: f64::from(object.past),
            size_bytes: object.size_bytes as f64,
        });
        Self {
            capacity_bytes: config.capacity_bytes as f64,
            demands: demands.collect(),
            admitted: Vec::new(),
        }
    }

    /// Returns the predicted hits per window, or 0 if no object is admitted.
    fn hits(&mut self, log2_c: f64) -> f64 {
        let c = log2_c.exp2();
        let admitted = self.demands.iter().map(|d| (-d.size_bytes / c).exp());
        self.admitted.clear();
        self.admitted.extend(admitted);
        let objects = || self.demands.iter().zip(&self.admitted);
        let inserted: f64 = objects().map(|(d, p)| d.rate * p * d.size_bytes).sum();
        if inserted <= 0.0 {
            return 0.0;
        }
        let mut lifetime = self.capacity_bytes / inserted;
        for _ in 0..FIXED_POINT_ROUNDS {
            if lifetime > LIFETIME_MAX {
                break;
            }
            let content: f64 = objects()
                .map(|(d, p)| d.size_bytes * present(d.rate * lifetime, *p))
                .sum();
            lifetime *= self.capacity_bytes / content;
        }
        objects()
            .map(|(d, p)| d.rate * present_by_pade(d.rate * lifetime, *p))
            .sum()
    }
}

/// Returns the probability that an object is in the cache, by theorem 1 of the paper with `x = rT`:
/// `P = (e^x - 1) p / (1 + (e^x - 1) p)`.
fn present(x: f64, admitted: f64) -> f64 {
    if x > EXPONENT_MAX {
        return 1.0;
    }
    let odds = (x.exp() - 1.0) * admitted;
    odds / (1.0 + odds)
}

/// Returns the probability of [`present`], with the [4/3] Padé approximant `N/D` instead of `e^x`:
/// `P = (N - D) p / (D + (N - D) p)`, clamped to 0..=1.
///
/// `N = 840 + 480x + 120x² + 16x³ + x⁴`, `D = 840 - 360x + 60x² - 4x³`, so `N - D = x (840 + 60x + 20x² + x³)`.
fn present_by_pade(x: f64, admitted: f64) -> f64 {
    let denominator = 840.0 + x * (-360.0 + x * (60.0 - 4.0 * x));
    let difference = x * (840.0 + x * (60.0 + x * (20.0 + x)));
    let present = difference * admitted;
    let total = denominator + present;
    if total == 0.0 {
        return 0.0;
    }
    (present / total).clamp(0.0, 1.0)
}

/// (√5 - 1) / 2, with the digits of the published code.
const GOLDEN: f64 = 0.618_033_99;

const GOLDEN_STEPS: usize = 15;

/// The relative width of the bracket at which the search ends.
const TOLERANCE: f64 = 3.0e-8;

const FIXED_POINT_ROUNDS: usize = 10;

/// The iteration of the fixed point ends above this lifetime, in windows.
const LIFETIME_MAX: f64 = 1e70;

/// For larger exponents, an object counts as always present.
const EXPONENT_MAX: f64 = 150.0;

#[cfg(test)]
mod tests {
    use edgeward_types::KeyHash;
    use proptest::prelude::*;

    use super::*;
    use crate::adaptsize::{Mode, Tuner};

    /// The first step comes after two windows, and not before the known objects exceed three times the capacity. If
    /// they do not, the next attempt is 1/25 of a window later.
    #[test]
    fn the_first_step_waits_for_two_windows_and_three_capacities() {
        for (size_bytes, expected) in [(10, [3_040, 4_040]), (20, [2_000, 3_000])] {
            let mut config = TunerConfig::new(Mode::Code, 10_000);
            config.window_requests = 1_000;
            let mut tuner = Tuner::new(config);
            let mut steps = Vec::new();
            for request in 1..=4_100 {
                if tuner.record(KeyHash(request), size_bytes, false) {
                    tuner.step(&|_| false);
                    steps.push(request);
                }
            }
            assert_eq!(steps[..2], expected, "objects of {size_bytes} bytes");
        }
    }

    proptest! {
        /// The chosen `c` lies between 1 byte and the capacity, and its hit ratio is a ratio, for any traffic.
        #[test]
        fn the_choice_is_a_size_up_to_the_capacity(
            requests in prop::collection::vec((0u64..200, 0u32..20), 1..500),
        ) {
            let config = TunerConfig::new(Mode::Code, 50_000);
            let mut statistics = Statistics::new(1_000);
            for (key, octave) in requests {
                statistics.touch(KeyHash(key), 1 << octave);
            }
            smooth(&mut statistics, 0.3);
            let (curve, chosen) = choose(&config, &statistics, INITIAL_C);
            prop_assert_eq!(curve.len(), 4, "2^2, 2^6, 2^10 and 2^14");
            prop_assert!((1.0..=50_000.0).contains(&chosen.c), "{}", chosen.c);
            prop_assert!((0.0..=1.0 + 1e-9).contains(&chosen.ohr), "{}", chosen.ohr);
        }
    }

    proptest! {
        /// Below exponent 2, both forms agree. The error of the approximant [4/3] is of order x⁸.
        #[test]
        fn the_approximant_equals_the_power_for_small_exponents(
            x in 0.0f64..2.0,
            admitted in 0.0f64..1.0,
        ) {
            let (exact, pade) = (present(x, admitted), present_by_pade(x, admitted));
            prop_assert!((exact - pade).abs() < 1e-4, "{exact} {pade}");
        }
    }

    /// The denominator has its root at 5.6485. Above it, the probability of a rarely admitted object is negative and
    /// clamped to 0, although the exact probability is nearly 1.
    #[test]
    fn the_approximant_fails_above_its_root_as_in_the_published_code() {
        let admitted = 0.001;
        assert!(present_by_pade(5.6, admitted) > 0.1);
        assert_eq!(present_by_pade(40.0, 1e-9), 0.0);
        assert!(present(40.0, 1e-9) > 0.99);
    }
}
