//! A peer, shared by its connections and its conversations.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::core::Core;

/// One lock, held for as long as it takes to cut, name, compress or put together what is at hand; never while anybody waits, but for the
/// disk where `ARCHITECTURE.md` says so.
///
/// The two machines follow one order of frames, so what one peer sends is the work of one core at a time. Other peers have locks of
/// their own.
pub(crate) struct Peer {
    core: Mutex<Core>,
    /// A task waits for the next connection.
    waited_for: AtomicBool,
}

impl Peer {
    pub(crate) fn new(core: Core) -> Self {
        Self {
            core: Mutex::new(core),
            waited_for: AtomicBool::new(false),
        }
    }

    /// Whether the caller is the one that waits for the next connection, until [`end_waiting`](Self::end_waiting).
    pub(crate) fn begin_waiting(&self) -> bool {
        !self.waited_for.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_waiting(&self) {
        self.waited_for.store(false, Ordering::Release);
    }

    /// Does something, and then wakes whom that concerns.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        // A panic within leaves the machines as they were: at worst streams fail, and their digests show it.
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let result = action(&mut core);
        let wakers = core.due_wakers();
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
