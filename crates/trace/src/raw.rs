//! The layers below the readers, for programs that read all fields of a log.
//!
//! A [`Decoder`] decompresses, an [`Encoder`] compresses, and a [`Buffer`] holds the bytes that are being
//! parsed. [`AccessLogLine`] and the functions parse fields, numbers and times without copying them.

pub use crate::compression::{Decoder, Encoder};
pub use crate::number::{access_log_time, iso8601, rfc3339, whole};
pub use crate::read::{AccessLogLine, Buffer, printable_excerpt, split_absolute};
