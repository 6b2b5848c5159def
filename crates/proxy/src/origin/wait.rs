//! A request's wait for a connection to the origin.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::error::OriginError;
use super::lease::{Lease, Reusable, Shared};
use super::queue::{ClientNet, Queued};

/// A place among the pool's connections: with an idle connection, or for a new one.
pub(super) type Place = (Option<Reusable>, Lease);

/// A waiting request.
pub(super) struct Ticket {
    pub(super) client: ClientNet,
    pub(super) reuse: bool,
    pub(super) pick: fn(&Reusable) -> bool,
    state: RefCell<State>,
}

enum State {
    Waits(Option<Waker>),
    Served(Place),
    /// The queue was full, and another client waits with fewer requests.
    Displaced,
    Taken,
}

impl Ticket {
    /// The request goes on with this place.
    pub(super) fn serve(&self, place: Place) {
        self.wake(State::Served(place));
    }

    fn wake(&self, state: State) {
        let before = self.state.replace(state);
        if let State::Waits(Some(waker)) = before {
            waker.wake();
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<Place>> {
        let mut state = self.state.borrow_mut();
        if let State::Waits(waker) = &mut *state {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(match std::mem::replace(&mut *state, State::Taken) {
            State::Served(place) => Some(place),
            _ => None,
        })
    }
}

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
    let ticket = Rc::new(Ticket {
        client,
        reuse,
        pick,
        state: RefCell::new(State::Waits(None)),
    });
    let queued = pool.waiting.borrow_mut().push(client, Rc::clone(&ticket));
    let id = match queued {
        Queued::Waits(id) => id,
        Queued::Displaced(id, other) => {
            other.wake(State::Displaced);
            id
        }
        Queued::Full => {
            pool.counters.origin_waits_full.one();
            return Err(busy(pool));
        }
    };
    pool.counters.origin_waiting.one();
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
                counters.origin_waits_served.one();
                return Ok(place);
            }
            Ok(None) => counters.origin_waits_full.one(),
            Err(_) => counters.origin_waits_timeout.one(),
        }
        Err(busy(self.pool))
    }
}

/// Logs that a request got no connection.
fn busy(pool: &Shared) -> OriginError {
    if let Some(unlogged) = pool.busy_log.next(pool.clock.now()) {
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
        counters.origin_waiting.less_one();
        if !self.ended {
            counters.origin_waits_given_up.one();
        }
        let left = self
            .pool
            .waiting
            .borrow_mut()
            .remove(self.ticket.client, self.id);
        drop(left);
        // A place that came too late goes to the next.
        let state = self.ticket.state.replace(State::Taken);
        if let State::Served((idle, lease)) = state {
            match idle {
                Some(idle) => lease.give_back(idle),
                None => drop(lease),
            }
        }
    }
}
