//! What a connection counts while it lasts: requests under way, and fetches whose client is gone.

use std::rc::Rc;

use super::ConnState;

/// One request under way. Dropped with its response's body.
#[derive(Debug)]
pub(crate) struct InFlight(Rc<ConnState>);

impl InFlight {
    pub(super) fn of(conn: &Rc<ConnState>) -> Self {
        Self(Rc::clone(conn))
    }

    pub(crate) fn conn(&self) -> &Rc<ConnState> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let conn = &self.0;
        conn.in_flight.set(conn.in_flight.get() - 1);
        if conn.in_flight.get() == 0 {
            conn.idle_since.set(conn.clock.now());
            conn.answered.set(true);
        }
        conn.client_turn_since.set(None);
        conn.upload_waits_since.set(None);
    }
}

/// A fetch whose client is gone.
#[derive(Debug)]
pub(crate) struct Orphan(Rc<ConnState>);

impl Orphan {
    pub(super) fn of(conn: &Rc<ConnState>) -> Self {
        Self(Rc::clone(conn))
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.0.orphans.set(self.0.orphans.get() - 1);
    }
}
