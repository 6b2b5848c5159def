//! The open container: it collects new chunks in memory until it is full and is written with one or two writes.
//!
//! The chunks stay in memory uncompressed too, so that they can be loaded. If the store compresses,
//! neighbouring chunks are compressed as soon as they fill a block. This is done before the container is full,
//! because its free space is known only after the compression. The block that is being filled, the *open block*,
//! counts uncompressed. If a chunk does not fit beside it, the open block is compressed, and the chunk is accepted if
//! it fits then. The chunk itself counts uncompressed too.
//!
//! For a *listed* chunk the store has the id and the length, but not the bytes, because senders need only the id.
//! Neighbouring listed chunks are in one block without bytes. A listed chunk takes the same share of the capacity as if
//! its bytes were stored. Without this rule, a store could list more ids than its index has slots.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use edgeward_dedup::codec::{Codec as _, Method};
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::{Entry, bytes_of};

use crate::codec::Compressors;
use crate::format::{Block, Layout, Trailer};
use crate::trailers::Sizes;

/// The open container.
#[derive(Debug)]
pub(crate) struct OpenContainer {
    /// Containers are numbered in the order in which they are written.
    pub(crate) number: u32,
    /// The id and the length of each chunk. The index of an entry is the *slot* of its chunk.
    pub(crate) entries: Vec<Entry>,
    pub(crate) slots_by_id: SlotsById,
    /// The offset of each chunk in `raw`, or `None` if the chunk is only listed.
    raw_offsets: Vec<Option<usize>>,
    /// The uncompressed chunks.
    raw: Vec<u8>,
    /// The closed blocks as they will be on the device. Empty while no closed block is compressed, because their bytes
    /// are then a prefix of `raw`.
    packed: Vec<u8>,
    blocks: Vec<Block>,
    /// The number of bytes that the closed blocks take on the device, after compression.
    stored_bytes: usize,
    /// The sum of the lengths of the listed chunks.
    listed_bytes: usize,
    /// The number of bytes of `raw` that are in closed blocks.
    closed_bytes: usize,
    /// The number of chunks that are in closed blocks.
    closed_chunks: usize,
    layout: Layout,
}

/// The slots of the container by chunk id. A container of the largest size, 16 MiB, has at most 16,384 slots.
type SlotsById = HashMap<ChunkId, u16, BuildHasherDefault<IdHasher>>;

/// A hasher for chunk ids. It uses the bits of the id, because ids are already keyed hashes. An attacker who has the
/// key could create ids that collide. A lookup would then search at most the entries of one container.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        let first = bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
        self.0 = self.0.rotate_left(32) ^ first;
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Compresses blocks.
#[derive(Debug)]
pub(crate) struct Packer {
    method: Method,
    codec: Compressors,
    /// The number of following blocks that are stored without trying compression: 1, 3, 7, 15 and then 31 after
    /// consecutive failures to shorten a block. Incompressible bodies are usually long, so the number grows.
    blocks_to_skip: u32,
    /// The number of tried blocks in a row for which compression saved too little, at most [`SKIP_LOG2_MAX`].
    consecutive_failures: u32,
}

impl Packer {
    pub(crate) fn new(method: Method) -> Self {
        Self {
            method,
            codec: Compressors::new(),
            blocks_to_skip: 0,
            consecutive_failures: 0,
        }
    }

    pub(crate) fn stores_uncompressed(&self) -> bool {
        self.method == Method::None
    }

    /// Compresses a block. If compression saves enough, appends the compressed bytes to `out` and returns true.
    /// Otherwise `out` is unchanged.
    fn pack(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        if self.stores_uncompressed() {
            return false;
        }
        if self.blocks_to_skip > 0 {
            self.blocks_to_skip -= 1;
            return false;
        }
        let start = out.len();
        let shorter = self.codec.compress(self.method, &[], raw, out);
        // If compression saves less than an eighth, the block is stored uncompressed, so that reads need no
        // decompression.
        if shorter && out.len() - start <= raw.len() - raw.len() / 8 {
            self.consecutive_failures = 0;
            return true;
        }
        out.truncate(start);
        self.consecutive_failures = (self.consecutive_failures + 1).min(SKIP_LOG2_MAX);
        self.blocks_to_skip = (1 << self.consecutive_failures) - 1;
        false
    }
}

impl OpenContainer {
    pub(crate) fn new(number: u32, layout: Layout) -> Self {
        Self {
            number,
            entries: Vec::new(),
            slots_by_id: SlotsById::default(),
            raw_offsets: Vec::new(),
            raw: Vec::with_capacity(layout.container_bytes() + layout.trailer_bytes()),
            packed: Vec::new(),
            blocks: Vec::new(),
            stored_bytes: 0,
            listed_bytes: 0,
            closed_bytes: 0,
            closed_chunks: 0,
            layout,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if the container has a listed chunk.
    pub(crate) fn has_listed(&self) -> bool {
        self.listed_bytes > 0
    }

    /// Returns the sizes of the container's chunks. The open block counts uncompressed.
    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            raw: self.raw.len() as u64,
            stored: (self.stored_bytes + self.open_block_bytes()) as u64,
            listed: self.listed_bytes as u64,
        }
    }

    /// Returns true if a chunk of this many bytes fits the container on the device.
    fn fits(&self, bytes: usize) -> bool {
        let used = self.stored_bytes + self.open_block_bytes() + self.listed_bytes;
        used + bytes <= self.layout.container_bytes()
            && self.entries.len() < self.layout.chunks_max()
    }

    /// Returns true if another block may begin. The open block counts as a block.
    fn can_add_block(&self) -> bool {
        self.blocks.len() + usize::from(self.open_block_bytes() > 0) < self.layout.blocks_max()
    }

    /// Returns the number of uncompressed bytes of the open block.
    fn open_block_bytes(&self) -> usize {
        self.raw.len() - self.closed_bytes
    }

    /// Returns the bytes of the chunks in these slots, or `None` if one of the chunks is only listed.
    pub(crate) fn chunks(&self, slots: Range<usize>) -> Option<&[u8]> {
        let offsets = self.raw_offsets.get(slots.clone())?;
        if offsets.iter().any(Option::is_none) {
            return None;
        }
        let start = offsets.first().copied().flatten().unwrap_or(0);
        let bytes = bytes_of(&self.entries[slots]);
        self.raw.get(start..start + bytes)
    }

    pub(crate) fn has_bytes(&self, slot: usize) -> bool {
        self.raw_offsets.get(slot).is_some_and(Option::is_some)
    }

    /// Returns true if there is room for a chunk of this many bytes. Closes the open block if it would become
    /// too long, or if the chunk fits only after the open block is compressed.
    pub(crate) fn make_room(&mut self, bytes: usize, packer: &mut Packer) -> bool {
        let block_after = self.open_block_bytes() + bytes;
        let must_close_block = block_after > block_bytes(self.layout) || !self.fits(bytes);
        if !packer.stores_uncompressed() && self.open_block_bytes() > 0 && must_close_block {
            self.close_block(packer);
        }
        self.fits(bytes)
            && (self.open_block_bytes() > 0 || self.can_add_block())
            && self.raw.len() + bytes <= self.layout.raw_bytes_max()
    }

    /// Returns true if there is room to list a chunk of this many bytes.
    pub(crate) fn has_room_to_list(&self, bytes: usize) -> bool {
        let last = self.blocks.last().filter(|_| self.open_block_bytes() == 0);
        let joins_block = last.is_some_and(|block| block.method.is_none());
        self.fits(bytes) && (joins_block || self.can_add_block())
    }

    /// Adds a chunk that fits, and returns its slot.
    pub(crate) fn push(&mut self, id: ChunkId, chunk: &[u8]) -> u16 {
        let length = u32::try_from(chunk.len()).expect("the chunk fits in a container");
        let start = self.raw.len();
        self.raw.extend_from_slice(chunk);
        self.add_entry(Entry { id, length }, Some(start))
    }

    /// Lists a chunk that fits, and returns its slot.
    pub(crate) fn list(&mut self, entry: Entry, packer: &mut Packer) -> u16 {
        if self.open_block_bytes() > 0 {
            self.close_block(packer);
        }
        let slot = self.add_entry(entry, None);
        self.add_block(Block {
            chunks: 1,
            method: None,
            stored: 0,
        });
        self.listed_bytes += entry.length as usize;
        self.closed_chunks = self.entries.len();
        slot
    }

    fn add_entry(&mut self, entry: Entry, start: Option<usize>) -> u16 {
        let slot =
            u16::try_from(self.entries.len()).expect("a container has at most 16,384 chunks");
        self.entries.push(entry);
        self.raw_offsets.push(start);
        self.slots_by_id.insert(entry.id, slot);
        slot
    }

    fn close_block(&mut self, packer: &mut Packer) {
        let (closed, raw) = self.raw.split_at(self.closed_bytes);
        let before = self.packed.len();
        let (method, stored) = if packer.pack(raw, &mut self.packed) {
            let stored = self.packed.len() - before;
            if before == 0 {
                // This is the first compressed block, so the uncompressed blocks before it are copied to `packed`.
                self.packed.splice(..0, closed.iter().copied());
            }
            (Some(packer.method), stored)
        } else {
            if before > 0 {
                self.packed.extend_from_slice(raw);
            }
            (Some(Method::None), raw.len())
        };
        let chunks = self.entries.len() - self.closed_chunks;
        self.add_block(Block {
            chunks: u16::try_from(chunks).expect("a container has at most 16,384 chunks"),
            method,
            stored: u32::try_from(stored).expect("the length is less than a container"),
        });
        self.stored_bytes += stored;
        self.closed_bytes = self.raw.len();
        self.closed_chunks = self.entries.len();
    }

    /// Adds a block. If this block and the last block are both uncompressed or both listed, they become one block.
    fn add_block(&mut self, block: Block) {
        let is_joinable = matches!(block.method, None | Some(Method::None));
        match self.blocks.last_mut() {
            Some(last) if is_joinable && last.method == block.method => {
                last.chunks += block.chunks;
                last.stored += block.stored;
            }
            _ => self.blocks.push(block),
        }
    }

    /// Closes the container. Returns the bytes of its blocks and its trailer. The caller writes them, and then calls
    /// [`begin`](Self::begin).
    pub(crate) fn finish(&mut self, packer: &mut Packer) -> (Vec<u8>, Trailer) {
        if self.open_block_bytes() > 0 {
            self.close_block(packer);
        }
        let bytes = if self.packed.is_empty() {
            &mut self.raw
        } else {
            &mut self.packed
        };
        let mut blocks = std::mem::take(&mut self.blocks);
        // If all chunks are uncompressed, the trailer lists no blocks.
        if let [block] = blocks[..]
            && block.method == Some(Method::None)
        {
            blocks.clear();
        }
        let trailer = Trailer {
            number: self.number,
            entries: std::mem::take(&mut self.entries),
            blocks,
        };
        (std::mem::take(bytes), trailer)
    }

    /// Begins the next container. `written` is the buffer of the last container, whose memory is used again.
    pub(crate) fn begin(&mut self, number: u32, mut written: Vec<u8>) {
        // `finish` took the memory of one of the two buffers. That buffer gets the memory of `written`.
        let unused = if self.raw.capacity() == 0 {
            &mut self.raw
        } else {
            &mut self.packed
        };
        std::mem::swap(unused, &mut written);
        self.raw.clear();
        self.packed.clear();
        self.slots_by_id.clear();
        self.raw_offsets.clear();
        self.blocks.clear();
        self.number = number;
        (self.stored_bytes, self.listed_bytes) = (0, 0);
        (self.closed_bytes, self.closed_chunks) = (0, 0);
    }
}

/// Returns the target size of a block: 64 KiB, but at most an eighth of the container, and at least 1/32 of a large
/// container, because the number of blocks is limited. A block that consists of one longer chunk may be longer.
fn block_bytes(layout: Layout) -> usize {
    let container = layout.container_bytes();
    BLOCK_BYTES.max(container / 32).min(container / 8)
}

/// The usual target size of a block. A larger block would compress better. But to load a single chunk, its
/// whole block must be read and decompressed.
const BLOCK_BYTES: usize = 64 << 10;

/// The limit of `Packer::consecutive_failures`: at most 2^5 - 1 = 31 blocks (about 2 MiB) are stored
/// uncompressed before compression is tried again.
const SKIP_LOG2_MAX: u32 = 5;
