//! What a reader may be told about its input.

use std::str::FromStr;

use edgeward_types::Timestamp;

use crate::Format;

use super::csv::Columns;

/// How to read one input.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// What errors call the input: a file name, or `stdin`.
    pub label: String,
    /// The format, or nothing to recognise it by content.
    pub format: Option<Format>,
    /// The unit of numeric times in text, CSV and LRB.
    pub time_unit: TimeUnit,
    /// Which CSV columns hold what.
    pub columns: Columns,
    /// Which lines of an access log are requests to a cache.
    pub access_log: AccessLogRules,
    /// What a malformed line leads to.
    pub on_error: OnError,
    /// What the input may cost.
    pub limits: Limits,
}

impl ReadOptions {
    /// Recognise everything; errors speak of `label`.
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
    /// Seconds, with an optional fraction: what every published trace uses.
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
    /// The point `count` units after the origin; nothing beyond 64 bits of milliseconds.
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

/// What a malformed line leads to.
///
/// Damage below the lines (a cut or corrupt compressed stream, a device error) always ends
/// the reading, after every record before it was handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Stop at it: a figure from part of a trace should not pass for one of the whole.
    #[default]
    Fail,
    /// Leave it out, count it, and keep the first few as examples.
    Skip,
}

/// Bounds on what an input can make us hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest line. A URL in an access log rarely passes 8 KiB; 1 MiB tells a long line
    /// from a file that has none.
    pub line_bytes_max: usize,
    /// The largest window a zstd frame may ask for, as a power of two. 27 (128 MiB) is what
    /// `zstd -d` allows unless told otherwise.
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

/// Which lines of an access log count as requests, and what their key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogRules {
    /// Methods that count. GET alone: what a cache answers and a trace simulator models.
    pub methods: Vec<String>,
    /// Status codes that count. 200 alone: a 304 or 206 does not tell the object's size.
    pub statuses: Vec<u16>,
    /// Whether the query is part of the key.
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

/// What becomes of the `?…` of a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryRule {
    /// It is part of the key, as for a cache that was told nothing (RFC 9111, section 2).
    #[default]
    Keep,
    /// It is cut off.
    Cut,
}
