//! Memory for builders of static filters.
//!
//! A build uses about 22 MB of fresh memory. With pages of 4 KiB this causes thousands of page faults, a fifth
//! of the time for a million ids. With pages of 2 MiB it causes eleven. Most systems provide such pages only on
//! request. If the allocator requested them for all memory, an edge would use more memory. The builder
//! therefore maps the memory of its tables itself and unmaps it afterwards.

use edgeward_filter::Tables;
use memmap2::MmapMut;

/// Returns tables for one thread that solves shards, in huge pages if the system has them.
pub fn tables() -> Tables {
    let Ok(memory) = MmapMut::map_anon(Tables::BYTES) else {
        // The allocator may still have free memory.
        return Tables::default();
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = memory.advise(memmap2::Advice::HugePage) {
        tracing::debug!(%error, "huge pages unavailable for building");
    }
    Tables::within(memory)
}
