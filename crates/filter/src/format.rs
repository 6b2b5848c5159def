//! The file: a header of 128 bytes that says everything, then the filter's own bytes.
//!
//! Byte by byte in `docs/reference/filter-format.md`. Everything is little-endian. What is read from outside
//! is believed only after it was held against the size of what is there: no number in a header makes
//! anybody allocate.

mod header;
mod open;

pub(crate) use header::{HEADER_BYTES, Header, Kind, SHARD_BYTES, ShardEntry};
pub use open::OpenError;
pub(crate) use open::{Layout, open};
