//! Tracks if connections to a server of an origin succeed, and logs the start and the end of outages.
//!
//! Failed requests of an outage would log the same error, so only its start and its end are logged. Starts are logged
//! at intervals of at least [`DOWN_LINES_APART`]. The end of an outage is logged only if its start was logged.

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::observe::log::ErrorChain;
use crate::rt::panics::lock;

/// The result of the connections to one server, shared by all workers.
#[derive(Debug)]
pub(crate) struct OriginHealth {
    origin: String,
    server: String,
    /// True during an outage. Read without the lock after each successful connection.
    is_down: AtomicBool,
    outage: Mutex<Outage>,
}

impl OriginHealth {
    pub(crate) fn new(origin: String, server: String) -> Self {
        Self {
            origin,
            server,
            is_down: AtomicBool::new(false),
            outage: Mutex::default(),
        }
    }

    /// Returns true if the last connection to the server failed.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Records a successful connection.
    pub(crate) fn record_connection(&self, now: Instant) {
        if !self.is_down() {
            return;
        }
        let mut outage = lock(&self.outage);
        self.is_down.store(false, Ordering::Relaxed);
        if let Some(ended) = outage.end(now) {
            tracing::info!(
                origin = self.origin,
                server = self.server,
                down_seconds = ended.duration.as_secs(),
                failed_connections = ended.failures,
                "a server of the origin is up again"
            );
        }
    }

    /// Logs that TLS failed after the handshake, at intervals of at least [`DOWN_LINES_APART`].
    pub(crate) fn log_tls_failure(&self, error: &(dyn Error + 'static), now: Instant) {
        if lock(&self.outage).is_tls_line_due(now) {
            tracing::warn!(
                origin = self.origin,
                server = self.server,
                error = %ErrorChain(error),
                "a TLS connection to a server of the origin failed after the handshake"
            );
        }
    }

    /// Records a failed connection.
    pub(crate) fn record_failure(&self, error: &dyn Error, now: Instant) {
        let mut outage = lock(&self.outage);
        self.is_down.store(true, Ordering::Relaxed);
        if outage.fail(now) {
            tracing::warn!(
                origin = self.origin,
                server = self.server,
                error = %ErrorChain(error),
                "a server of the origin is down: connections to it fail"
            );
        }
    }
}

/// The current outage, if any, and the time at which an outage was last logged.
#[derive(Debug, Default)]
struct Outage {
    since: Option<Instant>,
    failures: u64,
    is_logged: bool,
    logged_at: Option<Instant>,
    /// The time at which a failure of TLS after the handshake was last logged.
    tls_logged_at: Option<Instant>,
}

/// An outage that was logged and has ended.
#[derive(Debug, PartialEq, Eq)]
struct EndedOutage {
    duration: Duration,
    failures: u64,
}

impl Outage {
    /// Counts a failure. Returns true if the outage is to be logged now.
    fn fail(&mut self, now: Instant) -> bool {
        self.since.get_or_insert(now);
        self.failures += 1;
        if self.is_logged || !is_line_due(self.logged_at, now) {
            return false;
        }
        self.is_logged = true;
        self.logged_at = Some(now);
        true
    }

    /// Returns true if a failure of TLS after the handshake is to be logged now.
    fn is_tls_line_due(&mut self, now: Instant) -> bool {
        let is_due = is_line_due(self.tls_logged_at, now);
        if is_due {
            self.tls_logged_at = Some(now);
        }
        is_due
    }

    /// Ends the outage. Returns the outage if its start was logged.
    fn end(&mut self, now: Instant) -> Option<EndedOutage> {
        let since = self.since.take()?;
        let ended = EndedOutage {
            duration: now.saturating_duration_since(since),
            failures: std::mem::take(&mut self.failures),
        };
        std::mem::take(&mut self.is_logged).then_some(ended)
    }
}

fn is_line_due(logged_at: Option<Instant>, now: Instant) -> bool {
    logged_at.is_none_or(|at| now.saturating_duration_since(at) >= DOWN_LINES_APART)
}

/// The least time between two log lines about a new outage, so that there are at most six per minute.
const DOWN_LINES_APART: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A panic of one thread must not break the origin for all others.
    #[test]
    fn a_panic_under_the_lock_does_not_end_the_records_of_a_server() {
        let health = Arc::new(OriginHealth::new("o".to_owned(), "s".to_owned()));
        let holder = Arc::clone(&health);
        let panicked = std::thread::spawn(move || {
            let _outage = holder.outage.lock().expect("not poisoned yet");
            panic!("a test panics while it holds the lock");
        });
        assert!(panicked.join().is_err());
        health.record_failure(&std::io::Error::other("refused"), Instant::now());
        assert!(health.is_down());
        health.record_connection(Instant::now());
        assert!(!health.is_down());
    }

    #[test]
    fn an_outage_is_logged_once_and_its_end_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut outage = Outage::default();
        assert!(outage.fail(at(0)));
        for second in 1..100 {
            assert!(!outage.fail(at(second)), "after {second} s");
        }
        let ended = EndedOutage {
            duration: Duration::from_secs(100),
            failures: 100,
        };
        assert_eq!(outage.end(at(100)), Some(ended));
        assert_eq!(outage.end(at(101)), None);
    }

    #[test]
    fn an_origin_that_fails_often_is_logged_every_ten_seconds_at_most() {
        let start = Instant::now();
        let mut outage = Outage::default();
        let (mut downs, mut ups) = (0, 0);
        for tenth in 0..1000 {
            let now = start + Duration::from_millis(tenth * 100);
            downs += u32::from(outage.fail(now));
            ups += u32::from(outage.end(now).is_some());
        }
        assert_eq!((downs, ups), (10, 10));
    }

    #[test]
    fn a_long_outage_is_logged_although_it_began_soon_after_another() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut outage = Outage::default();
        assert!(outage.fail(at(0)));
        assert!(outage.end(at(1)).is_some());
        assert!(!outage.fail(at(2)));
        assert!(outage.fail(at(11)));
        assert!(outage.end(at(12)).is_some());
    }
}
