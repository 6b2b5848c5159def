//! The checkpoint: a file with the saved index, so that opening a store need not read the trailer of each container.
//!
//! A header is followed by the table of the index in blocks, each with a checksum
//! (`docs/explanation/chunk-store.md` has the bytes). The file is written under another name and then renamed, so a
//! crash leaves the previous file. A checkpoint covers the containers with numbers below
//! [`next`](CheckpointHeader::next). They are durable before the file gets its name. The trailers of later containers
//! are read when the store is opened.
//!
//! The index may change while it is saved. Entries of containers from `next` on are therefore in the checkpoint or
//! not. The reader ignores all entries at their positions and takes them from the trailers.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};

use edgeward_types::xxh3::xxh3_64_with_seed;
use thiserror::Error;

use crate::format::Layout;
use crate::index::{BLOCK_BUCKETS, BUCKET_BYTES, Index};
use crate::trailers::Sizes;

/// The format version of checkpoints.
pub(crate) const CHECKPOINT_VERSION: u32 = 1;

/// The size of a checkpoint's header in bytes.
pub const CHECKPOINT_HEADER_BYTES: usize = 88;

const MAGIC: [u8; 8] = *b"\x89EWI\r\n\x1a\n";
const CHECKSUM_AT: usize = CHECKPOINT_HEADER_BYTES - 8;

/// The header of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// The epoch of the store.
    pub epoch: u64,
    /// The sizes of the store's containers.
    pub layout: Layout,
    /// The number of containers that fit on the device.
    pub containers: u32,
    /// The number of the first container that the checkpoint does not cover.
    pub next: u32,
    /// The number of chunks for which the index was created.
    pub chunks: u64,
    /// The number of buckets of the index.
    pub buckets: u64,
    /// The total length of the chunks whose bytes are in the covered containers.
    pub raw_bytes: u64,
    /// The bytes that these chunks take on the device, after compression.
    pub stored_bytes: u64,
    /// The total length of the chunks that the covered containers only list.
    pub listed_bytes: u64,
    /// A random number that seeds the checksums of the blocks. A block of another checkpoint is therefore not valid.
    pub seed: u64,
}

/// Why a checkpoint is not used. The index is then recovered from the trailers of all containers.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file cannot be read.
    #[error("it cannot be read")]
    File(#[source] io::Error),
    /// The file is shorter than its header says, is not a checkpoint, or has a wrong checksum.
    #[error("it is damaged at byte {0}")]
    Damaged(u64),
    /// The checkpoint has another format version.
    #[error("its format version is {0}, and this program reads {CHECKPOINT_VERSION}")]
    Version(u32),
    /// The checkpoint belongs to another store, or the size of the store has changed.
    #[error("it belongs to another store or to another size of this store")]
    OtherStore,
    /// The checkpoint is older or newer than all containers of the store.
    #[error("the store does not have the containers that the checkpoint covers")]
    OtherContainers,
    /// The index of the checkpoint is too small or too large for the store.
    #[error("its index has space for {has} chunks, and the store needs {needs}")]
    Size {
        /// The number of chunks of the checkpoint's index.
        has: u64,
        /// The number of chunks that the store is expected to have.
        needs: u64,
    },
}

impl CheckpointHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; CHECKPOINT_HEADER_BYTES] {
        let container_bytes =
            u32::try_from(self.layout.container_bytes()).expect("a container has at most 16 MiB");
        let mut bytes = MAGIC.to_vec();
        for field in [CHECKPOINT_VERSION, container_bytes] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        for field in [self.containers, self.next] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        for field in [
            self.chunks,
            self.buckets,
            self.raw_bytes,
            self.stored_bytes,
            self.listed_bytes,
            self.seed,
        ] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let checksum = xxh3_64_with_seed(&bytes, self.seed);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.try_into().expect("the fields fill the header")
    }

    /// Decodes a header.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a header of the current version with a valid checksum.
    pub fn decode(bytes: &[u8; CHECKPOINT_HEADER_BYTES]) -> Result<Self, CheckpointError> {
        let u32_at = |at: usize| {
            let field = bytes[at..].first_chunk();
            u32::from_le_bytes(*field.expect("the field is within the header"))
        };
        let u64_at = |at: usize| {
            let field = bytes[at..].first_chunk();
            u64::from_le_bytes(*field.expect("the field is within the header"))
        };
        if bytes[..8] != MAGIC {
            return Err(CheckpointError::Damaged(0));
        }
        if u32_at(8) != CHECKPOINT_VERSION {
            return Err(CheckpointError::Version(u32_at(8)));
        }
        let seed = u64_at(72);
        if u64_at(CHECKSUM_AT) != xxh3_64_with_seed(&bytes[..CHECKSUM_AT], seed) {
            return Err(CheckpointError::Damaged(CHECKSUM_AT as u64));
        }
        Ok(Self {
            epoch: u64_at(16),
            layout: Layout::new(u32_at(12)).ok_or(CheckpointError::Damaged(12))?,
            containers: u32_at(24),
            next: u32_at(28),
            chunks: u64_at(32),
            buckets: u64_at(40),
            raw_bytes: u64_at(48),
            stored_bytes: u64_at(56),
            listed_bytes: u64_at(64),
            seed,
        })
    }

    pub(crate) fn sizes(&self) -> Sizes {
        Sizes {
            raw: self.raw_bytes,
            stored: self.stored_bytes,
            listed: self.listed_bytes,
        }
    }

    /// Returns the checksum of the block that begins with the bucket `start`.
    fn checksum(&self, start: u64, block: &[u8]) -> u64 {
        xxh3_64_with_seed(block, self.seed.wrapping_add(start))
    }

    /// Reads the blocks that follow the header, and passes each valid block with the number of its first bucket to
    /// `load`. If `load` returns false, reads no further block.
    ///
    /// # Errors
    ///
    /// Fails if a block is incomplete or has a wrong checksum. Earlier blocks were passed to `load`.
    pub fn read_blocks(
        &self,
        input: &mut impl Read,
        mut load: impl FnMut(u64, &[u8]) -> bool,
    ) -> Result<(), CheckpointError> {
        let mut bytes = Vec::new();
        let mut start = 0;
        while start < self.buckets {
            let buckets = BLOCK_BUCKETS.min(self.buckets - start) as usize;
            bytes.resize(buckets * BUCKET_BYTES + 8, 0);
            let at = CHECKPOINT_HEADER_BYTES as u64
                + start * BUCKET_BYTES as u64
                + 8 * (start / BLOCK_BUCKETS);
            input.read_exact(&mut bytes).map_err(|error| {
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    CheckpointError::Damaged(at)
                } else {
                    CheckpointError::File(error)
                }
            })?;
            let (block, checksum) = bytes.split_at(buckets * BUCKET_BYTES);
            if checksum != self.checksum(start, block).to_le_bytes() {
                return Err(CheckpointError::Damaged(at));
            }
            if !load(start, block) {
                return Ok(());
            }
            start += BLOCK_BUCKETS;
        }
        Ok(())
    }
}

/// Opens the checkpoint at a path and reads its header. Returns `None` if the file does not exist.
pub(crate) fn open(
    path: &Path,
) -> Result<Option<(CheckpointHeader, BufReader<File>)>, CheckpointError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CheckpointError::File(error)),
    };
    let mut input = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut header = [0; CHECKPOINT_HEADER_BYTES];
    input
        .read_exact(&mut header)
        .map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => CheckpointError::Damaged(0),
            _ => CheckpointError::File(error),
        })?;
    Ok(Some((CheckpointHeader::decode(&header)?, input)))
}

/// Writes a checkpoint and makes it durable. `save_block` appends the block that begins with this bucket to the buffer,
/// and returns false if the save is cancelled; the previous file then stays.
pub(crate) fn write(
    path: &Path,
    header: &CheckpointHeader,
    mut save_block: impl FnMut(u64, &mut Vec<u8>) -> bool,
) -> io::Result<bool> {
    let unfinished = unfinished_path(path);
    let result = (|| {
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, File::create(&unfinished)?);
        out.write_all(&header.encode())?;
        let mut block = Vec::new();
        let mut start = 0;
        while start < header.buckets {
            block.clear();
            if !save_block(start, &mut block) {
                return Ok(false);
            }
            let checksum = header.checksum(start, &block);
            out.write_all(&block)?;
            out.write_all(&checksum.to_le_bytes())?;
            start += BLOCK_BUCKETS;
        }
        out.into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .sync_all()?;
        fs::rename(&unfinished, path)?;
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
        Ok(true)
    })();
    if !matches!(result, Ok(true)) {
        _ = fs::remove_file(&unfinished);
    }
    result
}

/// Returns the name of a checkpoint until it is complete.
fn unfinished_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Returns the number of bytes of a checkpoint whose index has this many buckets.
pub fn checkpoint_bytes(buckets: u64) -> u64 {
    CHECKPOINT_HEADER_BYTES as u64 + Index::bytes_for(buckets) + 8 * buckets.div_ceil(BLOCK_BUCKETS)
}

/// The size of one read or write of the file in bytes.
const BUFFER_BYTES: usize = 1 << 20;
