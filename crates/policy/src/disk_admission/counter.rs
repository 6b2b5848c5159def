//! How often a key was asked for, lately: up to seven times, a few bits a key.
//!
//! One rotating filter for each request: the first request adds a key to the first filter, the next one to the second,
//! and so on. A counting sketch of small counters would answer the same question. This is chosen because each
//! filter forgets by its own rotation (a sketch ages by halving all its counters, which turns two requests of
//! yesterday into one of today), because its error is known from its fill, stage by stage, because one atomic OR
//! cannot lose a count between threads, and because it is the code that serves the second request, the usual case, with nothing
//! around it.
//!
//! Each later filter has half the size of the one before: most keys never come that far. One that is still too
//! small only rotates sooner.

use std::io::{self, Read, Write};
use std::num::NonZeroU64;

use edgeward_types::KeyHash;

use crate::sketch::{RotatingBloom, RotatingBloomConfig, RotatingBloomStats, Seen, StateError};

/// Counts the requests of keys up to a small number, and forgets old ones.
#[derive(Debug)]
pub struct RequestCounter {
    /// The first holds the keys asked for once or more, the next those asked for twice or more, …
    stages: Box<[RotatingBloom]>,
}

impl RequestCounter {
    /// Counts up to `most`, with `memory` for the first request of a key.
    ///
    /// # Panics
    /// When `most` is zero: there would be nothing to count.
    pub fn new(most: u32, memory: RotatingBloomConfig) -> Self {
        assert!(most > 0, "a counter counts to one at least");
        Self {
            stages: (0..most)
                .map(|stage| RotatingBloom::new(stage_config(memory, stage)))
                .collect(),
        }
    }

    /// The number of requests before this one, at most [`most`](Self::most). Counts this one.
    #[inline]
    pub fn count(&self, key: KeyHash) -> u32 {
        let (first, later) = self.stages.split_first().expect("one stage at least");
        // Downwards: the highest filter that knows the key says how often it came, even if one below has
        // rotated it away.
        for (stage, filter) in later.iter().enumerate().rev() {
            if filter.contains(key) {
                let next = later.get(stage + 1).unwrap_or(filter);
                next.check_and_add(key);
                return stage as u32 + 2;
            }
        }
        match (first.check_and_add(key), later.first()) {
            (Seen::New, _) => 0,
            (Seen::Before, None) => 1,
            (Seen::Before, Some(second)) => {
                second.check_and_add(key);
                1
            }
        }
    }

    /// The number of requests remembered. Counts nothing.
    pub fn seen(&self, key: KeyHash) -> u32 {
        let stages = self.stages.iter().rposition(|filter| filter.contains(key));
        stages.map_or(0, |stage| stage as u32 + 1)
    }

    /// As far as it counts.
    #[inline]
    pub fn most(&self) -> u32 {
        self.stages.len() as u32
    }

    /// One for each filter.
    pub fn stats(&self) -> Vec<RotatingBloomStats> {
        self.stages.iter().map(RotatingBloom::stats).collect()
    }

    pub(super) fn write_to(&self, tag: u64, output: &mut impl Write) -> io::Result<()> {
        self.stages
            .iter()
            .zip(0..)
            .try_for_each(|(filter, stage)| filter.write_to(stage_tag(tag, stage), output))
    }

    /// Takes over a saved state of the same configuration: all of it, or nothing.
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

/// Filters of different stages must not be taken for each other.
fn stage_tag(tag: u64, stage: u64) -> u64 {
    tag ^ (stage << 56)
}
