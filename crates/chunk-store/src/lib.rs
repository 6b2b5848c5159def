//! Chunks on disk: containers in the order of the bodies they come from, found by a small index in memory.
//!
//! The link's two ends keep what they sent each other in one [`Chunks`] for all peers. New chunks gather in
//! memory until a container (1 MiB) is full, which is then written whole, over the oldest one. Behind its
//! chunks it has a trailer, with the name and length of each.
//!
//! In memory there are six bytes for each chunk: the container, and 16 bits of the name. They are a hint. The
//! trailer, with the full name, decides, and a trailer that was read brings the names of all that was stored
//! before and after: the next chunks of the same body need no further reading. A run of chunks is one read.
//!
//! What is compressed is compressed in blocks of neighbours, so that a run of chunks is one read all the same.
//!
//! Nothing here is needed. What is lost in a crash (at most the container that was not full), overwritten, or
//! harmed is sent once more; what is read is hashed by whoever asked for it. So nothing is ever synced but at
//! the end. The format is in `docs/explanation/chunk-store.md`. [`codec`] has the compressors that the link
//! takes along; [`estimate`] tells what a link would save.
//!
//! ```
//! use std::sync::Arc;
//!
//! use edgeward_chunk_store::{ChunkSettings, Chunks};
//! use edgeward_dedup::id::IdKey;
//! use edgeward_dedup::store::{ChunkStore, Entry, load_verified};
//! use edgeward_store::disk::FileDevice;
//!
//! let folder = tempfile::tempdir()?;
//! let device = FileDevice::open(&folder.path().join("chunks"), Some(16 << 20))?;
//! let mut chunks = Chunks::open(Arc::new(device), ChunkSettings::new(8 << 10, 42))?;
//! let key = IdKey::new([7; 32]);
//! let id = key.id(b"some chunk");
//! let place = chunks.insert(id, b"some chunk").expect("there is room");
//! assert_eq!(chunks.locate(&id), Some(place));
//!
//! let mut bytes = [0; 10];
//! let entry = Entry { id, length: 10 };
//! assert!(load_verified(&mut chunks, &key, place, &[entry], &mut bytes));
//! assert_eq!(&bytes, b"some chunk");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod blocks;
mod chunks;
pub mod codec;
pub mod estimate;
mod foresight;
pub mod format;
mod hasty;
mod index;
mod open;
mod scratch;
mod settings;
mod trailers;

pub use chunks::Chunks;
pub use hasty::{Hasty, Wanted};
pub use index::{Index, SLOT_BYTES};
pub use scratch::ScratchDevice;
pub use settings::{ChunkCounters, ChunkSettings, OpenError};
