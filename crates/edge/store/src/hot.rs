//! The RAM tier: values under keys, with one byte budget. Hits take shared locks only.
//!
//! The cache has two parts. The index maps a key to its value. A hit reads only the index: it takes a shared
//! lock on one shard, clones an `Arc`, and does at most one relaxed store to count the hit. The policy tier
//! (`edgeward_policy::AnyTier`) has the budget and decides which objects stay. One lock protects the policy
//! tier. Only misses and changes take this lock, and only for bookkeeping: values are built and freed without
//! this lock.
//!
//! A miss reserves space first and commits the value later:
//!
//! ```
//! # use edgeward_store::hot::{HotCache, HotConfig, Offer};
//! # use edgeward_types::{ByteSize, KeyHash, charge_bytes};
//! # use std::sync::Arc;
//! let cache = HotCache::<String>::new(HotConfig::new(ByteSize::mib(1)));
//! let (key, value) = (KeyHash(7), "a body".to_owned());
//! let charge = charge_bytes(value.len() as u64, HotCache::<String>::OBJECT_OVERHEAD_BYTES);
//! let version = cache.version(key);
//! if let Offer::Admit(reservation) = cache.offer(key, charge) {
//!     // The body arrives. If it is incomplete, dropping the reservation releases the space.
//!     reservation.commit(Arc::new(value), version);
//! }
//! assert_eq!(cache.lookup(key).as_deref(), Some(&"a body".to_owned()));
//! ```
//!
//! A change of a key takes a [`Version`](crate::versions::Version) of the key. The caller reads it before it decides about the change;
//! [`versions`](crate::versions) states the rule.
//!
//! Lock order: first the policy tier, then one index shard or one stripe of versions. A thread that holds the
//! lock of a shard or a stripe takes no further lock.

mod benefit;
mod cache;
mod config;
mod fragmentation;
mod freed;
mod index;
mod ledger;
mod policy_change;
mod recorder;
mod reservation;
mod restart;
mod shared;
mod sink;
mod stats;
#[cfg(test)]
mod tests;
mod tiers;
mod tuning;

pub use cache::HotCache;
pub use config::HotConfig;
pub use fragmentation::Slabs;
pub use freed::{AllocatorState, FreedPages};
pub use ledger::ChargeGuard;
pub use policy_change::{PolicyChange, PolicyChangeError};
pub use recorder::Recorder;
pub use reservation::{Commit, Offer, Reservation};
pub use restart::DrainedObject;
pub use stats::HotStats;
pub use tuning::{TunerMode, TuningStatus};
