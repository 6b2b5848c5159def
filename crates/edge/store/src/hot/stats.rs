//! The statistics of the RAM tier.

use edgeward_policy::PolicySpec;

use super::tuning::TuningStatus;

/// The statistics of a [`HotCache`](super::HotCache).
#[derive(Clone, Debug)]
pub struct HotStats {
    /// The byte budget.
    pub capacity_bytes: u64,
    /// The charges of residents (stored values) and of fills in progress, in bytes. Never above the capacity.
    pub used_bytes: u64,
    /// Bytes of values that have left the cache and are still referenced. They count against the budget.
    pub pinned_bytes: u64,
    /// The limit of `pinned_bytes`. While `pinned_bytes` exceeds this limit, no object is admitted.
    pub pinned_bytes_max: u64,
    /// The number of residents, including fills in progress.
    pub objects: u64,
    /// Bytes of the policy's bookkeeping. The residents' charges include a fixed part of it per resident.
    pub bookkeeping_bytes: u64,
    /// Offers that were admitted.
    pub admitted: u64,
    /// Offers refused by the admission policy, or because the objects to evict are worth more than the offered one.
    pub refused_by_admission: u64,
    /// Offers refused because the object is larger than the whole budget.
    pub refused_too_large: u64,
    /// Offers refused because the tier had its largest number of objects.
    pub refused_object_limit: u64,
    /// Offers refused because of pinned bytes: above `pinned_bytes_max`, or more than evictions made room for.
    pub refused_pinned: u64,
    /// Residents that were evicted.
    pub evicted: u64,
    /// Bytes of the evicted residents.
    pub evicted_bytes: u64,
    /// Reservations that were dropped without a commit, because the value did not arrive completely.
    pub abandoned: u64,
    /// The number of times that freed pages were returned to the system because they exceeded their limit.
    pub freed_pages_returns: u64,
    /// The number of bytes by which fragmentation of the allocator reduces the budget.
    pub fragmentation_bytes: u64,
    /// The current policy.
    pub policy: PolicySpec,
    /// The number of changes of the policy.
    pub policy_changes: u64,
    /// The number of objects that changes of the policy kept.
    pub policy_kept: u64,
    /// The number of objects that did not fit after a change of the policy.
    pub policy_lost: u64,
    /// A fingerprint of all decisions of the current policy. It equals that of the simulator for the same requests and
    /// seed.
    pub digest: u64,
    /// The tuner's state, if the policy has a tuner.
    pub tuning: Option<TuningStatus>,
}
