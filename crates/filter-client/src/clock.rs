//! The machine's clocks, for a filter's client and its publisher.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use edgeward_filter::client::{ClockFn, Now};
use edgeward_types::Timestamp;

/// The machine's own clocks.
///
/// The monotonic clock is `CLOCK_BOOTTIME`, which goes on while the machine sleeps. After a night of sleep a client knows that
/// its filter is stale, and a publisher does not sign that its filter was complete two seconds ago.
pub fn system_clock() -> ClockFn {
    Arc::new(|| {
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Now {
            monotonic: Duration::try_from(since_boot).unwrap_or_default(),
            wall: Timestamp::from(SystemTime::now()),
        }
    })
}
