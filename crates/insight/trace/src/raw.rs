//! The parts of this crate's trace readers, for programs that read more fields of a log than a trace has.
//!
//! A [`Decoder`] decompresses, an [`Encoder`] compresses, and a [`Buffer`] holds the bytes that are being
//! parsed. [`AccessLogLine`] has the fields of a line, and [`JsonLine`] parses a JSON object. The functions parse
//! numbers, times and URLs, and [`printable_excerpt`] quotes a line in a message.

pub use crate::compression::{Decoder, Encoder};
pub use crate::number::{
    access_log_time, internet_date, iso8601, key, optional_whole, rfc3339, status, whole,
};
pub use crate::read::{
    AccessLogLine, Buffer, JsonLine, JsonValue, is_host, printable_excerpt, request_line,
    split_absolute, without_line_prefix,
};
