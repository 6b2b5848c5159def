//! Global search for the best `c`: a grid over octaves, then a golden-section search around its best point.
//!
//! The curve of hit ratio over `c` has several maxima (AdaptSize paper, figure 3), so a local search alone may end at a
//! lower one. The grid covers `c_min` to the capacity and has one further point: `c = ∞`, which admits every
//! object. The refinement only replaces the best grid point by a better one.

use super::config::TunerConfig;
use super::tuning::CurvePoint;

/// Returns the curve on the grid, ascending in `c` with `∞` last, and its refined best point.
///
/// `predict` returns `None` if `c` is not a candidate; `∞` is always a candidate.
pub(super) fn best(
    config: &TunerConfig,
    mut predict: impl FnMut(f64) -> Option<f64>,
) -> (Vec<CurvePoint>, CurvePoint) {
    let mut point = |c: f64| predict(c).map(|ohr| CurvePoint { c, ohr });
    let per_octave = f64::from(config.grid_per_octave);
    let low = config.c_min.log2();
    let high = (config.capacity_bytes as f64).log2().max(low);
    let steps = ((high - low) * per_octave).ceil() as u32;
    let grid = (0..=steps).map(|step| (low + f64::from(step) / per_octave).exp2());
    let curve: Vec<CurvePoint> = grid.chain([f64::INFINITY]).filter_map(&mut point).collect();
    // Among equal points the larger `c` is chosen: objects are rejected only for a gain.
    let mut best = *curve
        .iter()
        .max_by(|a, b| a.ohr.total_cmp(&b.ohr))
        .expect("c = ∞ is always a candidate");
    if best.c.is_finite() {
        let middle = best.c.log2();
        let (mut a, mut b) = (middle - 1.0 / per_octave, middle + 1.0 / per_octave);
        // Predicts the hit ratio for the `c` with this binary logarithm, and records it if it is the best.
        let mut evaluate = |exponent: f64| {
            let candidate = point(exponent.exp2());
            if let Some(candidate) = candidate
                && candidate.ohr > best.ohr
            {
                best = candidate;
            }
            candidate.map_or(f64::NEG_INFINITY, |candidate| candidate.ohr)
        };
        let (mut x, mut y) = (b - GOLDEN * (b - a), a + GOLDEN * (b - a));
        let (mut at_x, mut at_y) = (evaluate(x), evaluate(y));
        for _ in 0..GOLDEN_STEPS {
            if at_x > at_y {
                (b, y, at_y) = (y, x, at_x);
                x = b - GOLDEN * (b - a);
                at_x = evaluate(x);
            } else {
                (a, x, at_x) = (x, y, at_y);
                y = a + GOLDEN * (b - a);
                at_y = evaluate(y);
            }
        }
    }
    (curve, best)
}

/// (√5 - 1) / 2.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
/// The bracket of two grid steps shrinks to 0.618^8 = 1/47. With two points per octave this gives `c` to 1.5 %,
/// far less than the width of a maximum.
const GOLDEN_STEPS: usize = 8;

#[cfg(test)]
mod tests {
    use crate::adaptsize::Mode;

    use super::*;

    fn config() -> TunerConfig {
        TunerConfig::new(Mode::Paper, 1 << 30)
    }

    /// A narrow maximum beside a broad, lower one: the grid finds the narrow one, and the golden-section search
    /// refines it.
    #[test]
    fn the_higher_of_two_maxima_is_found_and_refined() {
        let hump = |x: f64, at: f64, width: f64| (-((x - at) / width).powi(2)).exp();
        let predict = |c: f64| {
            let x = c.log2().min(31.0);
            Some(0.5 * hump(x, 12.0, 4.0) + 0.7 * hump(x, 25.3, 0.6))
        };
        let (curve, best) = best(&config(), predict);
        assert!((best.c.log2() - 25.3).abs() < 0.05, "{}", best.c.log2());
        assert!(curve.iter().all(|point| point.ohr <= best.ohr));
    }

    /// The refinement is never worse than the grid, for any curve.
    ///
    /// Method: random curves, one per seed.
    #[test]
    fn refinement_never_returns_worse_than_the_grid() {
        for seed in 0..200_u64 {
            let noise = |c: f64| {
                let bits = edgeward_types::mix64(c.to_bits() ^ seed);
                Some((bits >> 11) as f64 / (1_u64 << 53) as f64)
            };
            let (curve, best) = best(&config(), noise);
            let grid = curve.iter().map(|point| point.ohr).fold(0.0, f64::max);
            assert!(best.ohr >= grid, "seed {seed}");
        }
    }

    #[test]
    fn a_flat_curve_admits_everything() {
        let (_, best) = best(&config(), |_| Some(0.5));
        assert_eq!(best.c, f64::INFINITY);
    }

    #[test]
    fn without_finite_candidates_every_object_is_admitted() {
        let (curve, best) = best(&config(), |c| c.is_infinite().then_some(0.1));
        assert_eq!((curve.len(), best.c), (1, f64::INFINITY));
    }

    /// Two points per octave from 256 bytes to 1 GiB, including both ends, and infinity.
    #[test]
    fn the_grid_covers_the_smallest_c_to_the_capacity_and_infinity() {
        let (curve, _) = best(&config(), |_| Some(0.0));
        assert_eq!(curve.len(), 2 * (30 - 8) + 1 + 1);
        assert_eq!(curve[0].c, 256.0);
        assert_eq!(curve[curve.len() - 2].c, (1_u64 << 30) as f64);
        assert_eq!(curve[curve.len() - 1].c, f64::INFINITY);
    }
}
