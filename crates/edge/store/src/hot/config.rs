//! The settings of the RAM tier.

use edgeward_policy::{Objective, PolicySpec};
use edgeward_types::{ByteSize, Seed};

use super::freed::{AllocatorState, freed_max_bytes};
use super::ledger;
use super::tuning::TunerMode;

/// The settings of the RAM tier.
#[derive(Clone, Debug)]
pub struct HotConfig {
    /// The budget: the largest sum of the charges of all stored objects. A charge includes the value, the head
    /// and the object's share of the index.
    pub capacity: ByteSize,

    /// The policies of admission and eviction.
    pub policy: PolicySpec,

    /// The benefit of a hit, whose sum the policy maximises. Most policies ignore it; see
    /// [`PolicySpec::weighs_benefits`].
    pub objective: Objective,

    /// The seed of the policy's random numbers. With the same seed, the same requests give the same decisions.
    pub seed: Seed,

    /// The number of requests between two tunings of AdaptSize, the paper's Δ. `None` selects the paper's
    /// value, 250 000.
    pub window_requests: Option<u32>,

    /// Selects the thread that runs the tuner.
    pub tuner_mode: TunerMode,

    /// The largest number of pinned bytes, that is, bytes of values that left the cache while readers still
    /// reference them. While more bytes are pinned, no object is admitted. `None` selects an eighth of the
    /// capacity, at least 4 MiB.
    pub pinned_bytes_max: Option<ByteSize>,

    /// The largest number of bytes of freed pages that the allocator may keep. `None` selects 1/32 of the
    /// capacity, at least 2 MiB.
    pub freed_bytes_max: Option<ByteSize>,

    /// A function that returns freed pages to the system if these pages take more bytes than the argument.
    /// Fragmentation that it measures may reduce the capacity. With `None` the allocator decides when to return pages.
    pub return_freed_pages: Option<fn(u64) -> AllocatorState>,
}

impl HotConfig {
    /// Returns a configuration with the given capacity and the default policy. A tuner, if the policy has one,
    /// runs on its own thread.
    pub fn new(capacity: ByteSize) -> Self {
        Self {
            capacity,
            policy: PolicySpec::default(),
            objective: Objective::default(),
            seed: Seed(0),
            window_requests: None,
            tuner_mode: TunerMode::Thread,
            pinned_bytes_max: None,
            freed_bytes_max: None,
            return_freed_pages: None,
        }
    }

    /// Returns `freed_bytes_max`, or its default.
    pub fn freed_bytes_max(&self) -> u64 {
        let most = self.freed_bytes_max.map(ByteSize::bytes);
        most.unwrap_or_else(|| freed_max_bytes(self.capacity.bytes()))
    }

    /// Returns `pinned_bytes_max`, or its default. Never more than the capacity.
    pub fn pinned_bytes_max(&self) -> u64 {
        let most = self.pinned_bytes_max.map(ByteSize::bytes);
        most.unwrap_or_else(|| ledger::pinned_max_bytes(self.capacity.bytes()))
            .min(self.capacity.bytes())
    }
}
