//! What of an old segment is written again.

use std::fmt;
use std::str::FromStr;

/// Which objects of the oldest segment are worth writing again.
///
/// Written `fifo`, `fifo-reinsertion`, `fifo-reinsertion:N`, `hits-per-byte`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinsertion {
    /// None: first in, first out. The least writing.
    Never,
    /// Those that were hit at least so often since they were written, in the order of the log.
    Hit {
        /// At most [`HITS_MAX`]: more is not counted.
        hits_min: u8,
    },
    /// Those that were hit, the most hits for a byte first.
    HitsPerByte,
}

/// Hits are counted up to here: two bits in the index.
pub const HITS_MAX: u8 = 3;

/// At most this part of a segment is written again, so that reclaiming one always gains room and
/// at most half of all writing is copying.
const SHARE_MAX: f64 = 0.5;

/// An object (or what of it lies in the victim) whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aged {
    /// What writing it again would take.
    pub bytes: u64,
    /// Hits since it was written, at most [`HITS_MAX`].
    pub hits: u8,
}

impl Reinsertion {
    /// Appends to `chosen` the numbers of those in `aged` to write again, in the order to write them.
    pub fn choose(self, aged: &[Aged], segment_bytes: u64, chosen: &mut Vec<usize>) {
        let begin = chosen.len();
        let hits_min = match self {
            Self::Never => return,
            Self::Hit { hits_min } => hits_min.clamp(1, HITS_MAX),
            Self::HitsPerByte => 1,
        };
        chosen.extend((0..aged.len()).filter(|&n| aged[n].hits >= hits_min));
        if self == Self::HitsPerByte {
            // a.hits / a.bytes > b.hits / b.bytes, without the division. Ties stay in the log's order.
            chosen[begin..].sort_by(|&a, &b| {
                let value = |n: usize, other: usize| {
                    u128::from(aged[n].hits) * u128::from(aged[other].bytes)
                };
                value(b, a).cmp(&value(a, b))
            });
        }
        let mut left = (segment_bytes as f64 * SHARE_MAX) as u64;
        let mut kept = begin;
        for at in begin..chosen.len() {
            let bytes = aged[chosen[at]].bytes;
            // A large one that does not fit leaves the room to smaller ones behind it.
            if bytes <= left {
                left -= bytes;
                chosen[kept] = chosen[at];
                kept += 1;
            }
        }
        chosen.truncate(kept);
    }
}

impl FromStr for Reinsertion {
    type Err = ParseReinsertionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseReinsertionError {
            text: text.to_owned(),
        };
        match text.split_once(':') {
            None => match text {
                "fifo" => Ok(Self::Never),
                "fifo-reinsertion" => Ok(Self::Hit { hits_min: 1 }),
                "hits-per-byte" => Ok(Self::HitsPerByte),
                _ => Err(error()),
            },
            Some(("fifo-reinsertion", number)) => match number.parse() {
                Ok(hits_min @ 1..=HITS_MAX) => Ok(Self::Hit { hits_min }),
                _ => Err(error()),
            },
            Some(_) => Err(error()),
        }
    }
}

impl fmt::Display for Reinsertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("fifo"),
            Self::Hit { hits_min: 1 } => f.write_str("fifo-reinsertion"),
            Self::Hit { hits_min } => write!(f, "fifo-reinsertion:{hits_min}"),
            Self::HitsPerByte => f.write_str("hits-per-byte"),
        }
    }
}

/// Why a text names no reinsertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseReinsertionError {
    text: String,
}

impl fmt::Display for ParseReinsertionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no order of reclaiming; use fifo, fifo-reinsertion, fifo-reinsertion:N with N \
             from 1 to {HITS_MAX}, or hits-per-byte",
            self.text
        )
    }
}

impl std::error::Error for ParseReinsertionError {}
