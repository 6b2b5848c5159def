//! Opens parts of an edge that may be missing: the log of purges, and the arena.

use std::sync::Arc;

use edgeward_store::arena::Arena;
use edgeward_store::purges::{PurgeLog, PurgeSettings, Purges};
use edgeward_types::ByteSize;

use super::start_error::StartError;
use crate::base::config::EdgeConfig;
use crate::cache::disk::default_file;

/// Opens the log of purges, which a cache on disk needs.
pub(super) fn open_purges(
    config: &EdgeConfig,
    has_disk: bool,
    random: [u64; 2],
) -> Result<Purges, StartError> {
    let file = || {
        let settings = &config.disk.as_ref()?.settings;
        let default = || default_file(settings, "purges.log", ".purges");
        config.purge.log.clone().or_else(default)
    };
    let log = match has_disk.then(file) {
        None => PurgeLog::None,
        Some(Some(path)) => PurgeLog::File(path),
        Some(None) => PurgeLog::Missing,
    };
    let limits = config.purge.limits();
    Ok(Purges::open(&PurgeSettings {
        log,
        limits,
        random,
    })?)
}

/// Returns the arena for large bodies, if the system supports it.
pub(super) fn arena(capacity: ByteSize) -> Option<Arc<Arena>> {
    match Arena::new(capacity) {
        Ok(arena) => Some(arena),
        Err(error) => {
            tracing::warn!(%error, "no arena: large bodies are stored on the heap and copied on each hit");
            None
        }
    }
}
