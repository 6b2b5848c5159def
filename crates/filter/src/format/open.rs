//! From bytes that somebody sent to a layout that can be trusted.

use xxhash_rust::xxh3::xxh3_64;

use super::header::{HEADER_BYTES, Header, HeaderError, Kind, SHARD_BYTES, ShardEntry, VERSION};
use crate::bloom::{BLOCK_BYTES, Lanes};
use crate::fuse::{Shard, Shards};

/// Where things are, checked against the bytes that are there.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    /// All bytes of the shards exist.
    Fuse {
        shards: Shards,
    },
    Bloom {
        blocks: u32,
        lanes: Lanes,
    },
}

/// Reads header and directory; with `verify` also holds the payload against its checksum.
pub(crate) fn open(bytes: &[u8], verify: bool) -> Result<(Header, Layout), OpenError> {
    let found = bytes.len() as u64;
    let Some((head, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        let whole = HEADER_BYTES as u64;
        // A short file that does not even begin like one is something else.
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
        Kind::Fuse => shards(&header, payload)?,
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

fn shards(header: &Header, payload: &[u8]) -> Result<Layout, OpenError> {
    let directory_bytes = header.parts as usize * SHARD_BYTES;
    let Some((directory, _)) = payload.split_at_checked(directory_bytes) else {
        return Err(OpenError::Field { field: "shards" });
    };
    if header.parts == 0 {
        return Err(OpenError::Field { field: "shards" });
    }
    // The directory exists in full, so a vector of as many shards is no more than the file is.
    let mut shards = Vec::with_capacity(header.parts as usize);
    let mut next = directory_bytes as u64;
    for (number, bytes) in directory.as_chunks::<SHARD_BYTES>().0.iter().enumerate() {
        let entry = ShardEntry::from_bytes(bytes);
        let spare = &bytes[26..];
        // One after the other without gaps: no two filters with the same content differ.
        if !entry.shape.is_sound() || entry.at != next || spare.iter().any(|&byte| byte != 0) {
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

fn padded(bytes: &[u8]) -> [u8; HEADER_BYTES] {
    let mut whole = [0; HEADER_BYTES];
    whole[..bytes.len()].copy_from_slice(bytes);
    whole
}

/// Why bytes are no filter to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Something else altogether.
    #[error("this is no edgeward id filter")]
    NotAFilter,
    /// Written by a later edgeward.
    #[error("the filter has format version {found}, and this edgeward reads version {VERSION}")]
    Version {
        /// The version it has.
        found: u16,
    },
    /// The rest is missing, such as after a broken download.
    #[error("the filter is cut off: {found} of {whole} bytes are here")]
    Truncated {
        /// Bytes that are here.
        found: u64,
        /// Bytes its header promises.
        whole: u64,
    },
    /// There is more than the header says.
    #[error("the filter has {found} bytes where its header says {whole}")]
    TrailingBytes {
        /// Bytes that are here.
        found: u64,
        /// Bytes its header promises.
        whole: u64,
    },
    /// Bits changed on the way.
    #[error(
        "the filter's {part} is corrupt: checksum {stored:#018x} stored, {computed:#018x} computed"
    )]
    Checksum {
        /// Which part.
        part: &'static str,
        /// What the file says.
        stored: u64,
        /// What its bytes give.
        computed: u64,
    },
    /// A field that no filter of ours has, although its checksum is right.
    #[error("the filter's header contradicts itself in: {field}")]
    Field {
        /// Which.
        field: &'static str,
    },
    /// A shard that does not lie where it must or has no possible shape.
    #[error("shard {number} of the filter has no possible shape or place")]
    Shard {
        /// Counted from 0.
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
