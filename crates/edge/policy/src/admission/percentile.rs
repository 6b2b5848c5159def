//! A size threshold at a percentile of the sizes that were requested recently.
//!
//! Source: none. The rule is for operators who know the share of requests that they want to admit, but not the sizes.
//! Each request counts, so the sizes of popular objects have more weight.
//!
//! The tuner counts sizes in bins of a quarter octave. Old counts lose one percent of their weight after each 1,000
//! requests, so the last 100,000 requests have about two thirds of the weight. The threshold is the largest size of the
//! bin in which the percentile lies, at most 19 % above the exact percentile. Every object is admitted until 1,000
//! requests have arrived.
//!
//! Cost: a hit or miss costs one write to the ring of its worker, an addition in the tuner's thread, and 1/1000 of a
//! pass over the bins. Memory: 2 KiB, none per object.

use edgeward_types::KeyHash;

use super::tuner::{AdmissionTuner, TunerStep};

/// Sets a threshold at a percentile of the requested sizes.
#[derive(Debug)]
pub struct PercentileTuner {
    percent: u8,
    /// The number of requests in each bin of sizes. Old requests have less weight.
    counts: [f64; BINS],
    /// Requests since the last step.
    requests: u32,
}

impl PercentileTuner {
    /// Makes a tuner that admits objects up to this percentile of the sizes, from 1 to 99.
    pub fn new(percent: u8) -> Self {
        Self {
            percent,
            counts: [0.0; BINS],
            requests: 0,
        }
    }
}

impl AdmissionTuner for PercentileTuner {
    fn record(&mut self, _key: KeyHash, size_bytes: u64, _hit: bool) -> bool {
        self.counts[bin(size_bytes)] += 1.0;
        self.requests += 1;
        self.requests >= STEP_REQUESTS
    }

    fn step(&mut self, _resident: &dyn Fn(KeyHash) -> bool) -> TunerStep {
        self.requests = 0;
        let wanted = self.counts.iter().sum::<f64>() * f64::from(self.percent) / 100.0;
        let mut below = 0.0;
        let at = self.counts.iter().position(|count| {
            below += count;
            below >= wanted
        });
        for count in &mut self.counts {
            *count *= DECAY;
        }
        TunerStep::without_model(at.map_or(f64::INFINITY, size_bytes_max))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// Returns the bin of a size: a quarter octave. Bin 0 has the sizes 0 and 1.
fn bin(size_bytes: u64) -> usize {
    let octaves = (size_bytes.max(1) as f64).log2();
    ((octaves * BINS_PER_OCTAVE) as usize).min(BINS - 1)
}

/// Returns the largest size of a bin.
fn size_bytes_max(bin: usize) -> f64 {
    ((bin + 1) as f64 / BINS_PER_OCTAVE).exp2().ceil() - 1.0
}

const BINS_PER_OCTAVE: f64 = 4.0;

/// The number of bins for sizes of up to 64 bits.
const BINS: usize = 4 * 64;

/// Requests between two steps.
const STEP_REQUESTS: u32 = 1_000;

/// The factor of all counts after each step: 0.99^100 = 0.37 after 100,000 requests.
const DECAY: f64 = 0.99;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Passes requests of these sizes to the tuner and returns its last threshold.
    fn threshold(tuner: &mut PercentileTuner, sizes: impl IntoIterator<Item = u64>) -> f64 {
        let mut threshold = f64::INFINITY;
        for size in sizes {
            if tuner.record(KeyHash(0), size, false) {
                threshold = tuner.step(&|_| false).c;
            }
        }
        threshold
    }

    proptest! {
        /// The threshold is the percentile of a sorted list, rounded up by at most a quarter octave.
        #[test]
        fn the_threshold_equals_the_percentile_of_a_sorted_list(
            percent in 1u8..=99,
            octaves in prop::collection::vec(0.0f64..40.0, STEP_REQUESTS as usize),
        ) {
            let mut sizes: Vec<u64> = octaves.iter().map(|octave| octave.exp2() as u64).collect();
            let threshold = threshold(&mut PercentileTuner::new(percent), sizes.iter().copied());
            sizes.sort_unstable();
            let rank = (sizes.len() * usize::from(percent)).div_ceil(100);
            let exact = sizes[rank - 1] as f64;
            prop_assert!(exact <= threshold, "{exact} {threshold}");
            prop_assert!(threshold < (exact + 1.0) * 1.19, "{exact} {threshold}");
        }

        /// A size is at most the largest size of its bin, and above that of the bin before.
        #[test]
        fn a_bin_ends_at_its_largest_size(octave in 0.0f64..50.0) {
            let size = octave.exp2() as u64;
            let bin = bin(size);
            prop_assert!(size as f64 <= size_bytes_max(bin));
            prop_assert!(bin == 0 || size as f64 > size_bytes_max(bin - 1));
        }
    }

    #[test]
    fn the_threshold_follows_a_change_of_sizes() {
        let mut tuner = PercentileTuner::new(50);
        assert!(threshold(&mut tuner, (0..200_000).map(|_| 1_000)) < 1_190.0);
        // Half of the weight is replaced after 69 steps of 1,000 requests: 0.99^69 = 0.4998.
        assert!(threshold(&mut tuner, (0..60_000).map(|_| 1_000_000)) < 1_190.0);
        assert!(threshold(&mut tuner, (0..20_000).map(|_| 1_000_000)) >= 1_000_000.0);
    }
}
