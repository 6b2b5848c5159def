//! The state of a peer behind a lock, and the messages to the task of the peer.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use edgeward_dedup::sender::SendError;

use crate::connection::{Connection, ConnectionError};
use crate::core::{Core, DuplexId};
use crate::driver::Driver;
use crate::label::Target;
use crate::ready::Ready;
use crate::stream::Pipes;

/// A peer. Its task ([`Driver`]) holds the lock of the state for one slice at a time, while it cuts, hashes, compresses
/// or assembles bytes. Others hold it for microseconds: handshakes, reports of the status, answers of the store, and
/// the end of a peer. The users of streams never take it.
pub(crate) struct Peer {
    core: Mutex<Core>,
    arrivals: mpsc::Sender<Arrival>,
    ready: Arc<Ready>,
    /// This peer, for the threads that answer requests to the store.
    me: Weak<Self>,
    /// The runtime whose threads may block. `None` in tests without a runtime: requests then block.
    runtime: Option<Handle>,
    /// True while a task waits for the peer's next connection. A second task must not wait for the same connection.
    has_waiting_task: AtomicBool,
    /// The state when the lock was last released, for readers that must not wait for the lock: the number of streams
    /// that could be opened, the number of connections, and the number of unacknowledged and unread bytes.
    free_streams: AtomicUsize,
    connections: AtomicUsize,
    memory_bytes: AtomicU64,
    /// The number of slots that are reserved for streams.
    reserved_streams: AtomicUsize,
}

/// A message to the task of a peer.
pub(crate) enum Arrival {
    /// A connection that was added to the core. The sender gets the reason when it has ended.
    Connection(Box<Connection>, oneshot::Sender<ConnectionError>),
    /// Opens a stream.
    Open {
        target: Target,
        pipes: Pipes,
        slot: StreamSlot,
    },
    /// Accepts a stream that the peer has opened.
    Accept { id: DuplexId, pipes: Pipes },
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
    /// Creates a peer and its task. The last value is the queue of the streams that the peer opens.
    pub(crate) fn new(
        core: Core,
    ) -> (
        Arc<Self>,
        Driver,
        mpsc::UnboundedReceiver<(DuplexId, Target)>,
    ) {
        let (arrivals, receiver) = mpsc::channel(ARRIVALS_MAX);
        let peer = Arc::new_cyclic(|me| Self {
            arrivals,
            ready: Arc::default(),
            free_streams: AtomicUsize::new(core.free_streams()),
            connections: AtomicUsize::new(core.connection_count()),
            memory_bytes: AtomicU64::new(core.memory_bytes()),
            reserved_streams: AtomicUsize::new(0),
            core: Mutex::new(core),
            me: Weak::clone(me),
            runtime: Handle::try_current().ok(),
            has_waiting_task: AtomicBool::new(false),
        });
        let (driver, opened) = Driver::new(Arc::clone(&peer), receiver);
        (peer, driver, opened)
    }

    pub(crate) fn ready(&self) -> &Arc<Ready> {
        &self.ready
    }

    /// Passes a message to the task of the peer. Fails if too many messages wait.
    pub(crate) fn send(&self, arrival: Arrival) -> Result<(), SendError> {
        let sent = self.arrivals.try_send(arrival);
        sent.map_err(|_| SendError::TooManyStreams)
    }

    /// Passes a connection to the task of the peer, and waits until it has ended. Dropping the future closes it.
    pub(crate) async fn run_connection(&self, connection: Connection) -> ConnectionError {
        let (sender, ended) = oneshot::channel();
        let arrival = Arrival::Connection(Box::new(connection), sender);
        if self.arrivals.send(arrival).await.is_err() {
            return ConnectionError::Superseded;
        }
        ended.await.unwrap_or(ConnectionError::Superseded)
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

    /// Returns the number of connections, without waiting for the lock.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Returns the number of unacknowledged and unread bytes, without waiting for the lock.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Acquire)
    }

    /// Returns true if a slot is reserved whose stream is not open yet.
    pub(crate) fn has_reserved(&self) -> bool {
        self.reserved_streams.load(Ordering::Acquire) > 0
    }

    /// Runs an action under the lock, and then wakes the task of the peer.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut Core) -> R) -> R {
        let mut core = self.lock();
        let result = action(&mut core);
        self.release(core);
        self.ready.wake();
        result
    }

    /// Takes the lock. The caller [releases](Self::release) it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(|poisoned| {
            // The panic of another task may have left the state machines inconsistent.
            tracing::error!("a task of the link has panicked: all streams of its peer end");
            self.core.clear_poison();
            let mut core = poisoned.into_inner();
            core.restart();
            core
        })
    }

    /// Releases the lock, and begins the reads of the store that have become necessary.
    pub(crate) fn release(&self, mut core: MutexGuard<'_, Core>) {
        self.free_streams
            .store(core.free_streams(), Ordering::Release);
        self.connections
            .store(core.connection_count(), Ordering::Release);
        self.memory_bytes
            .store(core.memory_bytes(), Ordering::Release);
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
    }

    /// Reads from the store on a thread that may block. The thread ends with its reads.
    fn perform(&self, reads: impl FnOnce(&Self) + Send + 'static) {
        match (&self.runtime, self.me.upgrade()) {
            (Some(runtime), Some(me)) => drop(runtime.spawn_blocking(move || reads(&me))),
            _ => reads(self),
        }
    }
}

/// The highest number of messages that wait for the task of a peer. Most are streams of the last milliseconds.
pub(crate) const ARRIVALS_MAX: usize = 64 << 10;

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Peer")
    }
}
