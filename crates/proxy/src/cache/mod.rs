//! The cache: responses in memory and on disk, fetches that requests share, and ids that do not exist.

pub(crate) mod collapse;
pub(crate) mod disk;
pub(crate) mod disk_body;
pub(crate) mod fill;
mod key;
pub(crate) mod negative;
pub(crate) mod pinned;
pub(crate) mod stored;
mod tiers;

pub(crate) use disk::DiskHit;
pub(crate) use key::CacheKey;
pub(crate) use tiers::{Cache, WorkerCache};
