//! Decisions about an overloaded process: which work it sheds, and which of its workers are stuck.
//!
//! An [`Overload`] compares the use of memory, processor and descriptors with their bounds, and moves between five
//! [`Level`]s. Each level sheds one more class of work: new connections, then requests that bypass the cache, then
//! misses, then hits. A [`Watchdog`] finds workers that have not reported for longer than a deadline.
//! [`heaviest_first`] names the connections that are closed to free memory.
//!
//! The crate has no clock and no I/O: times and measured values are arguments.
#![forbid(unsafe_code)]

mod holders;
mod level;
mod watchdog;

pub use holders::{Holder, heaviest_first, heaviest_owner};
pub use level::{Bounds, Level, Overload, Resource, Sample, Transition, Work};
pub use watchdog::{Watchdog, WorkerEvent};
