//! What a store is told, and what it tells.

use std::io;

use thiserror::Error;

use edgeward_dedup::codec::Method;

use crate::format::{Layout, SuperblockError};

/// How chunks are kept.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSettings {
    /// Bytes of a chunk, on average: the index is made for as many as fit the device.
    pub chunk_bytes: u32,
    /// How containers are laid out, if the store is new.
    pub layout: Layout,
    /// The epoch of the store if it is new: random.
    pub epoch: u64,
    /// What chunks are compressed with before they are written: a store may have containers of all kinds.
    pub compression: Method,
    /// Trailers kept in memory. Each is 20 bytes a chunk, and 28 once its chunks were read or seen again.
    pub trailers_max: usize,
}

impl ChunkSettings {
    /// For chunks of `chunk_bytes`, containers of 1 MiB, and 4096 trailers: 10 to 14 MB for chunks of 8 KiB, and 4 GB of bodies whose
    /// chunks are found without reading.
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
    /// It could not be read or written.
    #[error("the chunk store {name} cannot be used")]
    Device {
        /// What it is called.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// It is none, or not ours.
    #[error("the chunk store {name} is not opened")]
    Superblock {
        /// What it is called.
        name: String,
        /// Why.
        source: SuperblockError,
    },
    /// Two containers are the least: one that is written, and one to read from.
    #[error("the chunk store {name} has {bytes} bytes, which is less than two containers")]
    TooSmall {
        /// What it is called.
        name: String,
        /// What it has.
        bytes: u64,
    },
}

/// What happened, and what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounters {
    /// Containers that were found when the store was opened.
    pub recovered: u64,
    /// Containers written.
    pub written: u64,
    /// Containers overwritten.
    pub evicted: u64,
    /// Trailers read from the device.
    pub trailers_read: u64,
    /// Of those, for a tag that was another chunk's.
    pub misled: u64,
    /// Chunks that were not what their names say.
    pub forgotten: u64,
    /// Reads and writes that failed.
    pub errors: u64,
    /// Chunks the index knows.
    pub indexed: u64,
    /// Chunks the index had to drop.
    pub dropped: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Bytes of the chunks that are kept.
    pub raw_bytes: u64,
    /// Bytes they take, without what is left free at the ends of containers.
    pub stored_bytes: u64,
    /// Bytes of the chunks of which only the names are kept. None of them is on the device, but they take as much room there as if they were.
    pub listed_bytes: u64,
}
