//! Fill, false-positive rate and required size of a [`Bloom`](super::Bloom) filter.
//!
//! A block has two halves of four words, and a word has 64 bits. A block has `l` keys on average,
//! Poisson-distributed. Each key selects one word of each half, and sets four random bits in each of its two words. A
//! lookup of an absent key reads one word of each half. Each of the two words has keys that selected only this word
//! (`3l/16` on average, each), and both have keys that selected both words (`l/16`). These numbers are independent. All
//! results follow without approximation from the generating function of the Poisson distribution with mean `m`,
//! `E[x^K] = e^(-m(1-x))`. `u_i = (1 - i/64)^4` is the probability that a key sets none of `i` given bits of its word:
//!
//! - a bit is unset with probability `e^(-(l/4)·(1 - u_1))`;
//! - the `d` distinct bits of an absent key in one word and its `e` bits in the other are all set with
//!   probability
//!   `Σ_i Σ_j (-1)^(i+j)·C(d,i)·C(e,j)·e^(-(l/16)·(3(1-u_i) + 3(1-u_j) + (1 - u_i·u_j)))`,
//!   by inclusion-exclusion over the unset bits.
//!
//! The tests of [`bloom`](super::bloom) compare these formulas with counts.

use super::bloom::{HALF_WORDS, WORD_BITS_SET};

/// Returns the share of set bits with this number of keys per block.
pub fn fill(keys_per_block: f64) -> f64 {
    1.0 - all_unset(keys_per_block, 1)
}

/// Returns the number of keys per block for this share of set bits.
pub fn keys_per_block(fill: f64) -> f64 {
    let fill = fill.clamp(0.0, FILL_KNOWN_MAX);
    -(1.0 - fill).ln() * HALF_WORDS as f64 / sets_any(1)
}

/// Returns the false-positive rate.
pub fn false_positives(keys_per_block: f64) -> f64 {
    let weights = weights();
    let both_words = (HALF_WORDS * HALF_WORDS) as f64;
    let mut all_set = 0.0;
    for (i, first) in (0..).zip(weights) {
        for (j, second) in (0..).zip(weights) {
            let (u, v) = (1.0 - sets_any(i), 1.0 - sets_any(j));
            let alone = (HALF_WORDS - 1) as f64 * ((1.0 - u) + (1.0 - v));
            let exponent = keys_per_block / both_words * (alone + (1.0 - u * v));
            all_set += first * second * (-exponent).exp();
        }
    }
    // Rounding may give a number slightly below zero.
    all_set.clamp(0.0, 1.0)
}

/// Returns the largest number of keys per block at which `rate` is at most `rate_max`. `rate` must be
/// increasing.
pub(super) fn keys_per_block_at(rate_max: f64, rate: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, keys_per_block(FILL_KNOWN_MAX));
    // The interval has at most 500 keys. After 60 bisections, the error is far below a thousandth of a key.
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if rate(middle) <= rate_max {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the probability that `i` given bits of a word are all unset.
fn all_unset(keys_per_block: f64, i: u32) -> f64 {
    (-keys_per_block / HALF_WORDS as f64 * sets_any(i)).exp()
}

/// Returns the probability that a key of this word sets at least one of `i` given bits.
fn sets_any(i: u32) -> f64 {
    1.0 - (1.0 - f64::from(i) / 64.0).powi(WORD_BITS_SET as i32)
}

/// Returns the weight of each `i` from 0 to 4 in the sum of the module's documentation, as the mean over the number `d`
/// of distinct bits: `Σ_d P(d distinct bits)·(-1)^i·C(d,i)`.
fn weights() -> [f64; WORD_BITS_SET as usize + 1] {
    let mut weights = [0.0; WORD_BITS_SET as usize + 1];
    for (distinct, probability) in DISTINCT {
        let mut signed_choose = 1.0;
        for i in 0..=distinct {
            weights[i as usize] += probability * signed_choose;
            signed_choose *= -f64::from(distinct - i) / f64::from(i + 1);
        }
    }
    weights
}

/// The probability of each number of distinct bits among four random bits of 64.
///
/// 4: 64·63·62·61 / 64^4. 3: C(4,2)·64·63·62 / 64^4. 2: (C(4,2)/2 + 4)·64·63 / 64^4. 1: 64 / 64^4.
const DISTINCT: [(u32, f64); 4] = {
    const ALL: f64 = 16_777_216.0; // 64^4
    [
        (4, 64.0 * 63.0 * 62.0 * 61.0 / ALL),
        (3, 6.0 * 64.0 * 63.0 * 62.0 / ALL),
        (2, 7.0 * 64.0 * 63.0 / ALL),
        (1, 64.0 / ALL),
    ]
};

/// Above this share of set bits nearly every key is a false positive, and the number of keys is unknown.
const FILL_KNOWN_MAX: f64 = 0.999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_distinct_bits_are_a_distribution() {
        let sum: f64 = DISTINCT.iter().map(|(_, probability)| probability).sum();
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
    }

    #[test]
    fn an_empty_filter_has_no_false_positives_and_a_full_one_only_false_positives() {
        assert_eq!(fill(0.0), 0.0);
        assert!(false_positives(0.0) < 1e-12);
        assert!(false_positives(1e4) > 0.999_999);
    }

    #[test]
    fn the_keys_per_block_are_computed_from_the_fill() {
        for keys in [0.5, 10.0, 45.0, 100.0] {
            assert!(
                (keys_per_block(fill(keys)) - keys).abs() < 1e-9 * keys,
                "{keys}"
            );
        }
    }

    /// The rate increases with the number of keys, and the search stops at the given rate.
    #[test]
    fn the_rate_rises_with_the_keys_and_the_search_stops_at_the_given_rate() {
        let rates: Vec<f64> = (0..120)
            .map(|keys| false_positives(f64::from(keys)))
            .collect();
        assert!(rates.windows(2).all(|pair| pair[0] <= pair[1]));
        for rate in [1e-4, 1e-3, 0.01, 0.05] {
            let keys = keys_per_block_at(rate, false_positives);
            assert!((false_positives(keys) - rate).abs() < rate * 1e-6, "{rate}");
        }
    }
}
