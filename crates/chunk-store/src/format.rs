//! What a chunk store looks like on its device; `docs/chunk-store.md` has it byte by byte.

use thiserror::Error;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::Entry;
use edgeward_store::disk::WRITE_ALIGN;

/// The format written here.
pub const VERSION: u32 = 1;

/// Bytes before the first container.
pub const SUPERBLOCK_BYTES: usize = 4096;

const _: () = assert!(SUPERBLOCK_BYTES as u64 == WRITE_ALIGN);

const SUPERBLOCK_MAGIC: [u8; 8] = *b"\x89EWC\r\n\x1a\n";
const TRAILER_MAGIC: [u8; 8] = *b"EWchunks";

/// Trailers begin with this much, and have this much for each chunk.
const TRAILER_HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 20;

/// What a store is, at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Random, drawn when the store was made.
    pub epoch: u64,
    /// How containers are laid out.
    pub layout: Layout,
}

/// Why a device is not opened as a chunk store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// It has other contents, which are left alone.
    #[error("it holds something else, and not nothing: name another file, or delete this one")]
    Foreign,
    /// A later program wrote it.
    #[error("its format is version {0}, and here it is {VERSION}: delete it to begin anew")]
    Version(u32),
    /// Its first sector was harmed.
    #[error("its first bytes are harmed: delete it to begin anew")]
    Harmed,
}

/// Sizes, from the size of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    container_bytes: u32,
}

impl Layout {
    /// Containers of 1 MiB.
    pub const DEFAULT: Self = Self {
        container_bytes: 1 << 20,
    };

    /// Containers of so many bytes: a power of two, 16 KiB to 16 MiB.
    pub fn new(container_bytes: u32) -> Option<Self> {
        let within = (16 << 10..=16 << 20).contains(&container_bytes);
        (within && container_bytes.is_power_of_two()).then_some(Self { container_bytes })
    }

    /// Bytes of chunks in a container.
    pub fn container_bytes(self) -> usize {
        self.container_bytes as usize
    }

    /// Chunks in a container: a KiB each, which is the least a chunk has in the middle of a body.
    pub fn chunks_max(self) -> usize {
        self.container_bytes() / 1024
    }

    /// Bytes set aside for a trailer.
    pub fn trailer_bytes(self) -> usize {
        (TRAILER_HEAD_BYTES + self.chunks_max() * ENTRY_BYTES).next_multiple_of(SUPERBLOCK_BYTES)
    }

    /// Containers on a device of so many bytes.
    pub fn containers(self, device_bytes: u64) -> u32 {
        let span = self.span();
        let fit = device_bytes.saturating_sub(SUPERBLOCK_BYTES as u64) / span;
        // Zero means no container in the index, and so does the number above all.
        u32::try_from(fit).unwrap_or(u32::MAX).min(u32::MAX - 2)
    }

    /// Where the container at `position` begins; its trailer follows its chunks.
    pub fn offset(self, position: u32) -> u64 {
        SUPERBLOCK_BYTES as u64 + u64::from(position) * self.span()
    }

    fn span(self) -> u64 {
        (self.container_bytes() + self.trailer_bytes()) as u64
    }
}

impl Superblock {
    /// All of it.
    pub fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[..8].copy_from_slice(&SUPERBLOCK_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.layout.container_bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        let checksum = xxh3_64(&bytes[..24]);
        bytes[24..32].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// What the first bytes of a device say; `None` if they are all zero, as on a new one.
    pub fn decode(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Option<Self>, SuperblockError> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let u32_at = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("within"));
        let u64_at = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("within"));
        if bytes[..8] != SUPERBLOCK_MAGIC {
            return Err(SuperblockError::Foreign);
        }
        if u64_at(24) != xxh3_64(&bytes[..24]) {
            return Err(SuperblockError::Harmed);
        }
        if u32_at(8) != VERSION {
            return Err(SuperblockError::Version(u32_at(8)));
        }
        let layout = Layout::new(u32_at(12)).ok_or(SuperblockError::Harmed)?;
        let epoch = u64_at(16);
        Ok(Some(Self { epoch, layout }))
    }
}

/// What lies in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Which container this is, of all there were.
    pub number: u32,
    /// Its chunks, in their order.
    pub entries: Vec<Entry>,
}

impl Trailer {
    /// Appends it, filled with zeroes to the bytes set aside for it.
    ///
    /// # Panics
    ///
    /// If there are more chunks than the layout has room for.
    pub fn encode(&self, layout: Layout, epoch: u64, out: &mut Vec<u8>) {
        let start = out.len();
        let chunks = u32::try_from(self.entries.len()).expect("a container's");
        out.extend_from_slice(&TRAILER_MAGIC);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&chunks.to_le_bytes());
        out.resize(start + TRAILER_HEAD_BYTES, 0);
        for entry in &self.entries {
            out.extend_from_slice(&entry.id.0);
            out.extend_from_slice(&entry.length.to_le_bytes());
        }
        let checksum = checksum(&out[start..], epoch);
        out[start + 16..start + 24].copy_from_slice(&checksum.to_le_bytes());
        assert!(
            out.len() - start <= layout.trailer_bytes(),
            "more chunks than fit"
        );
        out.resize(start + layout.trailer_bytes(), 0);
    }

    /// How many bytes the trailer has that begins with these; `None` if none does.
    pub fn bytes(layout: Layout, head: &[u8]) -> Option<usize> {
        let chunks = head
            .get(12..16)?
            .first_chunk()
            .map(|bytes| u32::from_le_bytes(*bytes))?;
        let plausible = head.starts_with(&TRAILER_MAGIC) && chunks as usize <= layout.chunks_max();
        plausible.then(|| TRAILER_HEAD_BYTES + chunks as usize * ENTRY_BYTES)
    }

    /// The trailer that `bytes` begin with; `None` if it is of another store, torn, or none at all.
    pub fn decode(layout: Layout, epoch: u64, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::bytes(layout, bytes)?)?;
        let stored = u64::from_le_bytes(*bytes[16..].first_chunk()?);
        let mut unsigned = bytes.to_vec();
        unsigned[16..24].fill(0);
        if stored != checksum(&unsigned, epoch) {
            return None;
        }
        let number = u32::from_le_bytes(*bytes[8..].first_chunk()?);
        let (entries, _) = bytes[TRAILER_HEAD_BYTES..].as_chunks::<ENTRY_BYTES>();
        let entries: Vec<_> = entries.iter().map(entry).collect();
        let together: u64 = entries.iter().map(|entry| u64::from(entry.length)).sum();
        (together <= layout.container_bytes() as u64).then_some(Self { number, entries })
    }
}

fn entry(bytes: &[u8; ENTRY_BYTES]) -> Entry {
    Entry {
        id: ChunkId(*bytes.first_chunk().expect("sixteen of twenty")),
        length: u32::from_le_bytes(*bytes.last_chunk().expect("four of twenty")),
    }
}

/// Over a trailer whose own checksum is zero. The epoch makes trailers of the store before, in the same file, wrong.
fn checksum(trailer: &[u8], epoch: u64) -> u64 {
    xxh3_64_with_seed(trailer, epoch)
}
