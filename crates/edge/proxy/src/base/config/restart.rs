//! The settings of a restart: what an edge writes when it stops, and reads when it starts.

use std::path::PathBuf;
use std::time::Duration;

use edgeward_types::ByteSize;

/// How the objects in memory survive a restart. An edge without a disk has no place to keep them.
#[derive(Clone, Debug)]
pub struct RestartConfig {
    /// True if the edge writes objects of memory to disk when it stops, and fills memory from disk when it starts.
    /// Default: true.
    pub enabled: bool,
    /// The longest time for which a stopping edge writes objects. Default 10 s: with the drain timeout of 30 s, the
    /// process ends before the 45 s of the unit in `docs/how-to/systemd.md`.
    pub write_time_max: Duration,
    /// The most bytes of objects that a stopping edge writes. Default 8 GiB: with the default time, a device that
    /// writes less than 800 MB/s does not reach it. On a faster device it limits the wear.
    pub write_bytes_max: ByteSize,
    /// The file of the list of the objects in memory. Default: in the first device's directory or beside its file, and
    /// none for a block device.
    pub list: Option<PathBuf>,
    /// The time between two writes of the list while the edge runs, for a start after a crash. Zero: the list is
    /// written only when the edge stops. Default 10 min: a list of a million objects has 16 MB.
    pub list_interval: Duration,
}

impl Default for RestartConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            write_time_max: Duration::from_secs(10),
            write_bytes_max: ByteSize::gib(8),
            list: None,
            list_interval: Duration::from_secs(10 * 60),
        }
    }
}
