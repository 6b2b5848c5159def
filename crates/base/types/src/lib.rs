//! Types and functions that three or more crates share: keys, sizes and their charge, times, random numbers,
//! XXH3, and the table of a server's connections.
#![forbid(unsafe_code)]

mod allocation;
mod byte_size;
mod connections;
pub mod hidden;
mod mix;
mod pattern;
mod text;
pub mod xxh3;

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use allocation::{allocated_bytes, charge_bytes, empty_slab_bytes_charged, size_class};
pub use byte_size::{ByteSize, ParseByteSizeError};
// A `ClientNet` is what the limits of connections count as one client: an IPv4 address, or an IPv6 network with a
// prefix of 64 bits, because one host can use all addresses of such a network.
pub use connections::{
    AcceptError, Accepted, ClientNet, ConnectionId, ConnectionLimits, ConnectionTable, IDLE_AFTER,
};
pub use mix::{SplitMix64, mix64};
pub use pattern::Pattern;
pub use text::{to_hex, with_causes};

/// The hash of a cache key: 64 bits, computed with a secret seed.
///
/// Two keys may have the same hash. A store that uses `KeyHash` as its index also stores the full key, and
/// compares it before it returns an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// A point in time: milliseconds since time 0.
///
/// Time 0 is the Unix epoch in the server and the start of the trace in the simulator. The crates that the
/// server and the simulator share only compare and subtract timestamps, so they work with both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    millis: u64,
}

impl Timestamp {
    /// Time 0.
    pub const ZERO: Self = Self { millis: 0 };

    /// Returns the point `millis` milliseconds after time 0.
    pub const fn from_millis(millis: u64) -> Self {
        Self { millis }
    }

    /// Returns the point `secs` seconds after time 0.
    pub const fn from_secs(secs: u64) -> Self {
        Self {
            millis: secs.saturating_mul(1000),
        }
    }

    /// Milliseconds since time 0.
    pub const fn as_millis(self) -> u64 {
        self.millis
    }

    /// Whole seconds since time 0.
    pub const fn as_secs(self) -> u64 {
        self.millis / 1000
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.millis.saturating_sub(earlier.millis))
    }

    /// Returns the point `duration` later, or the last representable point if the sum overflows.
    pub fn after(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            millis: self.millis.saturating_add(millis),
        }
    }
}

/// Converts a system time to milliseconds since the Unix epoch. A time before the epoch becomes the epoch.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self::ZERO.after(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// The seed of all random numbers of a run. The same seed repeats the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seed(pub u64);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}
