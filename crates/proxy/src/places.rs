//! Places of connections that a server takes from anybody.
//!
//! A connection always gets a place: beyond the bound the one that has waited longest for its client is closed, of the
//! address that has the most. So whoever holds all places keeps nobody else out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use edgeward_types::{ConnectionId, ConnectionLimits, ConnectionTable};

#[derive(Debug)]
pub(crate) struct Places(Mutex<State>);

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
    closed: oneshot::Receiver<()>,
}

impl Places {
    pub(crate) fn new(connections_max: usize) -> Arc<Self> {
        let table = ConnectionTable::new(ConnectionLimits {
            connections_max,
            unserved_max: connections_max,
            // An address with half of the places replaces its own connections.
            per_client_max: connections_max.div_ceil(2),
        });
        Arc::new(Self(Mutex::new(State {
            table,
            kept: HashMap::new(),
        })))
    }

    /// A place for a connection; another one loses its place if need be.
    pub(crate) fn enter(self: &Arc<Self>, from: IpAddr) -> Place {
        let mut state = self.state();
        let accepted = state.table.accept(from);
        let accepted = accepted.expect("every connection here waits for its client");
        if let Some(closed) = accepted.closed {
            state.kept.remove(&closed);
        }
        let (keep, closed) = oneshot::channel();
        state.kept.insert(accepted.id, keep);
        drop(state);
        Place {
            id: accepted.id,
            places: Arc::clone(self),
            closed,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits until another connection needs the place.
    pub(crate) async fn displaced(&mut self) {
        _ = (&mut self.closed).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        state.table.leave(self.id);
        state.kept.remove(&self.id);
    }
}
