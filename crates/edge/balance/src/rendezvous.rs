//! Weighted rendezvous hashing and the bound of loads, shared by the servers of an origin and the nodes of a fleet.

use edgeward_types::mix64;

/// Returns the score of a candidate for a cache key. The candidate with the largest score gets the key. Over all keys,
/// the probability of the largest score is in proportion to the weight (weighted rendezvous hashing: Schindelhauer,
/// Schomaker, 2005). `candidate` is a well-mixed number of the candidate.
pub(crate) fn score(candidate: u64, weight: u64, hash: u64) -> f64 {
    // A value above 0 and below 1.
    let uniform = ((mix64(hash ^ candidate) >> 12) as f64 + 0.5) / (1_u64 << 52) as f64;
    -(weight as f64) / uniform.ln()
}

/// The limit of the loads of candidates: a percentage above the mean in relation to the weights (Mirrokni, Thorup,
/// Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018).
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadBound {
    scaled_load: u128,
    scaled_weights: u128,
}

impl LoadBound {
    /// Returns the bound for one more unit of load. `load` is the sum of the loads of all candidates without it.
    pub(crate) fn new(load: u64, weights: u64, excess_percent: u32) -> Self {
        Self {
            scaled_load: u128::from(100 + u64::from(excess_percent)) * (u128::from(load) + 1),
            scaled_weights: 100 * u128::from(weights.max(1)),
        }
    }

    /// Returns true if a candidate may get the unit of load. At least one candidate may.
    pub(crate) fn has_room(&self, load: u64, weight: u64) -> bool {
        u128::from(load) < (self.scaled_load * u128::from(weight)).div_ceil(self.scaled_weights)
    }
}
