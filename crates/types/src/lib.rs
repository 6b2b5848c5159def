//! What three crates or more share: keys, sizes and their charge, times, random numbers, and the bounds of a server's connections.
#![forbid(unsafe_code)]

mod allocation;
mod byte_size;
mod connections;
mod mix;
pub mod xxh3;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use allocation::{allocated_bytes, charge_bytes, size_class};
pub use byte_size::{ByteSize, ParseByteSizeError};
pub use connections::{
    Accepted, ClientNet, ConnectionId, ConnectionLimits, ConnectionTable, NoPlace, SETTLED,
};
pub use mix::{SplitMix64, mix64};

/// What an object is known by inside the cache: 64 bits of a keyed hash of its full key.
///
/// Two keys may share a hash. Whoever stores bytes under a `KeyHash` keeps the full key
/// beside them and compares it before it trusts a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// A point in time as pure code sees it: milliseconds since an origin its driver chose.
///
/// The server counts from the Unix epoch, the simulator from the start of its trace.
/// Pure code only compares and subtracts, so it never learns the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    millis: u64,
}

impl Timestamp {
    /// The origin itself.
    pub const ZERO: Self = Self { millis: 0 };

    /// The point `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self { millis }
    }

    /// The point `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Self {
        Self {
            millis: secs.saturating_mul(1000),
        }
    }

    /// Milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.millis
    }

    /// Whole seconds since the origin.
    pub const fn as_secs(self) -> u64 {
        self.millis / 1000
    }

    /// How long after `earlier` this is; nothing if it is not after.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.millis.saturating_sub(earlier.millis))
    }

    /// The point `duration` later, held at the end of time rather than wrapping.
    pub fn after(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            millis: self.millis.saturating_add(millis),
        }
    }
}

/// Milliseconds since the Unix epoch; a time before it is the epoch.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self::ZERO.after(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// Where every random stream of a run comes from: the same seed repeats the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}
