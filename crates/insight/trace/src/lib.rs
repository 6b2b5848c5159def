//! Request traces: a reader for each format, writers, and a seeded generator of CDN-like traffic.
//!
//! A trace is a stream of [`Record`]s: time, object and size. [`open`] takes bytes from `impl Read`, recognises their
//! compression and format by content, and returns a [`Reader`]. [`Writer`] writes records to `impl Write`, and
//! [`Summary`] describes a trace. [`generate`] generates traffic from a seed if no trace is available. The crate opens
//! no files.
//!
//! [`raw`] exports parts of the readers for programs that read more fields of a log. `key_map` is a fast hash map for
//! keys, `number` parses numbers and dates, and `write_log` writes access logs.
//!
//! `docs/reference/trace-formats.md` describes the formats byte for byte.
#![forbid(unsafe_code)]

mod compression;
mod format;
pub mod generate;
mod key_map;
mod number;
pub mod raw;
mod read;
mod record;
mod summary;
mod write;
mod write_log;

pub use compression::Compression;
pub use format::{Format, ParseFormatError};
pub use read::{
    AccessLogRules, Batch, Column, Columns, Limits, OnError, ParseColumnsError, Position, Problem,
    QueryRule, ReadError, ReadOptions, Reader, Skipped, TimeUnit, open,
};
pub use record::{NO_TTL, Record, hash_key};
pub use summary::{SizeQuantiles, Summary, TraceSummary};
pub use write::{OutputFormat, WriteError, WriteOptions, Writer};
