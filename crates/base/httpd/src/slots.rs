//! The table of a server's connections, with a signal for each connection that closes it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use edgeward_types::{AcceptError, ConnectionId, ConnectionLimits, ConnectionTable, Timestamp};

/// The connections of a server, up to its limits.
#[derive(Debug)]
pub struct Slots {
    state: Mutex<State>,
    started: Instant,
    /// Notified when a connection ends, or begins to wait for its client. A new connection may then replace it.
    space: Notify,
}

#[derive(Debug)]
struct State {
    table: ConnectionTable,
    /// For each open connection, the sender of its close signal. Dropping a sender closes the connection.
    close_senders: HashMap<ConnectionId, oneshot::Sender<()>>,
}

/// The entry of a connection in the table. Dropping it removes the connection.
#[derive(Debug)]
pub struct Slot {
    id: ConnectionId,
    slots: Arc<Slots>,
    /// True while the handler computes a response.
    is_answering: AtomicBool,
    /// True while a response is not completely written.
    is_writing: AtomicBool,
    /// Notified when a response is completely written.
    written: Notify,
}

/// A connection that the table has accepted.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The entry of the connection in the table.
    pub slot: Arc<Slot>,
    /// Completes when the connection must be closed because a new one takes its place.
    pub displaced: oneshot::Receiver<()>,
    /// True if another connection was closed for this one.
    pub has_replaced_another: bool,
}

impl Slots {
    /// Returns an empty table.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                table: ConnectionTable::new(limits),
                close_senders: HashMap::new(),
            }),
            started: Instant::now(),
            space: Notify::new(),
        })
    }

    /// Waits until the table would accept a connection of a new client.
    pub async fn wait_for_space(&self) {
        while !self.state().table.has_room() {
            self.space.notified().await;
        }
    }

    /// Adds a connection. If the table is full, closes another connection.
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> Result<AcceptedConnection, AcceptError> {
        let now = self.now();
        let mut state = self.state();
        let accepted = state.table.accept(from, now)?;
        if let Some(closed) = accepted.closed {
            state.close_senders.remove(&closed);
        }
        let (close_sender, displaced) = oneshot::channel();
        state.close_senders.insert(accepted.id, close_sender);
        drop(state);
        Ok(AcceptedConnection {
            slot: Arc::new(Slot {
                id: accepted.id,
                slots: Arc::clone(self),
                is_answering: AtomicBool::new(false),
                is_writing: AtomicBool::new(false),
                written: Notify::new(),
            }),
            displaced,
            has_replaced_another: accepted.closed.is_some(),
        })
    }

    fn now(&self) -> Timestamp {
        Timestamp::ZERO.after(self.started.elapsed())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Waits until the previous response of the connection is written completely.
    pub(crate) async fn written(&self) {
        while self.is_writing.load(Ordering::Relaxed) {
            self.written.notified().await;
        }
    }

    /// Records that the head of a request has arrived and the handler works on it.
    pub(crate) fn begin_answer(&self) {
        self.is_answering.store(true, Ordering::Relaxed);
        self.slots.state().table.serve(self.id);
    }

    /// Records that the handler has returned a response, which now has to be written.
    pub(crate) fn end_answer(&self) {
        self.is_answering.store(false, Ordering::Relaxed);
        self.is_writing.store(true, Ordering::Relaxed);
    }

    /// Records that the client has read `PROGRESS_BYTES` of a response (see `client_stream`), or has sent as many of a
    /// body, or all of it. The connection then no longer counts as waiting for its client.
    pub(crate) fn resume(&self) {
        self.slots.state().table.resume(self.id);
    }

    /// Records that the socket has accepted all written bytes.
    pub(crate) fn record_flush(&self) {
        if !self.is_answering.load(Ordering::Relaxed) {
            self.is_writing.store(false, Ordering::Relaxed);
            self.written.notify_one();
        }
        self.wait_for_client();
    }

    /// Records that the connection waits until the client has sent the body of its request.
    pub(crate) fn wait_for_body(&self) {
        let now = self.slots.now();
        self.slots.state().table.wait(self.id, now);
        self.slots.space.notify_one();
    }

    /// Records that the connection waits until the client sends or reads bytes.
    pub(crate) fn wait_for_client(&self) {
        if !self.is_answering.load(Ordering::Relaxed) {
            self.wait_for_body();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.table.leave(self.id);
        state.close_senders.remove(&self.id);
        drop(state);
        self.slots.space.notify_one();
    }
}
