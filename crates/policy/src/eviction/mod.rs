//! The eviction rankings. Each resident object has a rank, and the object with the lowest rank is evicted
//! first.
//!
//! A policy is only a rule for ranks. All policies share the queue that finds the lowest rank. The queue is
//! *lazy*: a hit writes the new rank into the object's own state, and the queue reads that rank when the object
//! reaches the top. If ranks never decrease while an object is resident, a lazy queue and an eager queue choose
//! the same victims (`the_lazy_queue_chooses_the_victims_of_an_eager_one` shows it). A hit therefore costs one
//! relaxed store and no precision is lost.

pub mod fixed;
pub mod greedy_dual;
pub mod lru;
pub(crate) mod queue;

use std::fmt::Debug;

use crate::Object;

pub use fixed::{Fifo, Size};
pub use greedy_dual::{Gds, Gdsf, GdsfPlain, LfuDa};
pub use lru::Lru;

/// A rule that ranks resident objects.
pub trait Ranking: Debug + Send + 'static {
    /// The state of one object that a hit updates.
    type AccessState: Debug + Default + Send + Sync;

    /// The state shared by all objects that a hit reads: a clock or an inflation value.
    type Shared: Debug + Default + Send + Sync;

    /// Advances the time. Called at every offer of a miss.
    fn tick(shared: &Self::Shared);

    /// Returns the highest rank that the victims of `object` may have. The object is rejected if one of them has a
    /// higher rank. Returns `None` if the policy admits every object.
    fn victim_rank_max(shared: &Self::Shared, object: &Object) -> Option<u64>;

    /// Records the rejection of an object whose victims may have at most this rank.
    fn rejected(shared: &Self::Shared, victim_rank_max: u64);

    /// Initialises the state of an admitted object.
    fn enter(shared: &Self::Shared, state: &Self::AccessState, object: &Object);

    /// Records a hit. Access is shared: concurrent hits may race, and a lost update is one uncounted hit.
    fn touch(shared: &Self::Shared, state: &Self::AccessState);

    /// Returns the current rank. The rank must not decrease while the object is resident.
    fn rank(state: &Self::AccessState) -> u64;

    /// Returns true if the object was hit since its admission.
    fn was_hit(state: &Self::AccessState) -> bool;

    /// Records the eviction of an object with this rank.
    fn evicted(shared: &Self::Shared, rank: u64);
}
