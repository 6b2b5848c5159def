//! The wall clock, read once for thousands of requests.
//!
//! Lifetimes and ages in HTTP are whole seconds, so the request path needs no exact time. A thread stores the time in
//! an atomic every [`TICK`], and all other threads load it instead of reading the system's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use edgeward_types::Timestamp;

use crate::base::background::Background;

/// The interval of updates, and so the largest error of the clock: far below a second, the unit of HTTP. Fifty
/// wake-ups per second cost too little to appear in a CPU profile.
const TICK: Duration = Duration::from_millis(20);

/// Milliseconds since the Unix epoch, as of the last tick.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        // Relaxed: no other memory is published with the value.
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    /// Stores the wall time. The monotonic clock is no replacement, because it stops while a machine sleeps: a
    /// response that became stale during the sleep would seem fresh. If the wall clock is set back, ages do not grow
    /// until it reaches the old time again (`Timestamp::since` is never below zero).
    fn tick(&self) {
        let now = Timestamp::from(SystemTime::now());
        self.0.store(now.as_millis(), Ordering::Relaxed);
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
