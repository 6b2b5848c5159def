//! A sample of objects by the hashes of their keys, in which large objects are more frequent.

use edgeward_types::KeyHash;

/// A sample of objects. It has all requests for each of its objects.
///
/// An object of `s` bytes is in the sample with the probability `share * max(1, s / 2^large_log2)`, at most 1. A
/// simulation of a cache gives the object the size `s * share / probability`, which is at most 2^`large_log2` unless
/// the probability is 1. The expected sum of these sizes is `share` of the sum of the sizes of all objects. With one
/// probability for all sizes, one object could fill the simulated cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySample {
    /// The share of small objects as a part of 2^64. 0: the sample is empty.
    pub below: u64,
    /// The size from which objects are large, as a power of two.
    pub large_log2: u32,
}

impl KeySample {
    /// The empty sample.
    pub const NONE: Self = Self {
        below: 0,
        large_log2: 63,
    };

    /// Returns true if an object is in the sample.
    #[inline]
    pub const fn takes(&self, key: KeyHash, size_bytes: u64) -> bool {
        sample_hash(key) < self.threshold(size_bytes)
    }

    /// Returns the share of small objects.
    pub fn share(&self) -> f64 {
        part_of_all(self.below)
    }

    /// Returns the sample with half of the small objects. It has the same large objects, and the size from which
    /// objects are large is half as large, too. Its objects are a part of those of this sample.
    #[must_use]
    pub fn half(&self) -> Self {
        Self {
            below: self.below / 2,
            large_log2: self.large_log2.saturating_sub(1),
        }
    }

    /// Returns the probability of an object of this size.
    pub fn probability(&self, size_bytes: u64) -> f64 {
        part_of_all(self.threshold(size_bytes))
    }

    #[inline]
    const fn threshold(&self, size_bytes: u64) -> u64 {
        if size_bytes >> self.large_log2 == 0 {
            return self.below;
        }
        let threshold = (self.below as u128 * size_bytes as u128) >> self.large_log2;
        if threshold > u64::MAX as u128 {
            return u64::MAX;
        }
        threshold as u64
    }
}

/// Returns the hash that decides about a key. All bits of the key decide, so the keys of a sample have no bits in
/// common.
#[inline]
const fn sample_hash(key: KeyHash) -> u64 {
    key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) // 2^64 divided by the golden ratio
}

fn part_of_all(threshold: u64) -> f64 {
    match threshold {
        u64::MAX => 1.0,
        threshold => threshold as f64 / 2_f64.powi(64),
    }
}

#[cfg(test)]
mod tests {
    use edgeward_types::mix64;

    use super::*;

    /// Method: objects of each size, and the sum of their sizes in a simulation.
    #[test]
    fn the_sample_has_its_share_of_the_bytes_of_each_size() {
        let sample = KeySample {
            below: u64::MAX / 100,
            large_log2: 16,
        };
        for size_bytes in [
            1,
            1 << 15,
            (1 << 16) - 1,
            1 << 16,
            5 << 16,
            50 << 16,
            500 << 16,
        ] {
            let keys = 200_000_u64;
            let taken = (0..keys).filter(|&key| sample.takes(KeyHash(mix64(key)), size_bytes));
            let share = taken.count() as f64 / keys as f64;
            let probability = sample.probability(size_bytes);
            assert!(
                (share / probability - 1.0).abs() < 0.1,
                "{size_bytes}: {share}"
            );
            let scaled = size_bytes as f64 * sample.share() / probability;
            let is_certain = probability == 1.0;
            assert!(
                is_certain || scaled < f64::from(1 << 16) * 1.001,
                "{size_bytes}: {scaled}"
            );
        }
    }

    #[test]
    fn the_sample_of_all_keys_is_complete_and_the_empty_one_is_empty() {
        let all = KeySample {
            below: u64::MAX,
            large_log2: 63,
        };
        for key in (0..10_000).map(|key| KeyHash(mix64(key))) {
            assert!(all.takes(key, 1));
            assert!(!KeySample::NONE.takes(key, u64::MAX >> 1));
        }
        assert_eq!((all.share(), KeySample::NONE.share()), (1.0, 0.0));
    }

    /// So that the objects of a smaller sample stay in the caches that follow it.
    #[test]
    fn a_half_of_a_sample_is_a_part_of_it() {
        let sample = KeySample {
            below: u64::MAX / 100,
            large_log2: 12,
        };
        let mut left = [0, 0];
        for key in 0..50_000_u64 {
            let (key, size_bytes) = (KeyHash(mix64(key)), key % 100_000);
            let is_in_half = sample.half().takes(key, size_bytes);
            let is_in_whole = sample.takes(key, size_bytes);
            assert!(is_in_whole || !is_in_half);
            left[usize::from(size_bytes > 4096)] += u32::from(is_in_whole && !is_in_half);
        }
        assert!(left[0] > 3, "small objects leave: {left:?}");
        assert!(left[1] <= 1, "large objects stay: {left:?}"); // but for rounding
    }
}
