//! Requests with Zipf popularity for objects of log-uniform sizes.

use edgeward_policy::rng::Rng;
use edgeward_types::{Seed, mix64};

/// One thread's sequence of requests.
pub struct Requests(Vec<u64>);

impl Requests {
    /// Draws `count` requests for `objects` objects whose popularity falls with their rank to the power of `exponent`.
    pub fn new(count: usize, objects: usize, exponent: f64, seed: u64) -> Self {
        let mut sum = 0.0;
        let cumulative: Vec<f64> = (1..=objects)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        let mut rng = Rng::new(Seed(seed), 0);
        let mut draw = || {
            let at = rng.unit() * sum;
            cumulative.partition_point(|&below| below < at) as u64
        };
        Self((0..count).map(|_| mix64(draw())).collect())
    }

    /// The keys, in order.
    pub fn keys(&self) -> &[u64] {
        &self.0
    }
}

/// Returns the size of an object: log-uniform from 256 bytes to 1 MiB.
pub fn size_bytes(key: u64) -> u64 {
    let unit = (mix64(key ^ 0x5157) >> 11) as f64 / (1u64 << 53) as f64;
    (256.0 * 4096f64.powf(unit)) as u64
}
