//! A request's wait for a connection to the origin.

use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use super::error::OriginError;
use super::lease::{Place, Reusable, Shared, Ticket};
use super::queue::{ClientNet, Queued};

/// Waits for a place, at most so long. A request that comes while none waits and a place is free does not wait.
pub(super) async fn place(
    pool: &Rc<Shared>,
    client: ClientNet,
    reuse: bool,
    pick: fn(&Reusable) -> bool,
    timeout: Duration,
) -> Result<Place, OriginError> {
    if !pool.is_contended()
        && let Some(place) = pool.take(client, reuse, pick)
    {
        return Ok(place);
    }
    let ticket = Ticket::new(client, reuse, pick);
    let queued = pool.waiting.borrow_mut().push(client, Rc::clone(&ticket));
    let id = match queued {
        Queued::Waits(id) => id,
        Queued::Displaced(id, other) => {
            other.displace();
            id
        }
        Queued::Full => {
            pool.counters.origin_waits_full.increment();
            return Err(busy(pool));
        }
    };
    pool.counters.origin_waiting.increment();
    let waiting = Waiting {
        pool,
        ticket,
        id,
        ended: false,
    };
    // The others may all be above their shares.
    pool.serve_waiting();
    waiting.end(timeout).await
}

/// A place in the queue, left when dropped.
struct Waiting<'a> {
    pool: &'a Rc<Shared>,
    ticket: Rc<Ticket>,
    id: u64,
    ended: bool,
}

impl Waiting<'_> {
    async fn end(mut self, timeout: Duration) -> Result<Place, OriginError> {
        let served = poll_fn(|cx| self.ticket.poll(cx));
        let ended = tokio::time::timeout(timeout, served).await;
        self.ended = true;
        let counters = &self.pool.counters;
        match ended {
            Ok(Some(place)) => {
                counters.origin_waits_served.increment();
                return Ok(place);
            }
            Ok(None) => counters.origin_waits_full.increment(),
            Err(_) => counters.origin_waits_timeout.increment(),
        }
        Err(busy(self.pool))
    }
}

/// Logs that a request got no connection.
fn busy(pool: &Shared) -> OriginError {
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
        if !self.ended {
            counters.origin_waits_given_up.increment();
        }
        let left = self
            .pool
            .waiting
            .borrow_mut()
            .remove(self.ticket.client, self.id);
        drop(left);
        // A place that came too late goes to the next.
        if let Some((idle, lease)) = self.ticket.leave() {
            match idle {
                Some(idle) => lease.give_back(idle),
                None => drop(lease),
            }
        }
    }
}
