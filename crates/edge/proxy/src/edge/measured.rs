//! The memory of the process, and the bounds of overload.

use edgeward_overload::Bounds;
use edgeward_store::arena::Arena;

use crate::config::EdgeConfig;
use crate::net::descriptors;
use crate::path::worker::Shared;

/// Returns the bounds of the resources.
pub(super) fn bounds(config: &EdgeConfig) -> Bounds {
    let overload = &config.overload;
    let free_min = overload.descriptors_free_min;
    let descriptors = descriptors::limit().filter(|_| free_min > 0);
    Bounds {
        memory_bytes: overload.memory_max.map(|max| max.bytes()),
        lag: Some(overload.lag_max).filter(|max| !max.is_zero()),
        descriptors: descriptors.map(|limit| limit.saturating_sub(free_min).max(1) as u64),
    }
}

/// The memory of this process.
pub(crate) struct Memory {
    pub(crate) resident_bytes: u64,
    /// The resident memory, and the arena's pages that are not part of the resident memory.
    pub(crate) all_bytes: u64,
}

impl Memory {
    /// Reads the process's memory from `/proc/self/status`. `None` if this file is unavailable.
    pub(crate) fn of(shared: &Shared) -> Option<Self> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let kib = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            Some(kib * 1024)
        };
        let resident_bytes = kib("VmRSS:")?;
        let resident_arena = kib("RssShmem:").unwrap_or(0);
        let arena = shared.cache.arena.as_deref().map_or(0, Arena::used_bytes);
        Some(Self {
            resident_bytes,
            all_bytes: resident_bytes + arena.saturating_sub(resident_arena),
        })
    }
}
