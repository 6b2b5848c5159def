//! The time, read once for thousands of requests.
//!
//! The edge has two clocks, because an administrator or a time service may set the wall clock at any moment:
//!
//! - [`Clock::now`] is for durations: timeouts, rates, ages and lifetimes. It begins at the wall time of the start, and
//!   then follows `CLOCK_BOOTTIME`, which cannot be set. Unlike `CLOCK_MONOTONIC`, it also runs while the machine
//!   sleeps, so a response becomes stale during the sleep.
//! - [`Clock::wall`] is for dates: the fields of HTTP that contain one, log lines, signatures.
//!
//! Only these functions convert between the two: `now` never reaches a client, and `wall` is never subtracted. Stored
//! responses have times of the first clock, on disk too. A restart begins with the wall time again, so that the times
//! of older objects still count. If the wall clock was set between, the ages of these objects are wrong by the step: an
//! object that seems older is validated earlier, and one that seems to come from the future is validated before its
//! next use ([`StoredPolicy::is_fresh`](edgeward_semantics::StoredPolicy::is_fresh)).
//!
//! The precision of HTTP is a second, so the request path needs no exact time. A thread stores both times in atomics
//! every [`TICK`], and all other threads load them instead of reading the system's clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use edgeward_types::Timestamp;
use rustix::time::{ClockId, clock_gettime};

use super::background::Background;

/// The interval of updates, and so the largest error of the clock: far below a second, the unit of HTTP. Fifty
/// wake-ups per second cost too little to appear in a CPU profile.
const TICK: Duration = Duration::from_millis(20);

/// The two times as of the last tick, in milliseconds.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The wall time of the start, and the time since boot at the start.
    start: Reading,
    /// The wall time of the start and the time that has passed since.
    now: AtomicU64,
    /// The wall time minus `now`: how far the wall clock was set since the start.
    wall_step: AtomicI64,
    /// A step of the wall clock that a test causes.
    #[cfg(debug_assertions)]
    test_step: AtomicI64,
}

/// One reading of the system's clocks, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The wall time since the Unix epoch.
    wall: u64,
    /// The time since boot, sleep included.
    boot: u64,
}

impl Reading {
    fn take() -> Self {
        let boot = Duration::try_from(clock_gettime(ClockId::Boottime));
        let boot = boot.expect("the time since boot is not negative");
        Self {
            wall: Timestamp::from(SystemTime::now()).as_millis(),
            boot: u64::try_from(boot.as_millis())
                .expect("a machine runs less than a million years"),
        }
    }
}

impl Clock {
    fn new(start: Reading) -> Self {
        Self {
            start,
            now: AtomicU64::new(start.wall),
            wall_step: AtomicI64::new(0),
            #[cfg(debug_assertions)]
            test_step: AtomicI64::new(0),
        }
    }

    /// Returns the time for durations. It never goes back.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        // Relaxed: no other memory is published with the value.
        Timestamp::from_millis(self.now.load(Relaxed))
    }

    /// Returns the wall time, for dates.
    pub(crate) fn wall(&self) -> Timestamp {
        self.date_of(self.now())
    }

    /// Returns the date of a time of [`now`](Self::now), by the current wall clock.
    pub(crate) fn date_of(&self, time: Timestamp) -> Timestamp {
        let step = self.wall_step.load(Relaxed);
        Timestamp::from_millis(time.as_millis().saturating_add_signed(step))
    }

    /// Sets the wall clock forward by `millis`, or back if negative, as an administrator would.
    #[cfg(debug_assertions)]
    pub(crate) fn step_wall(&self, millis: i64) {
        self.test_step.fetch_add(millis, Relaxed);
        self.tick(Reading::take());
    }

    fn tick(&self, reading: Reading) {
        #[cfg(debug_assertions)]
        let reading = Reading {
            wall: reading
                .wall
                .saturating_add_signed(self.test_step.load(Relaxed)),
            ..reading
        };
        let passed = reading.boot.saturating_sub(self.start.boot);
        let now = self.start.wall.saturating_add(passed);
        self.wall_step
            .store(reading.wall.wrapping_sub(now).cast_signed(), Relaxed);
        self.now.fetch_max(now, Relaxed);
    }
}

/// The thread that updates the clock. Dropping this value stops and joins the thread.
#[derive(Debug)]
pub(crate) struct Ticker {
    clock: Arc<Clock>,
    _thread: Background,
}

impl Ticker {
    pub(crate) fn start() -> std::io::Result<Self> {
        let clock = Arc::new(Clock::new(Reading::take()));
        let ticking = Arc::clone(&clock);
        let thread = Background::start("edgeward-clock", TICK, move || {
            ticking.tick(Reading::take());
        })?;
        Ok(Self {
            clock,
            _thread: thread,
        })
    }

    pub(crate) fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of the wall clock in either direction changes dates only; the time for durations passes as the time since
    /// boot does. Method: read both clocks before a step, after it, and after time has passed, sleep included.
    #[test]
    fn a_step_of_the_wall_clock_changes_dates_and_no_duration() {
        const HOUR: i64 = 3_600_000;
        let start = Reading {
            wall: 1_700_000_000_000,
            boot: 5_000,
        };
        for step in [HOUR, -HOUR, 0, -start.wall.cast_signed()] {
            let clock = Clock::new(start);
            assert_eq!((clock.now(), clock.wall()), (clock.wall(), clock.now()));
            for passed in [0, 20, 9_000, 86_400_000] {
                clock.tick(Reading {
                    wall: (start.wall + passed).saturating_add_signed(step),
                    boot: start.boot + passed,
                });
                let now = clock.now();
                assert_eq!(now.as_millis(), start.wall + passed, "{step} {passed}");
                let wall = (start.wall + passed).saturating_add_signed(step);
                assert_eq!(clock.wall().as_millis(), wall, "{step} {passed}");
                assert_eq!(
                    clock.date_of(Timestamp::from_millis(start.wall)),
                    Timestamp::from_millis(start.wall.saturating_add_signed(step)),
                );
            }
        }
    }

    #[test]
    fn the_time_for_durations_never_goes_back() {
        let clock = Clock::new(Reading { wall: 10, boot: 10 });
        for (boot, now) in [(15, 15), (12, 15), (0, 15), (16, 16)] {
            clock.tick(Reading { wall: 10, boot });
            assert_eq!(clock.now().as_millis(), now);
        }
    }
}
