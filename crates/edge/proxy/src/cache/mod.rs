//! The cache: responses in memory (`stored`) and on disk (`disk`, `disk_body`), fetches that requests share
//! (`collapse`, `fill`), responses in slices (`slices`), responses that the edge compresses (`encodings`, `encoders`),
//! also as deltas (`dictionaries`),
//! rules for the queries of paths (`path_rules`), memory that slow clients pin (`pinned`), ids that do not exist
//! (`negative`), the objects that memory has after a restart (`restart`, `warm_start`), and the hand-over of the store
//! in an upgrade (`disk_slot`, `successor`). `offers` has request fields of other clients, whose variants a lookup
//! tries.

pub(crate) mod collapse;
pub(crate) mod copy_pauses; // no hot copies after an invalidation
mod delta; // codings with a dictionary
pub(crate) mod dictionaries;
pub(crate) mod disk;
pub(crate) mod disk_body;
pub(crate) mod disk_slot;
pub(crate) mod encode; // codings without a dictionary
pub(crate) mod encoders;
pub(crate) mod encodings;
pub(crate) mod fill;
mod fleet_purging; // purges that all nodes of a fleet apply
mod key;
mod key_map; // hash maps with a fast hash function
pub(crate) mod key_parts;
pub(crate) mod miss_history; // the causes of misses
pub(crate) mod negative;
pub(crate) mod offers;
pub(crate) mod path_rules;
pub(crate) mod pinned;
pub(crate) mod purge_counts;
pub(crate) mod purging;
pub(crate) mod restart;
pub(crate) mod slices;
pub(crate) mod stored;
pub(crate) mod successor;
mod tiers;
pub(crate) mod warm_start;

pub(crate) use disk::DiskHit;
pub(crate) use key::{CacheKey, PathRule};
pub(crate) use key_parts::{path_key, push_class, split_variant_key, url_of};
pub(crate) use tiers::{Cache, Tier, WorkerCache};
