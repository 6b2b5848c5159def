//! The progress of the fill of memory after a start.

use std::sync::atomic::AtomicU64;

/// The progress of the fill, for metrics.
#[derive(Debug, Default)]
pub(crate) struct WarmProgress {
    /// Objects that are still to be read.
    pub(crate) pending: AtomicU64,
    /// Objects that were read into memory.
    pub(crate) loaded: AtomicU64,
    /// Bytes of the bodies of these objects.
    pub(crate) loaded_bytes: AtomicU64,
    /// Objects of the list that the disk has no longer, that a request has stored meanwhile, or that do not fit.
    pub(crate) skipped: AtomicU64,
}
