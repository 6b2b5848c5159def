//! A model of the cost of a fetch from the origin.

/// The time that a fetch from the origin takes: a latency, and the transfer time of the body at a given bandwidth.
///
/// A trace has no fetch times, so all objects have the same latency. A live edge measures the time to the first
/// byte of each fetch instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OriginCost {
    /// The time to the first byte in ms.
    pub latency_ms: u64,
    /// The bytes of a body that arrive in one second; at least 1.
    pub bytes_per_second: u64,
}

impl Default for OriginCost {
    /// An origin that answers after 100 ms and sends each body at about 100 Mbit/s.
    fn default() -> Self {
        Self {
            latency_ms: 100,
            bytes_per_second: 12 << 20,
        }
    }
}

impl OriginCost {
    /// Returns the total time in seconds of this number of fetches, one after the other. `bytes` is the size of all
    /// bodies together.
    pub fn seconds(&self, fetches: u64, bytes: u64) -> f64 {
        let latency_seconds = self.latency_ms as f64 / 1000.0;
        fetches as f64 * latency_seconds + bytes as f64 / self.bytes_per_second.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fetch_costs_its_latency_and_the_time_of_its_bytes() {
        let cost = OriginCost {
            latency_ms: 200,
            bytes_per_second: 1000,
        };
        assert_eq!(cost.seconds(1, 500), 0.7);
        assert_eq!(cost.seconds(5, 0), 1.0);
        assert_eq!(cost.seconds(0, 0), 0.0);
    }
}
