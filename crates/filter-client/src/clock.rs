//! Both of a machine's clocks, as a value that tests replace.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use edgeward_filter::client::Now;
use edgeward_types::Timestamp;

/// Tells what the clocks show.
pub type ClockFn = Arc<dyn Fn() -> Now + Send + Sync>;

/// The machine's own clocks.
///
/// Monotonic is `CLOCK_BOOTTIME`: it goes on while the machine sleeps, so that a filter that was fresh in
/// the evening is known to be stale in the morning.
pub fn system_clock() -> ClockFn {
    Arc::new(|| {
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            monotonic: Duration::try_from(since_boot).unwrap_or_default(),
            wall: Timestamp::from_millis(u64::try_from(since_1970.as_millis()).unwrap_or(0)),
        }
    })
}
