//! The memory of an edge with a disk across a restart: the fill after the start, and the writes at the end.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::cache::disk::DiskTier;
use crate::cache::warm_start::WarmStart;
use crate::cache::{Cache, restart};
use crate::config::{DiskConfig, RestartConfig};
use crate::observe::counters::Counters;
use crate::rt::panics::lock;

/// The disk of a running edge and the memory that it keeps there. Both are absent without a disk, and until the process
/// before this one has released the store.
#[derive(Default)]
pub(super) struct Persistent {
    pub(super) disk: Option<Arc<DiskTier>>,
    pub(super) memory: Option<PersistentMemory>,
    /// True if the edge stops, and uses no disk any more.
    pub(super) has_ended: bool,
}

impl Persistent {
    /// Returns the disk and the memory, which the caller closes.
    pub(super) fn end(this: &Mutex<Self>) -> (Option<Arc<DiskTier>>, Option<PersistentMemory>) {
        let mut this = lock(this);
        this.has_ended = true;
        (this.disk.take(), this.memory.take())
    }
}

/// The memory of a running edge that has a disk.
pub(super) struct PersistentMemory {
    cache: Arc<Cache>,
    config: RestartConfig,
    list: Option<PathBuf>,
    warm_start: Option<WarmStart>,
}

impl PersistentMemory {
    /// Starts to fill memory from the disk, if there is a file for the list of its objects.
    pub(super) fn start(
        disk: DiskConfig,
        cache: Arc<Cache>,
        counters: Arc<Counters>,
    ) -> io::Result<Self> {
        let list = restart::list_file(&disk);
        let config = disk.restart;
        let start = |list: &PathBuf| {
            let cache = Arc::clone(&cache);
            WarmStart::start(cache, counters, list.clone(), config.list_interval)
        };
        let warm_start = list.as_ref().map(start).transpose()?;
        Ok(Self {
            cache,
            config,
            list,
            warm_start,
        })
    }

    /// Ends the fill of memory.
    pub(super) fn stop_filling(&mut self) {
        self.warm_start = None;
    }

    /// Writes the objects of memory to disk, after the last request has ended.
    pub(super) fn persist(self) {
        self.cache
            .persist_memory(&self.config, self.list.as_deref());
    }
}
