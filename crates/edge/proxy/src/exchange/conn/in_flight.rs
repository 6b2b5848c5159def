//! Guards that count a connection's requests under way, and its fetches that outlive their cancelled request.

use std::rc::Rc;

use super::conn_state::ConnState;

/// Counts one request as under way until dropped. The body of the response owns this value.
#[derive(Debug)]
pub(crate) struct InFlight(pub(super) Rc<ConnState>);

impl InFlight {
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
            conn.http1.response_ended.set(true); // hyper now has the complete last response.
        }
        // This request no longer waits for the client. Other requests set these fields again at their next wait.
        conn.client_turn_since.set(None);
        conn.upload_waits_since.set(None);
    }
}

/// Counts a fetch that continues after its request was cancelled, until dropped.
#[derive(Debug)]
pub(crate) struct Orphan(pub(super) Rc<ConnState>);

impl Drop for Orphan {
    fn drop(&mut self) {
        self.0.orphans.set(self.0.orphans.get() - 1);
    }
}

impl ConnState {
    /// Counts a request whose head is complete as under way until the returned value is dropped.
    pub(crate) fn begin_request(self: &Rc<Self>) -> InFlight {
        self.in_flight.set(self.in_flight.get() + 1);
        self.head_since.set(None);
        InFlight(Rc::clone(self))
    }

    /// Counts the fetch of a cancelled request until the returned value is dropped.
    pub(crate) fn begin_orphan(self: &Rc<Self>) -> Orphan {
        self.orphans.set(self.orphans.get() + 1);
        Orphan(Rc::clone(self))
    }

    /// Returns true if orphaned fetches and requests under way together reach `streams_max`. Without orphaned fetches,
    /// the limit is twice `streams_max`, because requests whose streams were just reset still count as under way.
    pub(crate) fn is_full_of_orphans(&self, streams_max: u32) -> bool {
        let (orphans, in_flight) = (self.orphans.get(), self.in_flight.get());
        (orphans > 0 && orphans.saturating_add(in_flight) >= streams_max)
            || in_flight >= streams_max.saturating_mul(2)
    }
}
