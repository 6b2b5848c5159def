//! Gates and bells: how a test and the origin wait for one another without sleeping.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Where an answer stops until the test opens it.
///
/// The test learns from [`wait_reached`](Self::wait_reached) (or its async twin) that the
/// origin stands before the gate, looks at whatever it came to look at, and calls
/// [`open`](Self::open). A gate once open stays open. Clones are the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    inner: Arc<Inner>,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets everything waiting pass, now and later.
    pub fn open(&self) {
        self.inner.open.store(true, Ordering::SeqCst);
        self.inner.bell.ring();
    }

    /// How many answers came to this gate so far, passed or waiting.
    pub fn reached(&self) -> usize {
        self.inner.arrivals.load(Ordering::SeqCst)
    }

    /// Blocks until `count` answers came to this gate; panics after ten seconds.
    pub fn wait_reached(&self, count: usize) {
        self.inner
            .bell
            .wait_blocking("an answer at the gate", || self.reached() >= count);
    }

    /// Waits until `count` answers came to this gate; panics after ten seconds.
    pub async fn reached_by(&self, count: usize) {
        self.inner
            .bell
            .wait("an answer at the gate", || self.reached() >= count)
            .await;
    }

    /// As [`pass`](Self::pass), for a thread; panics after ten seconds.
    pub(crate) fn pass_blocking(&self) {
        self.inner.arrivals.fetch_add(1, Ordering::SeqCst);
        self.inner.bell.ring();
        self.inner
            .bell
            .wait_blocking("a gate to open", || self.inner.open.load(Ordering::SeqCst));
    }

    /// Comes to the gate and waits there for as long as it is closed.
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

/// Rung whenever something changed; whoever waits looks again.
///
/// Ring after the change and with no lock held that a waiter's condition takes.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    lock: Mutex<()>,
    blocking: Condvar,
    waiting: Notify,
}

impl Bell {
    pub(crate) fn ring(&self) {
        // Taking the lock orders this ring after the look of any waiter about to sleep.
        drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.blocking.notify_all();
        self.waiting.notify_waiters();
    }

    pub(crate) fn wait_blocking(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !holds() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited {PATIENCE:?} in vain for {what}");
            (guard, _) = self
                .blocking
                .wait_timeout(guard, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) async fn wait(&self, what: &str, holds: impl FnMut() -> bool) {
        let waited = tokio::time::timeout(PATIENCE, self.until(holds)).await;
        assert!(waited.is_ok(), "waited {PATIENCE:?} in vain for {what}");
    }

    pub(crate) async fn until(&self, mut holds: impl FnMut() -> bool) {
        loop {
            let rung = self.waiting.notified();
            let mut rung = std::pin::pin!(rung);
            // Registers before looking, so that a ring between the two is not missed.
            rung.as_mut().enable();
            if holds() {
                return;
            }
            rung.await;
        }
    }
}

/// A test that waits this long for its origin has failed.
const PATIENCE: Duration = Duration::from_secs(10);
