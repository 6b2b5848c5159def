//! The eviction rules by name ([`EvictionSpec`]), and the rankings.
//!
//! Each resident object has a rank, and the object with the lowest rank is evicted first.
//!
//! A policy of this module is only a rule for ranks. [`density`](crate::density) is not: its order changes with time,
//! also without requests. The orders of [`lists`](crate::lists) move objects between lists.
//!
//! All rankings use the same code for the queue that finds the lowest rank. The queue is *lazy*: a hit writes the new
//! rank into the object's own state, and the queue reads that rank when the object reaches the top. If ranks never
//! decrease while an object is resident, a lazy queue and an eager queue choose the same victims
//! (`the_lazy_queue_chooses_the_victims_of_an_eager_one` shows it). A hit therefore costs one relaxed store and no
//! precision is lost.

pub mod greedy_dual;
pub(crate) mod queue;
pub(crate) mod ranking;
pub mod size;
mod spec;

pub use greedy_dual::{Gds, Gdsf, GdsfGhosts, GdsfPlain, LfuDa};
pub use ranking::Ranking;
pub use size::Size;
pub use spec::EvictionSpec;
pub(crate) use spec::{EVICTIONS, parse_eviction};
