//! The parts of this crate's trace readers, for programs that read more fields of a log than a trace has.
//!
//! A [`Decoder`] decompresses, an [`Encoder`] compresses, and a [`Buffer`] holds the bytes that are being
//! parsed. [`AccessLogLine`] has the fields of a line. The functions parse numbers, times and URLs, and
//! [`printable_excerpt`] quotes a line in a message.

pub use crate::compression::{Decoder, Encoder};
pub use crate::number::{access_log_time, iso8601, key, rfc3339, whole};
pub use crate::read::{AccessLogLine, Buffer, printable_excerpt, split_absolute};
