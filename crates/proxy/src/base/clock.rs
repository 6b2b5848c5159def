//! The wall clock, read once for thousands of requests.
//!
//! HTTP caching counts in seconds, so the request path does not read the system's clock. A thread stores the time in
//! an atomic every [`TICK`], and all others load it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use edgeward_types::Timestamp;

use crate::base::background::Background;

/// The largest error of a reading: far below a second, the unit of HTTP. Fifty wake-ups per second do not show in any
/// profile.
const TICK: Duration = Duration::from_millis(20);

/// Milliseconds since the Unix epoch, as of the last tick.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        // Relaxed: no other memory is published with the value.
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    /// Stores the wall time. The monotonic clock stops while a machine sleeps, so a response that became stale
    /// meanwhile would seem fresh. If the wall clock steps back, ages do not grow until it has caught up
    /// (`Timestamp::since` is never below zero).
    fn tick(&self) {
        let now = Timestamp::from(SystemTime::now());
        self.0.store(now.as_millis(), Ordering::Relaxed);
    }
}

/// The thread that updates the clock. Dropping it stops and joins the thread.
#[derive(Debug)]
pub(crate) struct Ticker {
    clock: Arc<Clock>,
    _thread: Background,
}

impl Ticker {
    pub(crate) fn start() -> std::io::Result<Self> {
        let clock = Arc::new(Clock(AtomicU64::new(0)));
        clock.tick();
        let ticking = Arc::clone(&clock);
        let thread = Background::start("edgeward-clock", TICK, move || ticking.tick())?;
        Ok(Self {
            clock,
            _thread: thread,
        })
    }

    pub(crate) fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.clock)
    }
}
