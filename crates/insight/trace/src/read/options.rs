//! Options of a reader.

use std::str::FromStr;

use edgeward_types::Timestamp;

use crate::Format;

use super::csv::Columns;

/// Options for one input.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// The name of the input in errors: a file name, or `stdin`.
    pub label: String,
    /// The format, or `None` to recognise it by content.
    pub format: Option<Format>,
    /// The unit of numeric times in traces of the formats text, CSV and LRB.
    pub time_unit: TimeUnit,
    /// The CSV columns of time, key and size.
    pub columns: Columns,
    /// The lines of an access log that count as requests.
    pub access_log: AccessLogRules,
    /// The reaction to a malformed line.
    pub on_error: OnError,
    /// Bounds of memory.
    pub limits: Limits,
}

impl ReadOptions {
    /// Returns options that recognise the format by content. `label` is the name of the input in errors.
    pub fn named(label: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            ..Self::default()
        }
    }
}

/// The unit of a numeric time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds with an optional fraction, as in every published trace.
    #[default]
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl TimeUnit {
    /// Returns the time of a whole number: `count` units after time 0. `None` if the milliseconds exceed 64 bits.
    #[inline]
    pub(crate) const fn whole(self, count: u64) -> Option<Timestamp> {
        let millis = match self {
            Self::Seconds => match count.checked_mul(1000) {
                Some(millis) => millis,
                None => return None,
            },
            Self::Millis => count,
            Self::Micros => count / 1_000,
            Self::Nanos => count / 1_000_000,
        };
        Some(Timestamp::from_millis(millis))
    }
}

impl FromStr for TimeUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "s" => Ok(Self::Seconds),
            "ms" => Ok(Self::Millis),
            "us" => Ok(Self::Micros),
            "ns" => Ok(Self::Nanos),
            _ => Err(format!(
                "`{text}` is not a unit of time; use s, ms, us or ns"
            )),
        }
    }
}

/// The reaction to a malformed line.
///
/// A truncated or corrupt compressed stream and a device error always end the reading, after all
/// records before the error were returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Return an error, because figures of a part of a trace can be mistaken for figures of the whole.
    #[default]
    Fail,
    /// Skip and count the line. The errors of the first five skipped lines are kept as examples.
    Skip,
}

/// Bounds of the memory that an input can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum length of a line in bytes, by default 1 MiB. URLs in access logs rarely exceed 8 KiB. A file with
    /// a longer line than 1 MiB is probably not a file of lines.
    pub line_bytes_max: usize,
    /// The maximum window of a zstd frame, as a power of two. 27 (128 MiB) is the default of `zstd -d`.
    pub zstd_window_log_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line_bytes_max: 1 << 20,
            zstd_window_log_max: 27,
        }
    }
}

/// Rules for access logs: the lines that count as requests, and their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogRules {
    /// Methods that count as requests. By default this is GET, the method that a cache answers and the
    /// simulator models.
    pub methods: Vec<String>,
    /// Status codes that count as requests. By default this is 200, because responses with 304 and 206 do not
    /// show the object's size.
    pub statuses: Vec<u16>,
    /// States whether the query is part of the key.
    pub query: QueryRule,
}

impl Default for AccessLogRules {
    fn default() -> Self {
        Self {
            methods: vec!["GET".to_owned()],
            statuses: vec![200],
            query: QueryRule::Keep,
        }
    }
}

/// The treatment of the query (`?…`) of a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryRule {
    /// The query is part of the key (RFC 9111, section 2).
    #[default]
    Keep,
    /// The query is removed from the key.
    Cut,
}
