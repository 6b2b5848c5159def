//! Measured distributions of the time between requests of one object.
//!
//! The lifetime `T` is the time for which the cache keeps an object after a request. Theorem 1 of the AdaptSize paper
//! assumes Poisson requests: an object of rate `r` is requested again within `T` with probability `1 - e^(-rT)`. Real
//! requests are bursty. On a video trace LRU hits 46 of 100 requests where the exponential predicts 34. AdaptSize's
//! predictions have an error of the same size, for every size parameter `c` at which the cache evicts.
//!
//! This module therefore measures two values for objects of about `n` requests per window. `G(T)` is the share of gaps
//! up to `T`. `M(T)` is the mean stay: an object stays in the cache until its next request or for `T`, whichever is
//! shorter. The unit of all times is one window.

/// Gaps between successive requests of one object, by the number of its requests in the window.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    classes: Vec<Class>,
}

/// The gaps of objects with similar request counts.
#[derive(Clone, Debug)]
struct Class {
    /// The weight of the gaps in each bin.
    bins: Vec<f64>,
    /// The weight of all gaps.
    weight: f64,
    /// The weighted sum of all gaps, in windows.
    sum: f64,
}

/// A class prepared for evaluation.
#[derive(Clone, Debug)]
pub(super) struct GapCurve {
    /// At the upper edge of each bin: the share of shorter gaps, and ∫ (1 - G) up to the edge.
    edges: Vec<(f64, f64)>,
    /// The weight of the measured values, from 0 to 1. The exponential distribution has the remaining weight.
    trust: f64,
    /// The number of requests per window, the rate of the exponential distribution.
    count: f64,
    /// The mean gap in windows.
    mean: f64,
}

impl Gaps {
    /// Adds a gap of an object with `count` requests in the window. The unit of a gap is one window, so gaps
    /// are from 0 to 1.
    pub fn add(&mut self, count: f64, gap_windows: f64) {
        let at = class_of(count);
        if self.classes.len() <= at {
            self.classes.resize_with(at + 1, Class::new);
        }
        let class = &mut self.classes[at];
        class.bins[bin_of(gap_windows)] += 1.0;
        class.weight += 1.0;
        class.sum += gap_windows;
    }

    /// Multiplies the weight of all earlier gaps by `factor`.
    pub fn decay(&mut self, factor: f64) {
        for class in &mut self.classes {
            class.bins.iter_mut().for_each(|weight| *weight *= factor);
            class.weight *= factor;
            class.sum *= factor;
        }
    }

    /// Returns the curve of objects with `count` requests.
    pub(super) fn curve(&self, count: f64) -> GapCurve {
        let measured_class = self
            .classes
            .get(class_of(count))
            .filter(|class| class.weight > 0.0);
        let Some(class) = measured_class else {
            return GapCurve {
                edges: Vec::new(),
                trust: 0.0,
                count,
                // `count` requests at random times divide the window into `count + 1` parts.
                mean: 1.0 / (count + 1.0),
            };
        };
        let (mut below, mut area, mut from) = (0.0, 0.0, 0.0);
        let edges = class
            .bins
            .iter()
            .enumerate()
            .map(|(bin, weight)| {
                let (to, before) = (upper_edge(bin), below);
                // Without the limit, rounding could raise the sum above 1.
                below = (below + weight / class.weight).min(1.0);
                area += (to - from) * (1.0 - 0.5 * (before + below));
                from = to;
                (below, area)
            })
            .collect();
        let trust = class.weight / (class.weight + PRIOR_GAPS);
        GapCurve {
            edges,
            trust,
            count,
            mean: trust * class.sum / class.weight + (1.0 - trust) / (count + 1.0),
        }
    }
}

impl GapCurve {
    /// Returns `G(T)` and `M(T)`.
    pub(super) fn at(&self, lifetime: f64) -> (f64, f64) {
        // An exponential distribution with the rate of the class is used where few or no gaps were measured.
        let poisson = -(-self.count * lifetime).exp_m1();
        let poisson = (poisson, poisson / self.count);
        if self.trust <= 0.0 {
            return poisson;
        }
        let bin = bin_of(lifetime);
        let (from, (low, area)) = match bin.checked_sub(1) {
            Some(before) => (upper_edge(before), self.edges[before]),
            None => (0.0, (0.0, 0.0)),
        };
        let to = upper_edge(bin);
        let share = ((lifetime - from) / (to - from)).clamp(0.0, 1.0);
        let within = low + (self.edges[bin].0 - low) * share;
        let measured = (
            within,
            area + (to - from) * share * (1.0 - 0.5 * (low + within)),
        );
        let mix =
            |measured: f64, poisson: f64| self.trust * measured + (1.0 - self.trust) * poisson;
        (mix(measured.0, poisson.0), mix(measured.1, poisson.1))
    }

    /// Returns the mean gap.
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }
}

impl Class {
    fn new() -> Self {
        Self {
            bins: vec![0.0; GAP_BINS],
            weight: 0.0,
            sum: 0.0,
        }
    }
}

/// Returns the class of a count. An octave has two classes.
fn class_of(count: f64) -> usize {
    (2.0 * count.max(1.0).log2()).round() as usize
}

fn bin_of(gap: f64) -> usize {
    let octaves = gap.max(f64::MIN_POSITIVE).log2() + OCTAVES;
    ((octaves * PER_OCTAVE).ceil().max(0.0) as usize).min(GAP_BINS - 1)
}

/// Bin `b` ends at 2^(b/4 - 24). The last bin ends at a whole window.
fn upper_edge(bin: usize) -> f64 {
    (bin as f64 / PER_OCTAVE - OCTAVES).exp2()
}

/// Gaps are measured from 2^-24 of a window to one window.
const OCTAVES: f64 = 24.0;
const PER_OCTAVE: f64 = 4.0;
const GAP_BINS: usize = 97;
const _: () = assert!(GAP_BINS == (OCTAVES * PER_OCTAVE) as usize + 1);
/// The exponential distribution has the weight of this many measured gaps.
const PRIOR_GAPS: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Exponential gaps give the exponential's curve at any lifetime.
    #[test]
    fn poisson_traffic_measures_as_poisson() {
        let mut rng = crate::rng::Rng::new(edgeward_types::Seed(5), 0);
        let mut gaps = Gaps::default();
        let rate = 50.0;
        for _ in 0..100_000 {
            gaps.add(rate, -(1.0 - rng.unit()).ln() / rate);
        }
        let curve = gaps.curve(rate);
        for lifetime in [1e-4, 0.003, 0.01, 0.02, 0.1, 0.9, 1e6_f64] {
            let (within, stay) = curve.at(lifetime);
            let expected = -(-rate * lifetime).exp_m1();
            assert!(
                (within - expected).abs() < 0.01,
                "G({lifetime}) = {within}, not {expected}"
            );
            assert!(
                (stay * rate - expected).abs() < 0.01,
                "M({lifetime}) = {stay}"
            );
        }
        assert!((curve.mean() - 1.0 / rate).abs() < 0.001);
    }

    #[test]
    fn without_measured_gaps_the_exponential_is_used() {
        let (within, stay) = Gaps::default().curve(4.0).at(0.5);
        let expected = 1.0 - (-2_f64).exp();
        assert!((within - expected).abs() < 1e-12);
        assert!((stay - expected / 4.0).abs() < 1e-12);
    }

    /// G and M increase with T, and M never exceeds T, for any measured gaps.
    #[test]
    fn the_curve_is_monotone_and_no_stay_exceeds_the_lifetime() {
        let mut rng = crate::rng::Rng::new(edgeward_types::Seed(6), 0);
        for _ in 0..50 {
            let mut gaps = Gaps::default();
            for _ in 0..200 {
                gaps.add(10.0, rng.unit().powi(8));
            }
            let curve = gaps.curve(10.0);
            let mut before = (0.0, 0.0);
            for step in -120..40 {
                let lifetime = (f64::from(step) / 4.0).exp2();
                let (within, stay) = curve.at(lifetime);
                assert!((0.0..=1.0).contains(&within));
                assert!(within >= before.0 && stay >= before.1, "at {lifetime}");
                assert!(stay <= lifetime * (1.0 + 1e-9), "{stay} at {lifetime}");
                before = (within, stay);
            }
        }
    }
}
