//! Opens parts of an edge that may be missing: the log of purges, and the arena.

use std::path::PathBuf;
use std::sync::Arc;

use edgeward_store::arena::Arena;
use edgeward_store::purges::{PurgeLog, PurgeSettings, Purges};
use edgeward_types::ByteSize;

use super::inherit::CacheIdentity;
use super::start_error::StartError;
use crate::cache::disk::default_file;
use crate::config::EdgeConfig;

/// Opens the log of purges, which a cache on disk needs. After an upgrade, it is opened later.
pub(super) fn open_purges(
    config: &EdgeConfig,
    has_disk: bool,
    predecessor: Option<CacheIdentity>,
    random: [u64; 2],
) -> Result<Purges, StartError> {
    let log = match (config.disk.is_some(), purge_log(config), predecessor) {
        (true, Some(_), Some(predecessor)) => PurgeLog::Later(predecessor.stamp()),
        (true, Some(path), None) if has_disk => PurgeLog::File(path),
        (true, None, _) if has_disk || predecessor.is_some() => PurgeLog::Missing,
        _ => PurgeLog::None,
    };
    if log == PurgeLog::Missing && config.fleet_purges.is_some() {
        return Err(StartError::FleetLog);
    }
    let limits = config.purge.limits();
    let purges = Purges::open(&PurgeSettings {
        log,
        limits,
        random,
    })?;
    log_damage(&purges);
    Ok(purges)
}

/// Logs that the log of purges was damaged, or could not be continued.
pub(super) fn log_damage(purges: &Purges) {
    if let Some(damage) = purges.damage() {
        tracing::error!("the log of purges is damaged: {damage}");
    }
    if let Some(reason) = purges.renewal() {
        tracing::error!(%reason, "the log of purges begins a new epoch: all objects on disk count as purged");
    }
}

/// Returns the file of the log of purges. `None` without a disk, and if a disk cache on a block device has no file.
pub(super) fn purge_log(config: &EdgeConfig) -> Option<PathBuf> {
    let settings = &config.disk.as_ref()?.settings;
    let default = || default_file(settings, "purges.log", ".purges");
    config.purge.log.clone().or_else(default)
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
