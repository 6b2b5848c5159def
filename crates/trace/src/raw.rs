//! The layers beneath the readers, for whoever reads logs as logs rather than as traces.
//!
//! A [`Decoder`] takes the compression off (an [`Encoder`] puts it on), a [`Buffer`] holds what is being looked through, and
//! [`AccessLogLine`] and the functions find fields, numbers and times where they lie.

pub use crate::compression::{Decoder, Encoder};
pub use crate::number::{access_log_time, iso8601, rfc3339, whole};
pub use crate::read::{AccessLogLine, Buffer, shown, split_absolute};
