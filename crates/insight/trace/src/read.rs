//! Reads a trace of unknown format into a stream of records.
//!
//! [`open`] recognises the compression and the format by the first bytes and returns a [`Reader`]. Bytes pass
//! through one large buffer. Lines and binary records are parsed in place, and records are returned in batches,
//! so most of the time is spent on parsing digits.

mod access_log;
mod buffer;
mod csv;
mod detect;
mod error;
mod json_line;
mod json_log;
mod lcs;
mod line_prefix;
mod lines;
mod options;
mod oracle;
mod reader;
mod text;

pub use access_log::{AccessLogLine, is_host, request_line, split_absolute};
pub use buffer::Buffer;
pub use csv::{Column, Columns, ParseColumnsError};
pub use error::{Position, Problem, ReadError, printable_excerpt};
pub use json_line::{JsonLine, JsonValue};
pub use line_prefix::without_line_prefix;
pub use options::{AccessLogRules, Limits, OnError, QueryRule, ReadOptions, TimeUnit};
pub use reader::{Batch, Reader, Skipped, open};
