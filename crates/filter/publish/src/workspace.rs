//! Working memory for builders of static filters.
//!
//! A build of a million ids uses about 22 MB of working memory. With pages of 4 KiB, the first use of this memory
//! causes thousands of page faults, which take a fifth of the build's time. With pages of 2 MiB there are eleven page
//! faults. Most systems provide such huge pages only on request. If the allocator requested them for all memory, the
//! program would use more memory. The builder therefore maps its working memory itself and unmaps it after the build.

use edgeward_filter::BuildWorkspace;
use memmap2::MmapMut;

/// Returns the working memory of one thread, which builds one shard of a filter at a time; in huge pages if the
/// system has them.
pub fn build_workspace() -> BuildWorkspace {
    let Ok(memory) = MmapMut::map_anon(BuildWorkspace::BYTES) else {
        // The mapping failed. Memory of the allocator, with small pages, is used instead.
        return BuildWorkspace::default();
    };
    #[cfg(target_os = "linux")]
    if let Err(error) = memory.advise(memmap2::Advice::HugePage) {
        tracing::debug!(%error, "huge pages unavailable for building");
    }
    BuildWorkspace::within(memory)
}
