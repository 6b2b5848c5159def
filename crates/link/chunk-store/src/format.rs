//! The format of a chunk store on its device, specified in `docs/explanation/chunk-store.md`.
//!
//! A superblock is followed by containers. A container has the bytes of its chunks and a trailer that lists them. In
//! a compressed container, neighbouring chunks form blocks, and each block is compressed as a whole.

use edgeward_types::xxh3::{xxh3_64, xxh3_64_with_seed};
use thiserror::Error;

use edgeward_dedup::codec::Method;
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::Entry;
use edgeward_store::disk::WRITE_ALIGN;

/// The newest format, in which a container may list chunks whose bytes it does not store.
pub const VERSION: u32 = 3;

/// The second format, in which containers may be compressed. A store with compression keeps this version until it
/// first lists a chunk without storing its bytes.
pub const VERSION_BLOCKS: u32 = 2;

/// The first format, without compression. A store keeps this version until it is opened with compression, or until it
/// first lists a chunk without storing its bytes.
pub const VERSION_RAW: u32 = 1;

/// The size of the superblock, which is followed by the first container.
pub const SUPERBLOCK_BYTES: usize = 4096;

const _: () = assert!(SUPERBLOCK_BYTES as u64 == WRITE_ALIGN);

const SUPERBLOCK_MAGIC: [u8; 8] = *b"\x89EWC\r\n\x1a\n";
const TRAILER_MAGIC: [u8; 8] = *b"EWchunks";

/// The size of a trailer's head in bytes.
const TRAILER_HEAD_BYTES: usize = 32;

/// The size of a trailer's entry for one chunk in bytes.
const ENTRY_BYTES: usize = 20;

/// The size of a trailer's entry for one block in bytes.
const BLOCK_BYTES: usize = 8;

/// The first 4096 bytes of the device, which identify the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version of the format, 1 to [`VERSION`].
    pub version: u32,
    /// A random number that was chosen when the store was created.
    pub epoch: u64,
    /// The sizes of containers.
    pub layout: Layout,
}

/// Why a device cannot be opened as a chunk store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// The device has other content. The content is not changed.
    #[error("it has other content: use another file, or delete this one")]
    Foreign,
    /// A newer program wrote the store.
    #[error(
        "its format version {0} is not supported, only 1 to {VERSION}: upgrade, or delete it to start with an empty store"
    )]
    Version(u32),
    /// The checksum of the superblock is wrong, or its container size is invalid.
    #[error("its superblock is corrupt: delete it to start with an empty store")]
    Corrupt,
}

/// The sizes of containers and trailers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    container_bytes: u32,
}

impl Layout {
    /// Containers of 1 MiB.
    pub const DEFAULT: Self = Self {
        container_bytes: 1 << 20,
    };

    /// Returns the layout for containers of this size. Returns `None` unless the size is a power of two from 16
    /// KiB to 16 MiB.
    pub fn new(container_bytes: u32) -> Option<Self> {
        let is_in_range = (16 << 10..=16 << 20).contains(&container_bytes);
        (is_in_range && container_bytes.is_power_of_two()).then_some(Self { container_bytes })
    }

    /// Returns the number of bytes of chunks for which a container has space.
    pub fn container_bytes(self) -> usize {
        self.container_bytes as usize
    }

    /// Returns the highest number of chunks in a container: one chunk for each KiB of its size. If a container
    /// has this many chunks, the next chunk begins a new container.
    pub fn chunks_max(self) -> usize {
        self.container_bytes() / 1024
    }

    /// Returns the highest number of blocks in a compressed container: one for each 4 KiB, at most 256. With
    /// this limit, the list of blocks fits in the padding that trailers of version 1 have.
    pub(crate) fn blocks_max(self) -> usize {
        blocks_max(self.container_bytes())
    }

    /// Returns the highest number of uncompressed bytes in a compressed container. If the chunks are compressed
    /// to less than an eighth, a part of the container stays empty.
    pub(crate) fn raw_bytes_max(self) -> usize {
        RAW_RATIO_MAX * self.container_bytes()
    }

    /// Returns the number of bytes that are reserved for a trailer.
    pub fn trailer_bytes(self) -> usize {
        let entries = self.chunks_max() * ENTRY_BYTES + self.blocks_max() * BLOCK_BYTES;
        (TRAILER_HEAD_BYTES + entries).next_multiple_of(SUPERBLOCK_BYTES)
    }

    /// Returns the number of containers on a device of this many bytes.
    pub fn containers(self, device_bytes: u64) -> u32 {
        let span = self.span();
        let fit = device_bytes.saturating_sub(SUPERBLOCK_BYTES as u64) / span;
        // Two reasons for the limit: the index stores `position + 1` in 32 bits, because zero means an empty slot; and
        // container numbers are lower than `u32::MAX - 1`, but a device must have fewer containers than there are
        // numbers.
        u32::try_from(fit).unwrap_or(u32::MAX).min(u32::MAX - 2)
    }

    /// Returns the offset of the container at `position`. Its trailer follows its chunks.
    pub fn offset(self, position: u32) -> u64 {
        SUPERBLOCK_BYTES as u64 + u64::from(position) * self.span()
    }

    /// Returns the size of a container with its trailer in bytes.
    fn span(self) -> u64 {
        (self.container_bytes() + self.trailer_bytes()) as u64
    }
}

/// The highest number of uncompressed bytes in a container, as a multiple of the container's size.
pub(crate) const RAW_RATIO_MAX: usize = 8;

// For every container size, a trailer with blocks fits in the space of a trailer of version 1. Trailers are
// therefore at the same offsets in all versions.
const _: () = {
    let mut bytes = 16 << 10;
    while bytes <= 16 << 20 {
        let entries = TRAILER_HEAD_BYTES + bytes / 1024 * ENTRY_BYTES;
        let both = entries + blocks_max(bytes) * BLOCK_BYTES;
        assert!(entries.next_multiple_of(4096) == both.next_multiple_of(4096));
        bytes *= 2;
    }
};

const fn blocks_max(container_bytes: usize) -> usize {
    let blocks = container_bytes / 4096;
    if blocks < 256 { blocks } else { 256 }
}

impl Superblock {
    /// Encodes the superblock.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.layout.container_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        let checksum = xxh3_64(&bytes[..24]);
        bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes the superblock. Returns `None` if the bytes are all zeroes, because the device is new.
    pub fn decode(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Option<Self>, SuperblockError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let u32_at = |at: usize| {
            u32::from_le_bytes(
                *bytes[at..]
                    .first_chunk()
                    .expect("the field is within the block"),
            )
        };
        let u64_at = |at: usize| {
            u64::from_le_bytes(
                *bytes[at..]
                    .first_chunk()
                    .expect("the field is within the block"),
            )
        };
        if bytes[..8] != SUPERBLOCK_MAGIC {
            return Err(SuperblockError::Foreign);
        }
        if u64_at(24) != xxh3_64(&bytes[..24]) {
            return Err(SuperblockError::Corrupt);
        }
        let version = u32_at(8);
        if !(VERSION_RAW..=VERSION).contains(&version) {
            return Err(SuperblockError::Version(version));
        }
        let layout = Layout::new(u32_at(12)).ok_or(SuperblockError::Corrupt)?;
        let epoch = u64_at(16);
        Ok(Some(Self {
            version,
            epoch,
            layout,
        }))
    }
}

/// The trailer of a container: the list of its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The number of the container. The first container of an epoch has number 0. The position on the device is
    /// the number modulo [`Layout::containers`].
    pub number: u32,
    /// The chunks, in order.
    pub entries: Vec<Entry>,
    /// The blocks of neighbouring chunks. Empty if all chunks are stored uncompressed.
    pub blocks: Vec<Block>,
}

/// A block: neighbouring chunks that are compressed together, stored uncompressed, or only listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of chunks, at least one.
    pub chunks: u16,
    /// The compression method, or [`Method::None`] if compression saves too little. `None` if the chunks are only
    /// listed, so that their bytes are not stored.
    pub method: Option<Method>,
    /// The number of bytes of the block in the container, after compression.
    pub stored: u32,
}

/// The code in the method field of a block whose chunks are only listed.
const LISTED: u8 = 0xff;

impl Block {
    fn decode(bytes: &[u8; BLOCK_BYTES]) -> Option<Self> {
        let [stored @ .., c0, c1, method, _] = *bytes;
        Some(Self {
            chunks: u16::from_le_bytes([c0, c1]),
            method: match method {
                LISTED => None,
                code => Some(Method::from_code(code)?),
            },
            stored: u32::from_le_bytes(stored),
        })
    }

    fn encode(self) -> [u8; BLOCK_BYTES] {
        let ([s0, s1, s2, s3], [c0, c1]) = (self.stored.to_le_bytes(), self.chunks.to_le_bytes());
        let method = self.method.map_or(LISTED, Method::code);
        [s0, s1, s2, s3, c0, c1, method, 0]
    }
}

impl Trailer {
    /// Appends the encoded trailer, padded with zeroes to its reserved size.
    ///
    /// # Panics
    ///
    /// Panics if there are more chunks or blocks than the layout allows.
    pub fn encode(&self, layout: Layout, epoch: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let chunks = u32::try_from(self.entries.len()).expect("the count fits 32 bits");
        let blocks = u32::try_from(self.blocks.len()).expect("the count fits 32 bits");
        out.extend_from_slice(&TRAILER_MAGIC);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&chunks.to_le_bytes());
        out.resize(start + TRAILER_HEAD_BYTES, 0);
        out[start + 24..start + 28].copy_from_slice(&blocks.to_le_bytes());
        for entry in &self.entries {
            out.extend_from_slice(&entry.id.0);
            out.extend_from_slice(&entry.length.to_le_bytes());
        }
        for block in &self.blocks {
            out.extend_from_slice(&block.encode());
        }
        let checksum = checksum(&out[start..], epoch);
        out[start + 16..start + 24].copy_from_slice(&checksum.to_le_bytes());
        assert!(
            out.len() - start <= layout.trailer_bytes(),
            "more chunks than fit"
        );
        out.resize(start + layout.trailer_bytes(), 0);
    }

    /// Returns the length of the trailer that begins with these bytes, without its padding. Returns `None` if the bytes
    /// are not a trailer.
    pub fn bytes(layout: Layout, head: &[u8]) -> Option<usize> {
        let u32_at = |at: usize| {
            let bytes = head.get(at..at + 4)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes) as usize)
        };
        let (chunks, blocks) = (u32_at(12)?, u32_at(24)?);
        let is_plausible = head.starts_with(&TRAILER_MAGIC)
            && chunks <= layout.chunks_max()
            && blocks <= layout.blocks_max();
        is_plausible.then(|| TRAILER_HEAD_BYTES + chunks * ENTRY_BYTES + blocks * BLOCK_BYTES)
    }

    /// Decodes the trailer at the beginning of `bytes`. Returns `None` if the bytes are not a valid trailer:
    /// for example if only a part of the trailer was written, or if it belongs to another store.
    pub fn decode(layout: Layout, epoch: u64, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::bytes(layout, bytes)?)?;
        let stored = u64::from_le_bytes(*bytes[16..].first_chunk()?);
        let mut zeroed = bytes.to_vec();
        zeroed[16..24].fill(0);
        if stored != checksum(&zeroed, epoch) {
            return None;
        }
        let number = u32::from_le_bytes(*bytes[8..].first_chunk()?);
        let chunks = u32::from_le_bytes(*bytes[12..].first_chunk()?) as usize;
        let (entries, blocks) = bytes[TRAILER_HEAD_BYTES..].split_at(chunks * ENTRY_BYTES);
        let entries: Vec<_> = entries.as_chunks().0.iter().map(decode_entry).collect();
        let blocks = blocks.as_chunks().0.iter().map(Block::decode);
        let trailer = Self {
            number,
            entries,
            blocks: blocks.collect::<Option<_>>()?,
        };
        trailer.fits(layout).then_some(trailer)
    }

    /// Returns true if the trailer is consistent: its chunks are within the container, and they do not take
    /// more memory than the layout allows.
    fn fits(&self, layout: Layout) -> bool {
        let raw = raw_bytes(&self.entries);
        let container = layout.container_bytes() as u64;
        if self.blocks.is_empty() {
            return raw <= container;
        }
        let (mut rest, mut charged) = (&self.entries[..], 0);
        let blocks_are_valid = self.blocks.iter().all(|block| {
            let Some((chunks, others)) = rest.split_at_checked(usize::from(block.chunks)) else {
                return false;
            };
            rest = others;
            let (raw, stored) = (raw_bytes(chunks), u64::from(block.stored));
            let is_length_valid = match block.method {
                None => stored == 0,
                Some(Method::None) => stored == raw && stored > 0,
                Some(Method::Lz4 | Method::Zstd) => stored < raw && stored > 0,
            };
            // A listed chunk takes no bytes of the container, but counts against its capacity. The docs of the module
            // `open` have the reason.
            charged += block.method.map_or(raw, |_| stored);
            is_length_valid && !chunks.is_empty()
        });
        blocks_are_valid
            && rest.is_empty()
            && charged <= container
            && raw <= layout.raw_bytes_max() as u64
    }
}

/// Returns the total length of these chunks.
pub(crate) fn raw_bytes(entries: &[Entry]) -> u64 {
    entries.iter().map(|entry| u64::from(entry.length)).sum()
}

fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> Entry {
    Entry {
        id: ChunkId(
            *bytes
                .first_chunk()
                .expect("an entry begins with sixteen bytes of id"),
        ),
        length: u32::from_le_bytes(
            *bytes
                .last_chunk()
                .expect("an entry ends with four bytes of length"),
        ),
    }
}

/// Returns the checksum of a trailer whose checksum field is zero. The checksum depends on the epoch, so that
/// trailers of an earlier store in the same file are not valid.
fn checksum(trailer: &[u8], epoch: u64) -> u64 {
    xxh3_64_with_seed(trailer, epoch)
}
