//! Gates, at which the scripted origin waits for the test, and bells, which wake tasks and threads that wait
//! for a condition. With both, no test has to sleep.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// A point at which answers of the scripted origin (or operations of a simulated disk) wait until the test opens the
/// gate. Each of them is an arrival at the gate.
///
/// [`wait_reached`](Self::wait_reached) and its async counterpart [`reached_by`](Self::reached_by) return when
/// the origin waits at the gate. The test then checks the state of the edge and calls [`open`](Self::open). An
/// open gate stays open. All clones refer to one gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<Inner>,
}

impl Gate {
    /// Returns a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate for the arrivals that wait at it and for all later arrivals.
    pub fn open(&self) {
        self.inner.open.store(true, Ordering::SeqCst);
        self.inner.bell.ring();
    }

    /// Returns the number of arrivals: those that wait at the gate and those that have passed it.
    pub fn reached(&self) -> usize {
        self.inner.arrivals.load(Ordering::SeqCst)
    }

    /// Blocks until the gate has had `count` arrivals. Panics after a minute.
    pub fn wait_reached(&self, count: usize) {
        self.inner
            .bell
            .wait_blocking("an answer waits at the gate", || self.reached() >= count);
    }

    /// Waits until the gate has had `count` arrivals. Panics after a minute.
    pub async fn reached_by(&self, count: usize) {
        self.inner
            .bell
            .wait("an answer waits at the gate", || self.reached() >= count)
            .await;
    }

    /// Like [`pass`](Self::pass), but blocks the thread. Panics after a minute.
    pub(crate) fn pass_blocking(&self) {
        self.inner.arrivals.fetch_add(1, Ordering::SeqCst);
        self.inner.bell.ring();
        self.inner
            .bell
            .wait_blocking("the test opens the gate", || {
                self.inner.open.load(Ordering::SeqCst)
            });
    }

    /// Counts an arrival at the gate, and waits until the gate is open.
    pub(crate) async fn pass(&self) {
        self.inner.arrivals.fetch_add(1, Ordering::SeqCst);
        self.inner.bell.ring();
        self.inner
            .bell
            .until(|| self.inner.open.load(Ordering::SeqCst))
            .await;
    }
}

#[derive(Debug, Default)]
struct Inner {
    open: AtomicBool,
    arrivals: AtomicUsize,
    bell: Bell,
}

/// Wakes all waiters after a change, so that each one checks its condition again.
///
/// The caller must ring after the change, and must not hold a lock that a waiter's condition takes.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    lock: Mutex<()>,
    /// Wakes blocked threads.
    blocking: Condvar,
    /// Wakes waiting tasks.
    waiting: Notify,
}

impl Bell {
    pub(crate) fn ring(&self) {
        // A waiter checks its condition and goes to sleep under this lock. Because `ring` takes the lock too,
        // it cannot run between the check and the sleep.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.blocking.notify_all();
        self.waiting.notify_waiters();
    }

    pub(crate) fn wait_blocking(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !holds() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            assert!(
                !remaining.is_zero(),
                "timeout after {TIMEOUT:?} while waiting until {what}"
            );
            (guard, _) = self
                .blocking
                .wait_timeout(guard, remaining)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) async fn wait(&self, what: &str, holds: impl FnMut() -> bool) {
        let waited = tokio::time::timeout(TIMEOUT, self.until(holds)).await;
        assert!(
            waited.is_ok(),
            "timeout after {TIMEOUT:?} while waiting until {what}"
        );
    }

    pub(crate) async fn until(&self, mut holds: impl FnMut() -> bool) {
        loop {
            let ring_signal = self.waiting.notified();
            let mut ring_signal = std::pin::pin!(ring_signal);
            // The task registers before it checks the condition, so that it does not miss a ring between the
            // check and the wait.
            ring_signal.as_mut().enable();
            if holds() {
                return;
            }
            ring_signal.await;
        }
    }
}

/// The longest time that a test waits for the origin.
const TIMEOUT: Duration = Duration::from_secs(60);
