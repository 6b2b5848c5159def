//! The system clocks, for filter clients and publishers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use edgeward_filter::client::{ClockFn, Now};
use edgeward_types::Timestamp;

/// Returns a function that reads the system clocks.
///
/// The monotonic clock is `CLOCK_BOOTTIME`, which runs while the machine sleeps. After a sleep, a client
/// therefore knows that its filter is stale, and a publisher states the true age of its data.
pub fn system_clock() -> ClockFn {
    Arc::new(|| {
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Now {
            monotonic: Duration::try_from(since_boot).unwrap_or_default(),
            wall: Timestamp::from(SystemTime::now()),
        }
    })
}
