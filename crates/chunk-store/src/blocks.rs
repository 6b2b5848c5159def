//! Chunks out of a container on the device: one read, and blocks decompressed.
//!
//! A run of chunks lies in blocks one after the other, so it is one read, whether it is compressed or not. Chunks that are asked for
//! one by one come from the same block again and again: the last few blocks are kept.

use std::collections::VecDeque;
use std::ops::Range;

use edgeward_dedup::codec::{Codec as _, Method};
use edgeward_dedup::store::Entry;

use crate::codec::Compressors;
use crate::format::{Block, raw_bytes};

/// Of a block: what is wanted of it, and where all of it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) method: Method,
    /// Which of the container's chunks it has.
    pub(crate) chunks: Range<usize>,
    /// All of it, in the container.
    pub(crate) stored: Range<usize>,
    /// All of it, decompressed.
    pub(crate) raw_bytes: usize,
    /// What is wanted, of the decompressed.
    pub(crate) wanted: Range<usize>,
}

impl Part {
    /// What has to be read for what is wanted.
    pub(crate) fn to_read(&self) -> Range<usize> {
        match self.method {
            Method::None => {
                self.stored.start + self.wanted.start..self.stored.start + self.wanted.end
            }
            Method::Lz4 | Method::Zstd => self.stored.clone(),
        }
    }
}

/// The parts of a container's blocks in which the chunks in `slots` lie, in their order; none if there is only the name of one of them. A
/// container without blocks has its chunks as they are.
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
            usize::try_from(raw_bytes(&entries[chunks])).expect("within a container")
        };
        let first = slots.start.max(chunks.start);
        let start = bytes(chunks.start..first);
        let wanted = start..start + bytes(first..slots.end.min(chunks.end));
        parts.push(Part {
            method: block.method?,
            raw_bytes: bytes(chunks.clone()),
            chunks,
            stored,
            wanted,
        });
    }
    Some(parts)
}

/// Decompresses, and keeps what it decompressed last.
#[derive(Debug)]
pub(crate) struct Unpacker {
    codec: Compressors,
    /// The last one is the youngest.
    kept: VecDeque<Kept>,
    /// Taken from the oldest.
    spare: Vec<u8>,
}

#[derive(Debug)]
struct Kept {
    container: u32,
    first: usize,
    bytes: Vec<u8>,
}

/// What lies there is no such block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Harmed;

impl Unpacker {
    pub(crate) fn new() -> Self {
        Self {
            codec: Compressors::new(),
            kept: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// What is wanted of a block, if it is one of the last.
    pub(crate) fn again(&self, container: u32, part: &Part, out: &mut [u8]) -> bool {
        let known = |kept: &Kept| kept.container == container && kept.first == part.chunks.start;
        // The youngest is nearly always the one.
        let kept = self.kept.iter().rev().find(|kept| known(kept));
        let bytes = kept.and_then(|kept| kept.bytes.get(part.wanted.clone()));
        bytes.inspect(|bytes| out.copy_from_slice(bytes)).is_some()
    }

    /// What is wanted of a block of which `read` are the bytes.
    pub(crate) fn unpack(
        &mut self,
        container: u32,
        part: &Part,
        read: &[u8],
        out: &mut [u8],
    ) -> Result<(), Harmed> {
        if part.method == Method::None {
            out.copy_from_slice(read);
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.clear();
        let unpacked = self
            .codec
            .decompress(part.method, &[], read, part.raw_bytes, &mut bytes);
        let wanted = bytes.get(part.wanted.clone()).filter(|_| unpacked.is_ok());
        let wanted = wanted.ok_or(Harmed)?;
        out.copy_from_slice(wanted);
        if part.wanted == (0..part.raw_bytes) {
            self.spare = bytes;
            return Ok(());
        }
        let first = part.chunks.start;
        self.kept.push_back(Kept {
            container,
            first,
            bytes,
        });
        if self.kept.len() > KEPT_MAX {
            self.spare = self
                .kept
                .pop_front()
                .map_or_else(Vec::new, |kept| kept.bytes);
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.kept.clear();
    }
}

/// Blocks that are kept: a MiB, if none is a single chunk that is longer.
const KEPT_MAX: usize = 16;
