//! The state of a peer behind a lock. The connections to the peer and its streams share it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::runtime::Handle;

use edgeward_dedup::sender::SendError;

use crate::core::Core;

/// The lock of a peer. A task holds the lock while it cuts, hashes, compresses or assembles bytes. It does not wait
/// while it holds the lock, except for the disk reads that `ARCHITECTURE.md` lists.
///
/// The sender and the receiver in [`Core`] must see all frames in one order, so only one processor core works for a
/// peer at a time. Each peer has its own lock.
pub(crate) struct Peer {
    core: Mutex<Core>,
    /// This peer, for the threads that answer requests to the store.
    me: Weak<Self>,
    /// The runtime whose threads may block. `None` in tests without a runtime: requests then block.
    runtime: Option<Handle>,
    /// True while a task waits for the peer's next connection. A second task must not wait for the same connection.
    has_waiting_task: AtomicBool,
    /// The number of streams that could be opened when the lock was last released.
    free_streams: AtomicUsize,
    /// The number of slots that are reserved for streams.
    reserved_streams: AtomicUsize,
}

/// The right to open one stream. It counts against the limit of streams until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamSlot(Arc<Peer>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.reserved_streams.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Peer {
    pub(crate) fn new(core: Core) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            free_streams: AtomicUsize::new(core.free_streams()),
            reserved_streams: AtomicUsize::new(0),
            core: Mutex::new(core),
            me: Weak::clone(me),
            runtime: Handle::try_current().ok(),
            has_waiting_task: AtomicBool::new(false),
        })
    }

    /// Returns true if no other task waits for the peer's next connection. The caller is then the waiting task, until
    /// it calls [`end_waiting`](Self::end_waiting).
    pub(crate) fn begin_waiting(&self) -> bool {
        !self.has_waiting_task.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn end_waiting(&self) {
        self.has_waiting_task.store(false, Ordering::Release);
    }

    /// Reserves a slot for a stream, without waiting for the lock. Fails if as many streams are open or reserved as the
    /// peer accepts.
    pub(crate) fn reserve_stream(self: &Arc<Self>) -> Result<StreamSlot, SendError> {
        let reserved = self.reserved_streams.fetch_add(1, Ordering::AcqRel);
        let slot = StreamSlot(Arc::clone(self));
        if reserved < self.free_streams.load(Ordering::Acquire) {
            Ok(slot)
        } else {
            Err(SendError::TooManyStreams)
        }
    }

    /// Returns true if a slot is reserved whose stream is not open yet.
    pub(crate) fn has_reserved(&self) -> bool {
        self.reserved_streams.load(Ordering::Acquire) > 0
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
        self.release(core);
        result
    }

    /// Releases the lock, begins the reads of the store that have become necessary, and wakes the tasks that can
    /// continue.
    fn release(&self, mut core: MutexGuard<'_, Core>) {
        let wakers = core.take_wakers();
        let free_streams = core.free_streams();
        self.free_streams.store(free_streams, Ordering::Release);
        let slow_requests = core.take_slow_requests();
        let slow_answer = (!slow_requests.is_empty()).then(|| core.slow_answer());
        let reads = core
            .take_read_ahead()
            .map(|reads| (core.store().clone(), reads));
        drop(core);
        // Each request has its own thread, so that one that waits for the device does not delay the others.
        for (id, request) in slow_requests {
            let slow_answer = slow_answer.clone();
            self.perform(move |peer| {
                let answer = AssertUnwindSafe(|| slow_answer.and_then(|answer| answer(&request)));
                let answer = catch_unwind(answer);
                peer.with(|core| match answer {
                    Ok(answer) => core.complete(id, answer),
                    // Without an answer, the stream and at last all connections of the peer would wait for ever.
                    Err(_) => core.fail_slow_request(),
                });
            });
        }
        if let Some((store, reads)) = reads {
            self.perform(move |peer| {
                // The thread that needs these chunks reads them again, and reports what is wrong.
                _ = catch_unwind(AssertUnwindSafe(|| store.fetch(&reads)));
                peer.with(Core::end_read_ahead);
            });
        }
        for waker in wakers {
            waker.wake();
        }
    }

    /// Reads from the store on a thread that may block. The thread ends with its reads.
    fn perform(&self, reads: impl FnOnce(&Self) + Send + 'static) {
        match (&self.runtime, self.me.upgrade()) {
            (Some(runtime), Some(me)) => drop(runtime.spawn_blocking(move || reads(&me))),
            _ => reads(self),
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Peer")
    }
}
