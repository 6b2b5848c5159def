//! The time, read once for thousands of requests.
//!
//! HTTP caching counts in seconds, so nothing on the way of a request asks the kernel. A thread
//! writes the time into one atomic every [`TICK`]; everyone else loads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use edgeward_types::Timestamp;

/// How stale a reading may be: far below the second HTTP counts in, and fifty wake-ups a second
/// do not show in any profile.
const TICK: Duration = Duration::from_millis(20);

/// Milliseconds since the Unix epoch, as of the last tick.
#[derive(Debug)]
pub(crate) struct Clock {
    millis: AtomicU64,
    stopped: AtomicBool,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        // Relaxed: the value says all there is; nothing is published with it.
        Timestamp::from_millis(self.millis.load(Ordering::Relaxed))
    }

    /// Reads wall time. Monotonic time stands still while a machine sleeps, and a response that became stale
    /// meanwhile would seem fresh. If the wall clock steps back, ages stop growing for
    /// as long (`Timestamp::since` never goes below zero).
    fn tick(&self) {
        let now = Timestamp::from(SystemTime::now());
        self.millis.store(now.as_millis(), Ordering::Relaxed);
    }
}

/// The thread that writes the time; dropping it ends and joins the thread.
#[derive(Debug)]
pub(crate) struct Ticker {
    clock: Arc<Clock>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start() -> std::io::Result<Self> {
        let clock = Arc::new(Clock {
            millis: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        clock.tick();
        let ticking = Arc::clone(&clock);
        let thread = std::thread::Builder::new()
            .name("edgeward-clock".to_owned())
            .spawn(move || {
                while !ticking.stopped.load(Ordering::Acquire) {
                    ticking.tick();
                    std::thread::park_timeout(TICK);
                }
            })?;
        Ok(Self {
            clock,
            thread: Some(thread),
        })
    }

    pub(crate) fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.clock)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.clock.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            _ = thread.join();
        }
    }
}
