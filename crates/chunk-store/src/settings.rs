//! The settings and the counters of a store.

use std::io;

use thiserror::Error;

use edgeward_dedup::codec::Method;

use crate::format::{Layout, SuperblockError};

/// The settings of a store.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSettings {
    /// The average size of a chunk in bytes. The index is sized for as many chunks as the device can hold.
    pub chunk_bytes: u32,
    /// The layout of containers, if the store is new.
    pub layout: Layout,
    /// The epoch, if the store is new: a random number.
    pub epoch: u64,
    /// The compression method of chunks written from now on. A store may have containers with different methods.
    pub compression: Method,
    /// The most trailers in memory. A trailer takes 20 bytes for each of its chunks, and 28 bytes after chunks
    /// of it were read or recognised, because it then also has fingerprints.
    pub trailers_max: usize,
}

impl ChunkSettings {
    /// Returns the defaults for chunks of `chunk_bytes`: containers of 1 MiB, and 4096 trailers, which take 10 to
    /// 14 MB for chunks of 8 KiB. Chunks of 4 GB of bodies are then found without a read.
    pub fn new(chunk_bytes: u32, epoch: u64) -> Self {
        Self {
            chunk_bytes,
            layout: Layout::DEFAULT,
            epoch,
            compression: Method::None,
            trailers_max: 4096,
        }
    }
}

/// Why a store cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The device cannot be read or written.
    #[error("cannot read or write the chunk store {name}")]
    Device {
        /// The name of the device.
        name: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The device is not a chunk store, or the store has another version.
    #[error("cannot open the chunk store {name}")]
    Superblock {
        /// The name of the device.
        name: String,
        /// The reason.
        source: SuperblockError,
    },
    /// The device has no space for two containers: one that is written, and one that is read.
    #[error("the chunk store {name} has {bytes} bytes, which is less than two containers")]
    TooSmall {
        /// The name of the device.
        name: String,
        /// The size of the device.
        bytes: u64,
    },
}

/// Counters and gauges of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounters {
    /// Containers found when the store was opened.
    pub recovered: u64,
    /// Containers written.
    pub written: u64,
    /// Containers overwritten.
    pub evicted: u64,
    /// Trailers read from the device.
    pub trailers_read: u64,
    /// Lookups in a trailer without the chunk, because another chunk of the container has the same tag in the index.
    pub false_tags: u64,
    /// Chunks that were removed from the index because they were corrupt.
    pub forgotten: u64,
    /// Reads and writes that failed.
    pub errors: u64,
    /// Entries in the index.
    pub indexed: u64,
    /// Entries that the index had to drop.
    pub dropped: u64,
    /// Bytes of memory of the index.
    pub index_bytes: u64,
    /// Bytes of the stored chunks, uncompressed.
    pub raw_bytes: u64,
    /// Bytes that the stored chunks take on the device, without the free space at the ends of containers.
    pub stored_bytes: u64,
    /// Bytes of the chunks that are only listed. They are not on the device, but count against its capacity.
    pub listed_bytes: u64,
}
