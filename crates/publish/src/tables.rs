//! Memory for builders of static filters.
//!
//! A build goes through some 22 MB that it has never seen. In pages of 4 KiB these are thousands of faults, a fifth of
//! the time a million ids take; in pages of 2 MiB they are eleven. Most systems give such pages to those alone who ask
//! for them, and an allocator that asked for all memory would make an edge larger. So builders map their tables
//! themselves, and unmap them when they are done.

use edgeward_filter::Tables;
use memmap2::MmapMut;

/// Tables for one thread that solves shards, in large pages where the system has them.
pub fn tables() -> Tables {
    let Ok(memory) = MmapMut::map_anon(Tables::BYTES) else {
        // The allocator may still have some.
        return Tables::default();
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = memory.advise(memmap2::Advice::HugePage) {
        tracing::debug!(%error, "no large pages for building");
    }
    Tables::within(memory)
}
