//! The disk tier: lookups, writes, removals and promotions.
//!
//! A lookup reads the index without I/O, then the object's head. A head in the page cache is read on the worker's own
//! thread, and only a read that has to wait for the device goes to one of the [`readers`]. A
//! [body](crate::cache::disk_body) is read as fast as its client accepts it. `edgeward_policy::hierarchy` decides
//! which responses are written. A [`fill`] writes the pieces of a response as they arrive and never waits.
//!
//! A lookup that fails because of a disk error counts as a miss.

pub(crate) mod admission;
mod entry;
pub(crate) mod fill;
pub mod head;
mod hit;
mod key_set;
mod life;
mod memory;
pub(in crate::cache) mod readers;
pub(crate) mod report;
mod tier;

pub(crate) use entry::DiskEntry;
pub(crate) use hit::DiskHit;
pub(in crate::cache) use key_set::Claim;
pub use life::DiskError;
pub(crate) use memory::default_file;
pub(crate) use tier::{DiskTier, Durable};
