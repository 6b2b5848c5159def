//! A rule for the ranks of resident objects.

use std::fmt::Debug;

use crate::object::Object;
use crate::objective::Benefit;

/// A rule that ranks resident objects.
pub trait Ranking: Debug + Send + 'static {
    /// The state of one object. A hit updates this state.
    type AccessState: Debug + Default + Send + Sync;

    /// The state that all objects share: a clock or an inflation value. A hit reads this state.
    type Shared: Debug + Default + Send + Sync;

    /// True if the number of requests of an object is kept after its eviction or rejection.
    const KEEPS_REQUESTS: bool = false;

    /// Advances the logical time. Called each time an object is offered for admission after a miss.
    fn tick(shared: &Self::Shared);

    /// Returns the highest rank that a victim of `object` may have. The victims are the objects that would be evicted
    /// to make space for `object`. If a victim has a higher rank, `object` is rejected. Returns `None` if the policy
    /// admits every object. `requests` is the number of known requests of `object`, this one included.
    fn victim_rank_max(
        shared: &Self::Shared,
        object: &Object,
        benefit: Benefit,
        requests: u32,
    ) -> Option<u64>;

    /// Records that an object was rejected because a victim had a higher rank than `victim_rank_max`.
    fn rejected(shared: &Self::Shared, victim_rank_max: u64);

    /// Initialises the state of an admitted object. `requests` is the number of its known requests, this one included.
    fn enter(
        shared: &Self::Shared,
        state: &Self::AccessState,
        object: &Object,
        benefit: Benefit,
        requests: u32,
    );

    /// Records a hit. Access is shared: concurrent hits may race, and a lost update is one uncounted hit.
    fn touch(shared: &Self::Shared, state: &Self::AccessState);

    /// Returns the current rank. The rank must not decrease while the object is resident.
    fn rank(state: &Self::AccessState) -> u64;

    /// Returns the number of requests, for rankings with [`KEEPS_REQUESTS`](Self::KEEPS_REQUESTS).
    fn requests(_state: &Self::AccessState) -> u32 {
        0
    }

    /// Returns true if the object was hit since its admission.
    fn was_hit(state: &Self::AccessState) -> bool;

    /// Records the eviction of an object with this rank.
    fn evicted(shared: &Self::Shared, rank: u64);
}
