//! Request traces: one reader a format, writers, and a seeded generator of CDN-like traffic.
//!
//! Whatever the file looked like, what comes out is a stream of [`Record`]s: when, which
//! object, how large. [`open`] recognises compression and format by content and hands back
//! a [`Reader`]; [`Writer`] goes the other way; [`Summary`] says what a trace holds; and
//! [`generate`] makes traffic out of a seed where no trace is to be had.
//!
//! Nothing here opens a file: readers take `impl Read`, writers `impl Write`.
//! The formats, byte for byte, are described in `docs/reference/trace-formats.md`.
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
    AccessLogRules, Column, Columns, Limits, OnError, ParseColumnsError, Place, Problem, QueryRule,
    ReadError, ReadOptions, Reader, Skipped, TimeUnit, open,
};
pub use record::{Record, hash_key};
pub use summary::{SizeQuantiles, Summary, TraceSummary};
pub use write::{OutputFormat, WriteError, WriteOptions, Writer};
