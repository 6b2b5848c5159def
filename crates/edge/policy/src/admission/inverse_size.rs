//! An object of `s` bytes is admitted with probability `min(1, SIZE/s)`: each admission costs at most `SIZE` bytes of
//! cache on average, for objects of any larger size.
//!
//! Source: LRU-S of Starobinski and Tse, "Probabilistic Methods for Web Caching", Performance Evaluation 46, 2001.
//! Jelenković and Radovanović, "Optimizing LRU Caching for Variable Document Sizes", 2004, show that probabilities
//! proportional to `1/s` are the best for LRU with independent requests. In both, a hit moves its object to the front
//! of the list with this probability, too. Here an admission rule sees misses only, and the eviction rule treats hits.
//!
//! Cost: one random draw and one division. Memory: none per object.

use crate::object::Object;
use crate::rng::Rng;

pub(super) fn admits(size_bytes: u64, object: &Object, rng: &mut Rng) -> bool {
    rng.unit() * (object.size_bytes as f64) < size_bytes as f64
}

#[cfg(test)]
mod tests {
    use crate::admission::{Admission, tests::share_admitted};

    /// The probabilities on both sides of the size, and for an empty object.
    #[test]
    fn the_probability_falls_with_the_inverse_of_the_size() {
        let rule = Admission::InverseSize { size_bytes: 1000 };
        for size in [0, 1, 999, 1000] {
            assert_eq!(share_admitted(&rule, size), 1.0, "{size}");
        }
        for (size, expected) in [(1001, 1000.0 / 1001.0), (2000, 0.5), (100_000, 0.01)] {
            let share = share_admitted(&rule, size);
            // Standard deviation at most 0.0025 with 40 000 draws.
            assert!((share - expected).abs() < 0.0125, "{size}: {share}");
        }
    }
}
