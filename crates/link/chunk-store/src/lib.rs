//! Stores chunks on disk, in containers. A container has chunks in the order in which they were received or sent. A
//! small index in memory finds the container of a chunk.
//!
//! Each endpoint of a link stores the chunks that it sends and receives in one [`Chunks`], for all peers. New chunks
//! are collected in memory until a container (1 MiB) is full. The full container is then written to disk. If the store
//! is full, this container replaces the oldest one. A trailer after the chunks lists the id and length of each chunk.
//!
//! An entry of the index has six bytes: the position of the container, and 16 bits of the id. With its free
//! slots, the index takes about seven bytes of memory for each chunk. Several ids have the same 16 bits, so an entry
//! that matches may belong to another chunk. Each lookup therefore compares the full id in the trailer. A trailer
//! that is read for one chunk also lists the neighbours of the chunk, so the next chunks of the same body need no
//! further read of a trailer.
//!
//! Neighbouring chunks are compressed together in blocks. One read loads a series of neighbouring chunks, with or
//! without compression.
//!
//! Containers are not synced when they are written, because lost chunks do no harm: the link sends chunks again
//! that were lost in a crash, overwritten or corrupt. The caller verifies the hash of every chunk that it
//! loads. The format is specified in `docs/explanation/chunk-store.md`. [`codec`] has the compressors of the
//! link; [`estimate`] predicts how many bytes a link would save.
//!
//! ```
//! use std::sync::Arc;
//!
//! use edgeward_chunk_store::{ChunkSettings, Chunks};
//! use edgeward_dedup::id::IdKey;
//! use edgeward_dedup::store::Entry;
//! use edgeward_store::disk::FileDevice;
//!
//! let folder = tempfile::tempdir()?;
//! let device = FileDevice::open(&folder.path().join("chunks"), Some(16 << 20))?;
//! // Chunks of about 8 KiB; if the store is new, its epoch is 42.
//! let chunks = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, 42))?;
//! let key = IdKey::new([7; 32]);
//! let id = key.id(b"some chunk");
//! let location = chunks.insert(id, b"some chunk").expect("the chunk fits in a container");
//! assert_eq!(chunks.locate(&id), Some(location));
//!
//! let mut bytes = [0; 10];
//! let entry = Entry { id, length: 10 };
//! assert!(chunks.load(&key, location, &[entry], &mut bytes));
//! assert_eq!(&bytes, b"some chunk");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod access;
mod blocks;
pub mod checkpoint;
mod chunks;
pub mod codec;
pub mod estimate;
pub mod format;
mod index;
mod open;
mod recovery;
mod requests;
mod reuse;
mod scratch;
mod settings;
mod threads;
mod trailers;

pub use chunks::Chunks;
pub use index::{BLOCK_BUCKETS, Index, SLOT_BYTES};
pub use recovery::RecoveryReport;
pub use requests::WouldBlock;
pub use reuse::{ReuseCounters, STORE_MULTIPLES};
pub use scratch::ScratchDevice;
pub use settings::{ChunkCounters, ChunkSettings, OpenError};
pub use threads::{STORED_BYTES_MAX, StorePanicked};
