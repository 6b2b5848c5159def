//! The settings and the counters of a store.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use edgeward_dedup::codec::Method;

use crate::format::{Layout, SuperblockError};
use crate::reuse::ReuseCounters;

/// The settings of a store.
#[derive(Clone, Debug)]
pub struct ChunkSettings {
    /// The average size of a chunk in bytes. The size of the index follows from it and from the size of the device.
    pub chunk_bytes: u32,
    /// The layout of containers, if the store is new.
    pub layout: Layout,
    /// The epoch, if the store is new: a random number.
    pub epoch: u64,
    /// The compression method of new chunks. A store may have containers with different methods.
    pub compression: Method,
    /// The highest number of trailers in memory. A trailer lists the chunks of a container and takes 20 to 24 bytes per
    /// chunk. It takes 8 bytes more per chunk as soon as a fingerprint of one of its chunks is stored. A chunk gets its
    /// fingerprint when it is read, or when a sender finds the chunk in the store.
    pub trailers_max: usize,
    /// The file in which the index is saved. `None` recovers the index from the trailers of all containers at each
    /// start.
    pub checkpoint: Option<PathBuf>,
    /// The highest memory of the index in bytes.
    pub index_bytes_max: u64,
}

impl ChunkSettings {
    /// Returns the defaults for chunks of `chunk_bytes`: containers of 1 MiB, and 4096 trailers in memory. For
    /// chunks of 8 KiB, these trailers take 10 to 15 MiB and list the chunks of 4 GiB. A lookup of such a chunk
    /// reads no trailer from the device.
    pub fn new(chunk_bytes: u32, epoch: u64) -> Self {
        Self {
            chunk_bytes,
            layout: Layout::DEFAULT,
            epoch,
            compression: Method::None,
            trailers_max: 4096,
            checkpoint: None,
            index_bytes_max: u64::MAX,
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
    /// The device is smaller than two containers. While one container is written, another must be available for
    /// reads.
    #[error("the chunk store {name} has {bytes} bytes, which is less than two containers")]
    TooSmall {
        /// The name of the device.
        name: String,
        /// The size of the device.
        bytes: u64,
    },
    /// The memory for the index is not available.
    #[error("the index of the chunk store {name} needs {index_bytes} bytes of memory")]
    Memory {
        /// The name of the device.
        name: String,
        /// The size of the index.
        index_bytes: u64,
        /// The error of the system, or the exceeded limit.
        source: io::Error,
    },
    /// The thread that maintains the index cannot be started.
    #[error("cannot start the thread of the chunk store")]
    Thread(#[source] io::Error),
}

/// Counters and gauges of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounters {
    /// Containers whose trailer was read to recover the index.
    pub recovered: u64,
    /// Chunks that were not stored because too many bytes waited for the device.
    pub skipped: u64,
    /// True until the index is complete after the store was opened.
    pub recovering: bool,
    /// Containers whose trailer will be read until the index is complete.
    pub unread_trailers: u64,
    /// Lookups without a result before the index was complete.
    pub absent_while_recovering: u64,
    /// Checkpoints of the index that were written.
    pub checkpoints: u64,
    /// Checkpoints of the index that could not be written.
    pub checkpoint_errors: u64,
    /// Containers that were written since the store was opened.
    pub written: u64,
    /// Containers whose chunks were removed from the index, because the container is overwritten next.
    pub evicted: u64,
    /// Trailers that were read from the device.
    pub trailers_read: u64,
    /// Lookups that searched a trailer without the requested chunk, because another chunk of the container has
    /// the same tag in the index.
    pub false_tags: u64,
    /// Chunks that were removed from the index because they were corrupt.
    pub forgotten: u64,
    /// Reads and writes that failed.
    pub errors: u64,
    /// Entries in the index.
    pub indexed: u64,
    /// Entries that the index dropped because it had no free slot for a new entry.
    pub dropped: u64,
    /// The size of the index in bytes of memory.
    pub index_bytes: u64,
    /// Bytes of the stored chunks, uncompressed.
    pub raw_bytes: u64,
    /// Bytes that the stored chunks take on the device, without the free space at the ends of containers.
    pub stored_bytes: u64,
    /// New chunks that the store had before.
    pub reuse: ReuseCounters,
    /// The total length of the chunks that are only listed: the store has their ids but not their bytes. This
    /// length counts against the capacity.
    pub listed_bytes: u64,
}
