//! A peer, shared by its connections and its streams.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::core::Core;

/// The lock of a peer. It is held while bytes are cut, hashed, compressed or assembled, and never across a wait,
/// except for the disk reads that `ARCHITECTURE.md` lists.
///
/// The two state machines require frames in one order, so one core at a time works for a peer. Other peers have
/// their own locks.
pub(crate) struct Peer {
    core: Mutex<Core>,
    /// True while a task waits for the peer's next connection.
    waited_for: AtomicBool,
}

impl Peer {
    pub(crate) fn new(core: Core) -> Self {
        Self {
            core: Mutex::new(core),
            waited_for: AtomicBool::new(false),
        }
    }

    /// Returns true if the caller is now the one task that waits for the next connection, until
    /// [`end_waiting`](Self::end_waiting).
    pub(crate) fn begin_waiting(&self) -> bool {
        !self.waited_for.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_waiting(&self) {
        self.waited_for.store(false, Ordering::Release);
    }

    /// Runs an action under the lock, and then wakes the tasks that can continue.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        // A panic leaves the state machines as they were. At worst streams fail, and their digests detect it.
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
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
