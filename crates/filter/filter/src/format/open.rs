//! Opens a filter: validates its header and directory, and returns the layout of its payload. The directory is the
//! list of shards at the start of a static filter's payload; an updatable filter has none.

use edgeward_types::xxh3::xxh3_64;

use super::header::{HEADER_BYTES, Header, HeaderError, Kind, SHARD_BYTES, ShardEntry, VERSION};
use crate::bloom::{BLOCK_BYTES, Lanes};
use crate::fuse::{Shard, Shards};

/// The layout of the payload, checked against the size of the file.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    /// A static filter.
    Fuse {
        /// The shards. Each shard lies within the file.
        shards: Shards,
    },
    /// An updatable filter.
    Bloom {
        /// The number of blocks.
        blocks: u32,
        /// The vector instructions that the lookups use.
        lanes: Lanes,
    },
}

/// Validates the header and the directory of a file. If `verify` is true, also verifies the checksum of the payload.
pub(crate) fn open(bytes: &[u8], verify: bool) -> Result<(Header, Layout), OpenError> {
    let found = bytes.len() as u64;
    let Some((head, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        let whole = HEADER_BYTES as u64;
        // Without the magic bytes a short file is another kind of file, not a truncated filter.
        return Err(match Header::from_bytes(&padded(bytes)) {
            Err(HeaderError::NotAFilter) => OpenError::NotAFilter,
            _ => OpenError::Truncated { found, whole },
        });
    };
    let header = Header::from_bytes(head)?;
    let whole = (HEADER_BYTES as u64).saturating_add(header.payload_bytes);
    if found < whole {
        return Err(OpenError::Truncated { found, whole });
    }
    if found > whole {
        return Err(OpenError::TrailingBytes { found, whole });
    }
    if verify {
        let computed = xxh3_64(payload);
        if computed != header.payload_checksum {
            return Err(OpenError::Checksum {
                part: "payload",
                stored: header.payload_checksum,
                computed,
            });
        }
    }
    if !(header.rate > 0.0 && header.rate < 1.0) {
        return Err(OpenError::Field { field: "rate" });
    }
    let layout = match header.kind {
        Kind::Fuse => read_shards(&header, payload)?,
        Kind::Bloom => {
            if header.payload_bytes != u64::from(header.parts) * BLOCK_BYTES as u64
                || header.parts == 0
            {
                return Err(OpenError::Field { field: "blocks" });
            }
            Layout::Bloom {
                blocks: header.parts,
                lanes: Lanes::detect(),
            }
        }
    };
    Ok((header, layout))
}

/// Reads the directory of a static filter and validates each entry.
fn read_shards(header: &Header, payload: &[u8]) -> Result<Layout, OpenError> {
    let directory_bytes = header.parts as usize * SHARD_BYTES;
    let Some((directory, _)) = payload.split_at_checked(directory_bytes) else {
        return Err(OpenError::Field { field: "shards" });
    };
    if header.parts == 0 {
        return Err(OpenError::Field { field: "shards" });
    }
    // The file contains the complete directory, so the vector has no more entries than the file has room for.
    let mut shards = Vec::with_capacity(header.parts as usize);
    let mut next = directory_bytes as u64;
    for (number, bytes) in directory.as_chunks::<SHARD_BYTES>().0.iter().enumerate() {
        let entry = ShardEntry::from_bytes(bytes);
        // The fields of an entry take 26 bytes.
        let padding = &bytes[26..];
        // The shards must have no gaps between them, so that filters with the same content have the same bytes.
        if !entry.shape.is_valid() || entry.at != next || padding.iter().any(|&byte| byte != 0) {
            return Err(OpenError::Shard { number });
        }
        next += entry.shape.bytes();
        if next > payload.len() as u64 {
            return Err(OpenError::Shard { number });
        }
        let from = HEADER_BYTES + entry.at as usize;
        shards.push(Shard::new(entry.shape, entry.seed, from));
    }
    if next != payload.len() as u64 {
        return Err(OpenError::Field {
            field: "length of the shards",
        });
    }
    Ok(Layout::Fuse {
        shards: Shards::new(shards),
    })
}

/// Returns the bytes of a file that is shorter than a header, followed by zeros.
fn padded(bytes: &[u8]) -> [u8; HEADER_BYTES] {
    let mut whole = [0; HEADER_BYTES];
    whole[..bytes.len()].copy_from_slice(bytes);
    whole
}

/// Why a file cannot be opened as a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The magic bytes are missing.
    #[error("not an edgeward id filter")]
    NotAFilter,
    /// The file was written by another version of edgeward.
    #[error("the filter has format version {found}, and this edgeward reads version {VERSION}")]
    Version {
        /// The version of the file.
        found: u16,
    },
    /// The end of the file is missing, for example after an interrupted download.
    #[error("the filter is truncated: it has {found} of {whole} bytes")]
    Truncated {
        /// The size of the file in bytes.
        found: u64,
        /// The size in bytes that the header states.
        whole: u64,
    },
    /// The file is longer than the header states.
    #[error("the filter has {found} bytes, but its header states {whole}")]
    TrailingBytes {
        /// The size of the file in bytes.
        found: u64,
        /// The size in bytes that the header states.
        whole: u64,
    },
    /// Bytes changed since the file was written.
    #[error(
        "the filter's {part} is corrupt: checksum {stored:#018x} stored, {computed:#018x} computed"
    )]
    Checksum {
        /// The part of the file: `header` or `payload`.
        part: &'static str,
        /// The stored checksum.
        stored: u64,
        /// The computed checksum.
        computed: u64,
    },
    /// A field has an impossible value although the checksum is right.
    #[error("the filter's header contradicts itself in: {field}")]
    Field {
        /// The name of the field.
        field: &'static str,
    },
    /// A shard has an impossible position or shape.
    #[error("shard {number} of the filter has an impossible shape or position")]
    Shard {
        /// The index of the shard, from 0.
        number: usize,
    },
}

impl From<HeaderError> for OpenError {
    fn from(error: HeaderError) -> Self {
        match error {
            HeaderError::NotAFilter => Self::NotAFilter,
            HeaderError::Version { found } => Self::Version { found },
            HeaderError::Checksum { stored, computed } => Self::Checksum {
                part: "header",
                stored,
                computed,
            },
            HeaderError::Field(field) => Self::Field { field },
        }
    }
}
