//! Reading: from bytes of unknown make to a stream of records.
//!
//! [`open`] takes the compression off, looks at the beginning, settles on a format and gives
//! a [`Reader`]. Bytes pass through one large buffer; a line or a binary record is parsed
//! where it lies, and records leave in batches, so the cost of a record is its digits.

mod access_log;
mod buffer;
mod csv;
mod detect;
mod error;
mod lines;
mod options;
mod oracle;
mod reader;
mod text;

pub use access_log::{AccessLogLine, split_absolute};
pub use buffer::Buffer;
pub use csv::{Column, Columns, ParseColumnsError};
pub use error::{Place, Problem, ReadError, shown};
pub use options::{AccessLogRules, Limits, OnError, QueryRule, ReadOptions, TimeUnit};
pub use reader::{Reader, Skipped, open};
