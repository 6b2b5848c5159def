//! Counts recent requests per key up to a limit, with a few bits per key. The admission rules use limits from one to
//! seven.
//!
//! A rotating filter ([`RotatingBloom`]) remembers the keys of recent requests and forgets older ones.
//!
//! The counter has as many rotating filters as its limit. The first request adds a key to the first filter, the
//! second request to the second filter, and so on. A counting sketch would give the same numbers. Rotating
//! filters were chosen for four reasons. Each filter forgets by its own rotation, while a sketch halves all
//! counters, so that two old requests become one recent request. The error rate of each filter follows from its
//! share of set bits. An atomic OR cannot lose an update between threads. In the usual case, second-hit admission,
//! the counter is a single filter.
//!
//! Each further filter has half the size of the one before, because most keys have few requests. A filter that
//! is too small only rotates earlier.

use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use edgeward_types::KeyHash;

use crate::sketch::{
    KeyStatus, RotatingBloom, RotatingBloomConfig, RotatingBloomStats, StateError,
};

/// Counts the requests of keys up to a small limit, and forgets old requests.
#[derive(Debug)]
pub struct RequestCounter {
    /// The first filter has the keys with at least one request, the second those with at least two, and so on.
    stages: Box<[RotatingBloom]>,
}

impl RequestCounter {
    /// Makes a counter with the limit `count_max`. `memory` configures the filter of the first request.
    ///
    /// # Panics
    /// If `count_max` is zero.
    pub fn new(count_max: u32, memory: RotatingBloomConfig) -> Self {
        assert!(count_max > 0, "a counter counts to one at least");
        Self {
            stages: (0..count_max)
                .map(|stage| RotatingBloom::new(stage_config(memory, stage)))
                .collect(),
        }
    }

    /// Counts this request and returns the number of earlier requests, at most [`count_max`](Self::count_max).
    #[inline]
    pub fn count(&self, key: KeyHash) -> u32 {
        let (first, later) = self.stages.split_first().expect("one stage at least");
        // The highest filter that has the key gives the count, even if a lower filter has rotated the key away.
        // The search therefore starts at the top.
        for (stage, filter) in later.iter().enumerate().rev() {
            if filter.contains(key) {
                let next = later.get(stage + 1).unwrap_or(filter);
                next.check_and_add(key);
                return stage as u32 + 2;
            }
        }
        match (first.check_and_add(key), later.first()) {
            (KeyStatus::New, _) => 0,
            (KeyStatus::Seen, None) => 1,
            (KeyStatus::Seen, Some(second)) => {
                second.check_and_add(key);
                1
            }
        }
    }

    /// Returns the number of remembered requests without counting one.
    pub fn remembered(&self, key: KeyHash) -> u32 {
        let stages = self.stages.iter().rposition(|filter| filter.contains(key));
        stages.map_or(0, |stage| stage as u32 + 1)
    }

    /// The limit of the count.
    #[inline]
    pub fn count_max(&self) -> u32 {
        self.stages.len() as u32
    }

    /// Statistics of each filter, in order of the request number.
    pub fn stats(&self) -> Vec<RotatingBloomStats> {
        self.stages.iter().map(RotatingBloom::stats).collect()
    }

    /// Saves the state. `tag` identifies the hash function of the keys.
    pub(super) fn write_to(&self, tag: u64, output: &mut impl Write) -> io::Result<()> {
        self.stages
            .iter()
            .zip(0..)
            .try_for_each(|(filter, stage)| filter.write_to(stage_tag(tag, stage), output))
    }

    /// Restores a saved state of the same configuration and `tag`. On an error the counter is unchanged.
    pub(super) fn resume_from(
        &mut self,
        tag: u64,
        input: &mut impl Read,
    ) -> Result<(), StateError> {
        let restored: Result<_, StateError> = self
            .stages
            .iter()
            .zip(0..)
            .map(|(filter, stage)| {
                RotatingBloom::read_from(*filter.config(), stage_tag(tag, stage), input)
            })
            .collect();
        self.stages = restored?;
        Ok(())
    }
}

fn stage_config(memory: RotatingBloomConfig, stage: u32) -> RotatingBloomConfig {
    let keys = memory.expected_keys.get() >> stage;
    RotatingBloomConfig {
        expected_keys: NonZeroU64::new(keys).unwrap_or(NonZeroU64::MIN),
        ..memory
    }
}

/// Distinguishes the saved filters of different stages.
fn stage_tag(tag: u64, stage: u64) -> u64 {
    tag ^ (stage << 56)
}
