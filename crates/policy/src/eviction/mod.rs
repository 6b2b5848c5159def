//! Who leaves when room is needed: a rank for every resident object, the lowest leaves first.
//!
//! A policy here is a rule for ranks and nothing more. The queue that finds the lowest rank is
//! shared by all of them, and it is *lazy*: a hit writes the object's new rank into the object's
//! own mark and touches no queue; the queue learns of it when the object comes up for eviction. For
//! ranks that never fall while an object is resident, lazy and eager choose the same victims
//! (`the_lazy_queue_chooses_the_victims_of_an_eager_one` shows it), so the decision costs a hit one
//! relaxed store and costs precision nothing.

pub mod gdsf;
pub mod lru;
pub(crate) mod queue;

use std::fmt::Debug;

use crate::Object;

pub use gdsf::Gdsf;
pub use lru::Lru;

/// A rule that ranks resident objects.
pub trait Ranking: Debug + Send + 'static {
    /// What a hit writes, one an object.
    type Mark: Debug + Default + Send + Sync;

    /// What all objects share and a hit reads: a clock, an inflation value.
    type Shared: Debug + Default + Send + Sync;

    /// A miss was offered: time goes on.
    fn tick(shared: &Self::Shared);

    /// `object` enters.
    fn enter(shared: &Self::Shared, mark: &Self::Mark, object: &Object);

    /// A hit. Shared access: concurrent hits may race, and a lost update is one hit uncounted.
    fn touch(shared: &Self::Shared, mark: &Self::Mark);

    /// The rank now. Must not fall while the object is resident.
    fn rank(mark: &Self::Mark) -> u64;

    /// Whether there was a hit since the object entered.
    fn was_hit(mark: &Self::Mark) -> bool;

    /// An object of this rank was evicted.
    fn evicted(shared: &Self::Shared, rank: u64);
}
