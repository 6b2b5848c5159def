//! Places of the publisher's connections.
//!
//! A connection waits for its client while it reads a request, while it is idle, and while the client does not take a
//! response. When all places are taken, the one that has waited longest is closed, of the address with the most. Only if
//! the publisher works for all of them does a new one wait in the system's queue.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use edgeward_types::{ConnectionId, ConnectionLimits, ConnectionTable, NoPlace};
use tokio::sync::{Notify, oneshot};

#[derive(Debug)]
pub(crate) struct Places {
    state: Mutex<State>,
    /// A connection ended, or began to wait for its client.
    room: Notify,
}

#[derive(Debug)]
struct State {
    table: ConnectionTable,
    /// Dropping one tells its connection to close.
    kept: HashMap<ConnectionId, oneshot::Sender<()>>,
}

/// The place of a connection; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Place {
    id: ConnectionId,
    places: Arc<Places>,
    /// A request is being answered.
    answering: AtomicBool,
}

/// A place, and whether another connection was closed for it.
pub(crate) struct Entered {
    pub(crate) place: Arc<Place>,
    /// Ends when another connection needs the place.
    pub(crate) displaced: oneshot::Receiver<()>,
    pub(crate) displaces: bool,
}

impl Places {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                table: ConnectionTable::new(limits),
                kept: HashMap::new(),
            }),
            room: Notify::new(),
        })
    }

    /// Waits until a connection of a client that has none would get a place.
    pub(crate) async fn room(&self) {
        while !self.state().table.has_room() {
            self.room.notified().await;
        }
    }

    pub(crate) fn enter(self: &Arc<Self>, from: IpAddr) -> Result<Entered, NoPlace> {
        let mut state = self.state();
        let accepted = state.table.accept(from)?;
        if let Some(closed) = accepted.closed {
            state.kept.remove(&closed);
        }
        let (keep, displaced) = oneshot::channel();
        state.kept.insert(accepted.id, keep);
        drop(state);
        Ok(Entered {
            place: Arc::new(Place {
                id: accepted.id,
                places: Arc::clone(self),
                answering: AtomicBool::new(false),
            }),
            displaced,
            displaces: accepted.closed.is_some(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// A request came whole.
    pub(crate) fn begin_answer(&self) {
        self.answering.store(true, Ordering::Relaxed);
        self.places.state().table.serve(self.id);
    }

    /// The answer is made; it has to be written.
    pub(crate) fn end_answer(&self) {
        self.answering.store(false, Ordering::Relaxed);
    }

    /// The client took enough of an answer to be left alone for now.
    pub(crate) fn moved(&self) {
        self.places.state().table.resume(self.id);
    }

    /// Nothing can go on before the client sends or takes bytes.
    pub(crate) fn wait_for_client(&self) {
        if !self.answering.load(Ordering::Relaxed) {
            self.places.state().table.wait(self.id);
            self.places.room.notify_one();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.table.leave(self.id);
        state.kept.remove(&self.id);
        drop(state);
        self.places.room.notify_one();
    }
}
