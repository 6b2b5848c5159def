//! The wait of a request for a free slot of the pool of connections to the origin.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use edgeward_types::ClientNet;

use super::error::OriginError;
use super::lease::{Accepts, Checkout, PoolState, Ticket};
use super::queue::Queued;

/// Waits at most `timeout` for a slot. With `reuse`, prefers a slot with an idle connection that `accepts` accepts.
pub(super) async fn checkout(
    pool: &Rc<PoolState>,
    client: ClientNet,
    reuse: bool,
    accepts: Accepts,
    timeout: Duration,
) -> Result<Checkout, OriginError> {
    if let Some(checkout) = checkout_now(pool, client, reuse, accepts) {
        return Ok(checkout);
    }
    let ticket = Ticket::new(client, reuse, accepts);
    let queued = pool.waiting.borrow_mut().push(client, Rc::clone(&ticket));
    match queued {
        Queued::Waits => {}
        Queued::Displaced(other) => other.displace(),
        Queued::Full => {
            pool.counters.origin_waits_full.increment();
            return Err(busy(pool));
        }
    }
    pool.counters.origin_waiting.increment();
    let waiting = Waiting {
        pool,
        ticket,
        has_ended: false,
    };
    // This request gets a free slot now if the clients of all earlier requests have used up their shares.
    pool.serve_waiting();
    if pool.free_slots() == 0 {
        pool.orphans.cancel_oldest(&pool.counters);
    }
    waiting.wait(timeout).await
}

/// Leases a slot if one is free and no request waits.
pub(super) fn checkout_now(
    pool: &Rc<PoolState>,
    client: ClientNet,
    reuse: bool,
    accepts: Accepts,
) -> Option<Checkout> {
    let is_contended = pool.is_contended();
    (!is_contended).then(|| pool.lease_slot(client, reuse, accepts))?
}

/// A request in the queue. Dropping this value removes the request.
struct Waiting<'a> {
    pool: &'a Rc<PoolState>,
    ticket: Rc<Ticket>,
    has_ended: bool,
}

impl Waiting<'_> {
    async fn wait(mut self, timeout: Duration) -> Result<Checkout, OriginError> {
        let served = poll_fn(|cx| self.ticket.poll(cx));
        let ended = tokio::time::timeout(timeout, served).await;
        self.has_ended = true;
        let counters = &self.pool.counters;
        match ended {
            Ok(Some(checkout)) => {
                counters.origin_waits_served.increment();
                return Ok(checkout);
            }
            Ok(None) => counters.origin_waits_full.increment(),
            Err(_) => counters.origin_waits_timeout.increment(),
        }
        Err(busy(self.pool))
    }
}

/// Logs that a request got no connection. Returns the error of the request.
fn busy(pool: &PoolState) -> OriginError {
    if let Some(unlogged) = pool.busy_log.record(pool.clock.now()) {
        tracing::warn!(
            unlogged,
            connections_per_worker_max = pool.open_max,
            waiting = pool.counters.origin_waiting.value(),
            "a request got no connection to the origin"
        );
    }
    OriginError::Busy
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let counters = &self.pool.counters;
        counters.origin_waiting.decrement();
        if !self.has_ended {
            counters.origin_waits_given_up.increment();
        }
        let is_this = |ticket: &Rc<Ticket>| Rc::ptr_eq(ticket, &self.ticket);
        let mut waiting = self.pool.waiting.borrow_mut();
        waiting.remove(self.ticket.client, is_this);
        drop(waiting);
        // A slot that arrived after the timeout, or after this request was cancelled, goes to the next request.
        if let Some((idle, lease)) = self.ticket.take_checkout() {
            match idle {
                Some(idle) => lease.release(idle),
                None => drop(lease),
            }
        }
    }
}
