//! The settings of requests for ranges.

use edgeward_types::ByteSize;

/// The settings of requests for ranges without a stored response.
#[derive(Clone, Copy, Debug)]
pub struct RangesConfig {
    /// The size of a slice. Default 1 MiB: a second of video at 8 Mbit/s, and two orders of magnitude more than the
    /// head and the index entry of a slice. 0 disables slices: these requests are then passed to the origin.
    pub slice_bytes: ByteSize,
    /// Slices that are fetched ahead of a client that reads in order. Default 2: while one is read, the next has
    /// arrived and one is under way.
    pub read_ahead_slices: u32,
}

impl Default for RangesConfig {
    fn default() -> Self {
        Self {
            slice_bytes: ByteSize::mib(1),
            read_ahead_slices: 2,
        }
    }
}
