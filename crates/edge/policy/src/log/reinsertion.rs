//! The rules that select objects of a reclaimed segment to be written again.

use std::fmt;
use std::str::FromStr;

/// Selects the objects of the oldest segment that are written again.
///
/// Written `fifo`, `fifo-reinsertion`, `fifo-reinsertion:N`, `hits-per-byte`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinsertion {
    /// Selects no object: first in, first out, with the fewest writes.
    Never,
    /// Selects objects with at least this many hits since they were written, in the order of the log.
    Hit {
        /// At most [`HITS_MAX`], because further hits are not counted.
        hits_min: u8,
    },
    /// Selects objects that were hit, those with the most hits per byte first.
    HitsPerByte,
}

/// Hits are counted up to this limit: two bits in the index.
pub const HITS_MAX: u8 = 3;

/// The maximum share of a segment that is written again. A reclaim thereby always gains space, and at most half
/// of all writes are copies.
const SHARE_MAX: f64 = 0.5;

/// An object in the segment that is reclaimed, or the part of an object that lies in this segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimCandidate {
    /// The bytes that are written if the object is selected.
    pub bytes: u64,
    /// Hits since the object was written, at most [`HITS_MAX`].
    pub hits: u8,
}

impl Reinsertion {
    /// Appends the indices of the selected objects in `candidates` to `chosen`, in the order in which they are
    /// written.
    pub fn choose(
        self,
        candidates: &[ReclaimCandidate],
        segment_bytes: u64,
        chosen: &mut Vec<usize>,
    ) {
        let first = chosen.len();
        let hits_min = match self {
            Self::Never => return,
            Self::Hit { hits_min } => hits_min.clamp(1, HITS_MAX),
            Self::HitsPerByte => 1,
        };
        chosen.extend((0..candidates.len()).filter(|&n| candidates[n].hits >= hits_min));
        if self == Self::HitsPerByte {
            // a.hits / a.bytes > b.hits / b.bytes, without the division. Ties keep the order of the log.
            chosen[first..].sort_by(|&a, &b| {
                let value = |n: usize, other: usize| {
                    u128::from(candidates[n].hits) * u128::from(candidates[other].bytes)
                };
                value(b, a).cmp(&value(a, b))
            });
        }
        let mut bytes_left = (segment_bytes as f64 * SHARE_MAX) as u64;
        let mut selected = first;
        for at in first..chosen.len() {
            let bytes = candidates[chosen[at]].bytes;
            // If a large object does not fit, smaller objects behind it may still fit.
            if bytes <= bytes_left {
                bytes_left -= bytes;
                chosen[selected] = chosen[at];
                selected += 1;
            }
        }
        chosen.truncate(selected);
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

/// Why a text is not a reinsertion rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseReinsertionError {
    text: String,
}

impl fmt::Display for ParseReinsertionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not a reinsertion rule; use fifo, fifo-reinsertion, fifo-reinsertion:N with N \
             from 1 to {HITS_MAX}, or hits-per-byte",
            self.text
        )
    }
}

impl std::error::Error for ParseReinsertionError {}
