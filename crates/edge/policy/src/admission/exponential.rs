//! An object of `s` bytes is admitted with probability `e^(-s/c)`: small objects nearly always, large objects rarely.
//!
//! Source: Berger, Sitaraman, Harchol-Balter, "AdaptSize", NSDI 2017, section 4. AdaptSize is this rule with a new `c`
//! after every window of requests ([`adaptsize`](crate::adaptsize)). The text of the paper has `e^(-s/c)`; its
//! Theorem 1 prints `e^(-c·s)`, which is a misprint. Cost: one random draw and one power. Memory: none per object.

use crate::object::Object;
use crate::rng::Rng;

pub(super) fn admits(c: f64, object: &Object, rng: &mut Rng) -> bool {
    rng.unit() < (-(object.size_bytes as f64) / c).exp()
}

#[cfg(test)]
mod tests {
    use crate::admission::{Admission, tests::share_admitted};

    #[test]
    fn an_object_of_c_bytes_is_admitted_with_probability_one_over_e() {
        let exponential = Admission::Exponential { c: 4096.0 };
        for (size, expected) in [(0, 1.0), (4096, 1.0 / 1f64.exp()), (8192, (-2f64).exp())] {
            let share = share_admitted(&exponential, size);
            // Standard deviation at most 0.0025 with 40 000 draws.
            assert!((share - expected).abs() < 0.0125, "{size}: {share}");
        }
    }

    #[test]
    fn an_infinite_c_admits_everything() {
        let all = Admission::Exponential { c: f64::INFINITY };
        assert_eq!(share_admitted(&all, u64::MAX), 1.0);
    }
}
