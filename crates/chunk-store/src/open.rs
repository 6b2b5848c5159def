//! The container that fills, in memory until it is written whole.
//!
//! Its chunks lie there as they are, to be read again; if the store compresses, neighbours are compressed as soon as there are
//! enough of them, for only then is it known how much more fits. A chunk is taken as long as it fits even if nothing
//! becomes of it and of those that wait with it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use edgeward_dedup::codec::{Codec as _, Method};
use edgeward_dedup::id::ChunkId;
use edgeward_dedup::store::Entry;

use crate::codec::Compressors;
use crate::format::{Block, Layout, Trailer};

/// The container that fills.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) number: u32,
    pub(crate) entries: Vec<Entry>,
    pub(crate) names: Names,
    /// Chunks as they are.
    raw: Vec<u8>,
    /// As they will lie in the container, up to the last block that is closed; empty while that is as they are.
    packed: Vec<u8>,
    blocks: Vec<Block>,
    stored_bytes: usize,
    /// Of `raw`, and of `entries`: what is in blocks.
    closed_bytes: usize,
    closed_chunks: usize,
    layout: Layout,
}

/// Slots by names of chunks, a thousand at most.
type Names = HashMap<ChunkId, u16, BuildHasherDefault<NameHasher>>;

/// Names are hashes already, under a key. Who has the key and makes names that fall together costs us a look at each of a thousand.
#[derive(Debug, Default)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        let first = bytes.first_chunk().copied().map_or(0, u64::from_le_bytes);
        self.0 = self.0.rotate_left(32) ^ first;
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Makes blocks.
#[derive(Debug)]
pub(crate) struct Packer {
    method: Method,
    codec: Compressors,
    /// Blocks to leave as they are: after each of which nothing became twice as many, since what does not compress comes in
    /// large bodies.
    skip: u32,
    futile: u32,
}

impl Packer {
    pub(crate) fn new(method: Method) -> Self {
        Self {
            method,
            codec: Compressors::new(),
            skip: 0,
            futile: 0,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.method == Method::None
    }

    /// Appends a block's bytes, compressed; whether that was worth it, and otherwise nothing is appended.
    fn pack(&mut self, raw: &[u8], out: &mut Vec<u8>) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let start = out.len();
        let shorter = self.codec.compress(self.method, &[], raw, out);
        // Less than an eighth is not worth decompressing it each time.
        if shorter && out.len() - start <= raw.len() - raw.len() / 8 {
            self.futile = 0;
            return true;
        }
        out.truncate(start);
        self.futile = (self.futile + 1).min(SKIP_LOG2_MAX);
        self.skip = (1 << self.futile) - 1;
        false
    }
}

impl Open {
    pub(crate) fn new(number: u32, layout: Layout) -> Self {
        Self {
            number,
            entries: Vec::new(),
            names: Names::default(),
            raw: Vec::with_capacity(layout.container_bytes() + layout.trailer_bytes()),
            packed: Vec::new(),
            blocks: Vec::new(),
            stored_bytes: 0,
            closed_bytes: 0,
            closed_chunks: 0,
            layout,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes of its chunks.
    pub(crate) fn raw_bytes(&self) -> usize {
        self.raw.len()
    }

    /// Bytes it takes by now, as far as that is known.
    pub(crate) fn stored_bytes(&self) -> usize {
        self.stored_bytes + self.waiting()
    }

    fn waiting(&self) -> usize {
        self.raw.len() - self.closed_bytes
    }

    /// Chunks from `slot` on, so many bytes.
    pub(crate) fn chunks(&self, slot: usize, bytes: usize) -> &[u8] {
        let before = self.entries[..slot].iter();
        let start: usize = before.map(|entry| entry.length as usize).sum();
        &self.raw[start..start + bytes]
    }

    /// Whether there is room for a chunk of so many bytes. Closes a block if there is none otherwise.
    pub(crate) fn make_room(&mut self, bytes: usize, packer: &mut Packer) -> bool {
        let container = self.layout.container_bytes();
        if packer.is_idle() {
            return self.entries.len() < self.layout.chunks_max()
                && self.raw.len() + bytes <= container;
        }
        let fits = |open: &Self| open.stored_bytes() + bytes <= container;
        let of_block = self.waiting() + bytes;
        if self.waiting() > 0 && (of_block > block_bytes(self.layout) || !fits(self)) {
            self.close_block(packer);
        }
        // A block that waits has its place: it was begun when there was one.
        let has_block = self.waiting() > 0 || self.blocks.len() < self.layout.blocks_max();
        fits(self)
            && has_block
            && self.entries.len() < self.layout.chunks_max()
            && self.raw.len() + bytes <= self.layout.raw_bytes_max()
    }

    /// Takes a chunk for which there is room; its slot.
    pub(crate) fn push(&mut self, id: ChunkId, chunk: &[u8]) -> u16 {
        let slot = u16::try_from(self.entries.len()).expect("16 MiB of chunks of a KiB");
        let length = u32::try_from(chunk.len()).expect("chunks fit a container");
        self.entries.push(Entry { id, length });
        self.raw.extend_from_slice(chunk);
        self.names.insert(id, slot);
        slot
    }

    fn close_block(&mut self, packer: &mut Packer) {
        let (closed, raw) = self.raw.split_at(self.closed_bytes);
        let before = self.packed.len();
        let (method, stored) = if packer.pack(raw, &mut self.packed) {
            let stored = self.packed.len() - before;
            if before == 0 {
                // The first that is not as it was.
                self.packed.splice(..0, closed.iter().copied());
            }
            (packer.method, stored)
        } else {
            if before > 0 {
                self.packed.extend_from_slice(raw);
            }
            (Method::None, raw.len())
        };
        let chunks = self.entries.len() - self.closed_chunks;
        let block = Block {
            chunks: u16::try_from(chunks).expect("a slot is one"),
            method,
            stored: u32::try_from(stored).expect("within a container"),
        };
        // Neighbours that lie as they are need no border.
        match self.blocks.last_mut() {
            Some(last) if method == Method::None && last.method == Method::None => {
                last.chunks += block.chunks;
                last.stored += block.stored;
            }
            _ => self.blocks.push(block),
        }
        self.stored_bytes += stored;
        self.closed_bytes = self.raw.len();
        self.closed_chunks = self.entries.len();
    }

    /// The container as it will lie on the device, without its trailer, and what that says. [`begin`](Self::begin) comes next.
    pub(crate) fn finish(&mut self, packer: &mut Packer) -> (Vec<u8>, Trailer) {
        if !packer.is_idle() && self.waiting() > 0 {
            self.close_block(packer);
        }
        // What lies as it is can be read chunk by chunk.
        let (bytes, blocks) = if self.packed.is_empty() {
            (&mut self.raw, Vec::new())
        } else {
            (&mut self.packed, std::mem::take(&mut self.blocks))
        };
        bytes.resize(self.layout.container_bytes(), 0);
        let trailer = Trailer {
            number: self.number,
            entries: std::mem::take(&mut self.entries),
            blocks,
        };
        (std::mem::take(bytes), trailer)
    }

    /// The next one, in the memory of the last: `written` was its bytes.
    pub(crate) fn begin(&mut self, number: u32, mut written: Vec<u8>) {
        let free = if self.raw.capacity() == 0 {
            &mut self.raw
        } else {
            &mut self.packed
        };
        std::mem::swap(free, &mut written);
        self.raw.clear();
        self.packed.clear();
        self.names.clear();
        self.blocks.clear();
        self.number = number;
        (self.stored_bytes, self.closed_bytes, self.closed_chunks) = (0, 0, 0);
    }
}

/// Bytes of chunks that are compressed together, if they are not one that is longer: 64 KiB, but eight in the smallest containers at
/// least, and in large ones no more than may be.
fn block_bytes(layout: Layout) -> usize {
    let container = layout.container_bytes();
    BLOCK_BYTES.max(container / 32).min(container / 8)
}

/// A single chunk that is wanted costs a block.
const BLOCK_BYTES: usize = 64 << 10;

/// At most 31 blocks are not tried: 2 MiB.
const SKIP_LOG2_MAX: u32 = 5;
