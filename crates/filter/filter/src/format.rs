//! The filter file: a header of 128 bytes, then the payload.
//!
//! `docs/reference/filter-format.md` lists every byte. All numbers are little-endian. A length in a header is
//! used only after it was compared with the size of the file, so a header cannot cause a large allocation.

mod header;
mod open;

pub(crate) use header::{HEADER_BYTES, Header, Kind, SHARD_BYTES, ShardEntry};
pub use open::OpenError;
pub(crate) use open::{Layout, open};
