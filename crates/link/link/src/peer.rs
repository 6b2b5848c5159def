//! The state of a peer behind a lock. The connections to the peer and its streams share it.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::core::Core;

/// The lock of a peer. A task holds the lock while it cuts, hashes, compresses or assembles bytes. It does not wait
/// while it holds the lock, except for the disk reads that `ARCHITECTURE.md` lists.
///
/// The sender and the receiver in [`Core`] must see all frames in one order, so only one processor core works for a
/// peer at a time. Each peer has its own lock.
pub(crate) struct Peer {
    core: Mutex<Core>,
    /// True while a task waits for the peer's next connection. A second task must not wait for the same connection.
    has_waiting_task: AtomicBool,
}

impl Peer {
    pub(crate) fn new(core: Core) -> Self {
        Self {
            core: Mutex::new(core),
            has_waiting_task: AtomicBool::new(false),
        }
    }

    /// Returns true if no other task waits for the peer's next connection. The caller is then the waiting task, until
    /// it calls [`end_waiting`](Self::end_waiting).
    pub(crate) fn begin_waiting(&self) -> bool {
        !self.has_waiting_task.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_waiting(&self) {
        self.has_waiting_task.store(false, Ordering::Release);
    }

    /// Runs an action under the lock, and then wakes the tasks that can continue.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.core.lock().unwrap_or_else(|poisoned| {
            // The panic of another task may have left the state machines inconsistent.
            tracing::error!("a task of the link has panicked: all streams of its peer end");
            self.core.clear_poison();
            let mut core = poisoned.into_inner();
            core.restart();
            core
        });
        let result = action(&mut core);
        let wakers = core.take_wakers();
        drop(core);
        for waker in wakers {
            waker.wake();
        }
        result
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Peer")
    }
}
