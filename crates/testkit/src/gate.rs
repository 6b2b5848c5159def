//! Gates and bells, by which a test and the origin wait for each other without sleeping.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// A point at which an answer waits until the test opens the gate.
///
/// [`wait_reached`](Self::wait_reached) and its async counterpart return when the origin waits at the gate. The
/// test then checks what it wants to check and calls [`open`](Self::open). A gate that was opened stays open.
/// Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<Inner>,
}

impl Gate {
    /// Returns a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate for all answers, waiting and later ones.
    pub fn open(&self) {
        self.inner.open.store(true, Ordering::SeqCst);
        self.inner.bell.ring();
    }

    /// Returns the number of answers that have reached the gate: those that wait and those that have passed.
    pub fn reached(&self) -> usize {
        self.inner.arrivals.load(Ordering::SeqCst)
    }

    /// Blocks until `count` answers have reached the gate. Panics after ten seconds.
    pub fn wait_reached(&self, count: usize) {
        self.inner
            .bell
            .wait_blocking("an answer at the gate", || self.reached() >= count);
    }

    /// Waits until `count` answers have reached the gate. Panics after ten seconds.
    pub async fn reached_by(&self, count: usize) {
        self.inner
            .bell
            .wait("an answer at the gate", || self.reached() >= count)
            .await;
    }

    /// As [`pass`](Self::pass), for a thread. Panics after ten seconds.
    pub(crate) fn pass_blocking(&self) {
        self.inner.arrivals.fetch_add(1, Ordering::SeqCst);
        self.inner.bell.ring();
        self.inner
            .bell
            .wait_blocking("a gate to open", || self.inner.open.load(Ordering::SeqCst));
    }

    /// Reaches the gate, and waits until it is open.
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
/// The caller must ring after the change, and without a lock that a condition takes.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    lock: Mutex<()>,
    blocking: Condvar,
    waiting: Notify,
}

impl Bell {
    pub(crate) fn ring(&self) {
        // The lock orders this ring after the check of each waiter that is about to sleep.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.blocking.notify_all();
        self.waiting.notify_waiters();
    }

    pub(crate) fn wait_blocking(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !holds() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "timeout after {TIMEOUT:?}: {what} did not happen"
            );
            (guard, _) = self
                .blocking
                .wait_timeout(guard, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) async fn wait(&self, what: &str, holds: impl FnMut() -> bool) {
        let waited = tokio::time::timeout(TIMEOUT, self.until(holds)).await;
        assert!(
            waited.is_ok(),
            "timeout after {TIMEOUT:?}: {what} did not happen"
        );
    }

    pub(crate) async fn until(&self, mut holds: impl FnMut() -> bool) {
        loop {
            let rung = self.waiting.notified();
            let mut rung = std::pin::pin!(rung);
            // Registers before the check, so that a ring between the two is not missed.
            rung.as_mut().enable();
            if holds() {
                return;
            }
            rung.await;
        }
    }
}

/// The longest wait of a test for its origin.
const TIMEOUT: Duration = Duration::from_secs(10);
