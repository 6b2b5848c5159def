//! Reads chunks of a container from the device, and decompresses their blocks.
//!
//! Neighbouring chunks are in contiguous blocks, so they are loaded with one read, compressed or not. Chunks that are
//! loaded one by one are often in the same block, so the last few decompressed blocks are cached.

use std::collections::VecDeque;
use std::ops::Range;

use edgeward_dedup::codec::{Codec as _, Method};
use edgeward_dedup::store::Entry;

use crate::codec::Compressors;
use crate::format::{Block, raw_bytes};

/// The part of a block that a query needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) method: Method,
    /// The chunks of the block, as indexes in the container's list of chunks.
    pub(crate) chunks: Range<usize>,
    /// The byte range of the block in the container.
    pub(crate) stored: Range<usize>,
    /// The length of the decompressed block.
    pub(crate) raw_bytes: usize,
    /// The requested range of the decompressed block.
    pub(crate) requested: Range<usize>,
}

impl Part {
    /// Returns the range of the container that must be read: the requested bytes if the block is uncompressed,
    /// otherwise the whole block.
    pub(crate) fn read_range(&self) -> Range<usize> {
        match self.method {
            Method::None => {
                self.stored.start + self.requested.start..self.stored.start + self.requested.end
            }
            Method::Lz4 | Method::Zstd => self.stored.clone(),
        }
    }
}

/// Returns the parts of blocks that contain the chunks in `slots` (indexes in `entries`), in order. Returns `None` if
/// the bytes of one of these chunks are not stored. If `blocks` is empty, the chunks are stored uncompressed.
pub(crate) fn parts(entries: &[Entry], blocks: &[Block], slots: Range<usize>) -> Option<Vec<Part>> {
    let all = [Block {
        chunks: u16::try_from(entries.len()).unwrap_or(u16::MAX),
        method: Some(Method::None),
        stored: u32::try_from(raw_bytes(entries)).unwrap_or(u32::MAX),
    }];
    let blocks = if blocks.is_empty() { &all[..] } else { blocks };
    let (mut parts, mut chunk, mut at) = (Vec::new(), 0, 0);
    for block in blocks {
        let chunks = chunk..chunk + usize::from(block.chunks);
        let stored = at..at + block.stored as usize;
        (chunk, at) = (chunks.end, stored.end);
        if chunks.end <= slots.start {
            continue;
        }
        if chunks.start >= slots.end {
            break;
        }
        let bytes = |chunks: Range<usize>| {
            usize::try_from(raw_bytes(&entries[chunks]))
                .expect("the length is less than a container")
        };
        let first = slots.start.max(chunks.start);
        let start = bytes(chunks.start..first);
        let requested = start..start + bytes(first..slots.end.min(chunks.end));
        parts.push(Part {
            method: block.method?,
            raw_bytes: bytes(chunks.clone()),
            chunks,
            stored,
            requested,
        });
    }
    Some(parts)
}

/// Decompresses blocks, and caches the last decompressed blocks.
#[derive(Debug)]
pub(crate) struct Unpacker {
    codec: Compressors,
    /// The cached blocks, the newest last.
    cached: VecDeque<CachedBlock>,
    /// A buffer whose memory is used again for the next block.
    spare: Vec<u8>,
}

/// A decompressed block.
#[derive(Debug)]
struct CachedBlock {
    /// The number of the container.
    container: u32,
    /// The index of the block's first chunk in the container's list of chunks.
    first: usize,
    bytes: Vec<u8>,
}

/// The error if bytes cannot be decompressed to the expected block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CorruptBlock;

impl Unpacker {
    pub(crate) fn new() -> Self {
        Self {
            codec: Compressors::new(),
            cached: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Copies the requested range of a block if the block is cached. Returns true if the range was copied.
    pub(crate) fn copy_cached(&self, container: u32, part: &Part, out: &mut [u8]) -> bool {
        let is_block =
            |block: &CachedBlock| block.container == container && block.first == part.chunks.start;
        // The search starts at the newest block, because it nearly always matches.
        let block = self.cached.iter().rev().find(|block| is_block(block));
        let bytes = block.and_then(|block| block.bytes.get(part.requested.clone()));
        bytes.inspect(|bytes| out.copy_from_slice(bytes)).is_some()
    }

    /// Copies the requested range of a block to `out`. `read` are the bytes of [`Part::read_range`]. A compressed
    /// block is decompressed first, and is cached unless all its bytes were requested.
    pub(crate) fn unpack(
        &mut self,
        container: u32,
        part: &Part,
        read: &[u8],
        out: &mut [u8],
    ) -> Result<(), CorruptBlock> {
        if part.method == Method::None {
            out.copy_from_slice(read);
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        // `&[]`: blocks are compressed without a dictionary.
        let unpacked = self
            .codec
            .decompress(part.method, &[], read, part.raw_bytes, &mut bytes);
        let requested = bytes
            .get(part.requested.clone())
            .filter(|_| unpacked.is_ok());
        let requested = requested.ok_or(CorruptBlock)?;
        out.copy_from_slice(requested);
        if part.requested == (0..part.raw_bytes) {
            self.spare = bytes;
            return Ok(());
        }
        let first = part.chunks.start;
        self.cached.push_back(CachedBlock {
            container,
            first,
            bytes,
        });
        if self.cached.len() > CACHED_BLOCKS_MAX {
            self.spare = self
                .cached
                .pop_front()
                .map_or_else(Vec::new, |block| block.bytes);
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.cached.clear();
    }
}

/// The highest number of cached blocks. 16 blocks of 64 KiB take 1 MiB; a block that is one long chunk takes more.
const CACHED_BLOCKS_MAX: usize = 16;
