//! The bounds above which the edge sheds load, and the watchdog of its workers.

use std::time::Duration;

use edgeward_types::ByteSize;

/// The bounds above which the edge sheds load. It sheds new connections first, then requests that bypass the cache,
/// then misses, then hits.
#[derive(Clone, Debug)]
pub struct OverloadConfig {
    /// Memory of the process, arena included. Default: none. The program `edgeward` sets 90 % of the memory of the
    /// machine or of its control group: above it the system may end the process.
    pub memory_max: Option<ByteSize>,
    /// Smoothed delay of a worker's event loop. Default 500 ms: every response then waits for half a second, although a
    /// hit takes microseconds. Zero disables the bound.
    pub lag_max: Duration,
    /// Descriptors that must be free of the limit of open files. Default 32: the division of descriptors at the start
    /// leaves more of them free, so a lower number shows that another part of the process uses too many. 0 disables
    /// the bound.
    pub descriptors_free_min: usize,
    /// Shortest time between two changes of the level. Default 1 s: four samples, in which the previous level has an
    /// effect.
    pub step: Duration,
    /// The value of `Retry-After` in responses to shed requests. Default 10 s: the time in which the level returns from
    /// the highest to none, with a reserve.
    pub retry_after: Duration,
}

impl Default for OverloadConfig {
    fn default() -> Self {
        Self {
            memory_max: None,
            lag_max: Duration::from_millis(500),
            descriptors_free_min: 32,
            step: Duration::from_secs(1),
            retry_after: Duration::from_secs(10),
        }
    }
}

/// The watchdog of the workers.
#[derive(Clone, Copy, Debug)]
pub struct WatchdogConfig {
    /// Time without a report after which a worker counts as stuck. Default 10 s: no task of a worker runs for longer
    /// than some milliseconds without a pause. Zero disables the watchdog.
    pub deadline: Duration,
    /// True if a stuck worker aborts the process, so that its supervisor starts it again. Default false: the other
    /// workers still serve.
    pub aborts: bool,
}

impl Default for WatchdogConfig {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(10),
            aborts: false,
        }
    }
}
