//! Places among a worker's connections to the origin, and the idle connections that occupy some of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use edgeward_types::Timestamp;
use hyper::client::conn::http1;

use super::h1;
use super::orphans::Orphans;
use super::queue::{ClientNet, Queue, Shares};
use super::upload::{Upload, UploadProgress};
use crate::base::clock::Clock;
use crate::base::counters::Counters;
use crate::base::sparse_log::SparseLog;
use crate::base::tasks::TaskSet;

/// The state of the pool that leases share.
pub(super) struct PoolState {
    pub(super) idle: RefCell<Vec<IdleConnection>>,
    pub(super) idle_max: usize,
    pub(super) open: Cell<usize>,
    /// Bound of `open`.
    pub(super) open_max: usize,
    pub(super) idle_timeout: Duration,
    pub(super) shares: Shares,
    pub(super) waiting: RefCell<Queue<Rc<Ticket>>>,
    pub(super) busy_log: SparseLog,
    pub(super) orphans: Orphans,
    pub(super) counters: Arc<Counters>,
    pub(super) clock: Arc<Clock>,
    pub(super) tasks: TaskSet,
}

pub(super) struct IdleConnection {
    pub(super) connection: Reusable,
    pub(super) since: Timestamp,
}

/// A connection that may serve another request.
pub(super) enum Reusable {
    /// A connection of hyper, for requests with a body.
    Hyper(http1::SendRequest<Upload>),
    /// A connection for requests without a body.
    Direct(h1::Connection),
}

impl Reusable {
    pub(super) fn is_hyper(&self) -> bool {
        matches!(self, Self::Hyper(_))
    }

    pub(super) fn is_usable(&mut self) -> bool {
        match self {
            Self::Hyper(sender) => !sender.is_closed(),
            Self::Direct(connection) => connection.is_quiet(),
        }
    }
}

impl PoolState {
    pub(super) fn has_idle(&self, accepts: fn(&Reusable) -> bool) -> bool {
        self.idle
            .borrow()
            .iter()
            .any(|idle| accepts(&idle.connection))
    }

    /// Takes the youngest usable connection that `accepts` accepts.
    fn pop_idle(&self, accepts: fn(&Reusable) -> bool) -> Option<Reusable> {
        loop {
            let mut idle = {
                let mut idle = self.idle.borrow_mut();
                let at = idle
                    .iter_mut()
                    .rposition(|idle| accepts(&idle.connection))?;
                idle.remove(at)
            };
            if self.clock.now().since(idle.since) <= self.idle_timeout
                && idle.connection.is_usable()
            {
                return Some(idle.connection);
            }
            self.close_idle(idle);
        }
    }

    /// Returns true if requests wait for a connection.
    pub(super) fn is_contended(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Takes a place with an idle connection or for a new connection, if the client may have one more.
    pub(super) fn take(
        self: &Rc<Self>,
        client: ClientNet,
        reuse: bool,
        accepts: fn(&Reusable) -> bool,
    ) -> Option<Checkout> {
        if !self.shares.allows(client, self.free()) {
            return None;
        }
        if reuse && let Some(idle) = self.pop_idle(accepts) {
            return Some((Some(idle), Lease::reuse(self, Some(client))));
        }
        // If idle connections that cannot be used here hold all places, the oldest of them is closed.
        if self.open.get() < self.open_max || self.close_oldest() {
            return Some((None, Lease::open(self, Some(client))));
        }
        None
    }

    /// Returns the number of places that are not busy: without a connection, or with an idle one.
    pub(super) fn free(&self) -> usize {
        let busy = self.open.get() - self.idle.borrow().len();
        self.open_max.saturating_sub(busy)
    }

    /// Assigns free places to waiting requests.
    pub(super) fn serve_waiting(self: &Rc<Self>) {
        loop {
            let free = self.free();
            if free == 0 || !self.is_contended() {
                return;
            }
            let next = self
                .waiting
                .borrow_mut()
                .next(|client| self.shares.allows(client, free));
            let Some(ticket) = next else { return };
            match self.take(ticket.client, ticket.reuse, ticket.accepts) {
                Some(checkout) => ticket.serve(checkout),
                None => unreachable!("a place is free, and the client may have it"),
            }
        }
    }

    fn close_oldest(&self) -> bool {
        let oldest = {
            let mut idle = self.idle.borrow_mut();
            (!idle.is_empty()).then(|| idle.remove(0))
        };
        oldest.map(|idle| self.close_idle(idle)).is_some()
    }

    pub(super) fn close_idle(&self, idle: IdleConnection) {
        drop(idle);
        self.change_open(-1);
    }

    pub(super) fn change_open(&self, change: isize) {
        let open = self.open.get().checked_add_signed(change);
        self.open
            .set(open.expect("a connection closes once, after it was opened"));
        match change {
            1 => self.counters.origin_connections.increment(),
            _ => self.counters.origin_connections.decrement(),
        }
    }
}

/// A busy place among the pool's connections. Dropping it frees the place.
pub(super) struct Lease {
    pool: Rc<PoolState>,
    /// The client whose share includes the place. `None` for a connection that many clients use.
    client: Option<ClientNet>,
    sender: Option<http1::SendRequest<Upload>>,
    upload: Option<Rc<UploadProgress>>,
}

impl Lease {
    /// Returns the place of a new connection.
    pub(super) fn open(pool: &Rc<PoolState>, client: Option<ClientNet>) -> Self {
        pool.change_open(1);
        Self::reuse(pool, client)
    }

    /// Returns the place of a connection that was idle.
    pub(super) fn reuse(pool: &Rc<PoolState>, client: Option<ClientNet>) -> Self {
        if let Some(client) = client {
            pool.shares.acquire(client);
        }
        Self {
            pool: Rc::clone(pool),
            client,
            sender: None,
            upload: None,
        }
    }

    pub(super) fn with(
        mut self,
        sender: http1::SendRequest<Upload>,
        upload: Option<Rc<UploadProgress>>,
    ) -> Self {
        self.sender = Some(sender);
        self.upload = upload;
        self
    }

    /// Makes hyper's connection idle after a complete response, if it can serve another request.
    pub(super) fn release_sender(mut self) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        // An origin may answer before it has read the request. The next request on this connection would wait for the
        // rest of the upload.
        if self
            .upload
            .as_ref()
            .is_some_and(|upload| !upload.has_ended())
        {
            return;
        }
        if !sender.is_closed() {
            self.release(Reusable::Hyper(sender));
        }
    }

    /// Makes the connection idle, so that it can serve another request.
    pub(super) fn release(self, connection: Reusable) {
        if self.pool.idle.borrow().len() >= self.pool.idle_max {
            return;
        }
        // The place stays taken, now by an idle connection.
        self.pool.idle.borrow_mut().push(IdleConnection {
            connection,
            since: self.pool.clock.now(),
        });
        self.pool.change_open(1);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.change_open(-1);
        if let Some(upload) = &self.upload {
            upload.end_if_refused();
        }
        if let Some(client) = self.client {
            self.pool.shares.release(client);
        }
        if self.pool.is_contended() {
            self.pool.serve_waiting();
        }
    }
}

/// A place among the pool's connections: with an idle connection, or for a new one.
pub(super) type Checkout = (Option<Reusable>, Lease);

/// A waiting request.
pub(super) struct Ticket {
    pub(super) client: ClientNet,
    reuse: bool,
    accepts: fn(&Reusable) -> bool,
    state: RefCell<TicketState>,
}

enum TicketState {
    Waits(Option<Waker>),
    Served(Checkout),
    /// The queue was full, and another client waits with fewer requests.
    Displaced,
    Taken,
}

impl Ticket {
    pub(super) fn new(client: ClientNet, reuse: bool, accepts: fn(&Reusable) -> bool) -> Rc<Self> {
        Rc::new(Self {
            client,
            reuse,
            accepts,
            state: RefCell::new(TicketState::Waits(None)),
        })
    }

    /// Tells the request that it was removed from the queue.
    pub(super) fn displace(&self) {
        self.wake(TicketState::Displaced);
    }

    /// Assigns a place to the request.
    pub(super) fn serve(&self, checkout: Checkout) {
        self.wake(TicketState::Served(checkout));
    }

    fn wake(&self, state: TicketState) {
        let before = self.state.replace(state);
        if let TicketState::Waits(Some(waker)) = before {
            waker.wake();
        }
    }

    /// Takes the place that was assigned to the request, if any.
    pub(super) fn take_checkout(&self) -> Option<Checkout> {
        match self.state.replace(TicketState::Taken) {
            TicketState::Served(checkout) => Some(checkout),
            TicketState::Waits(_) | TicketState::Displaced | TicketState::Taken => None,
        }
    }

    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Checkout>> {
        let mut state = self.state.borrow_mut();
        if let TicketState::Waits(waker) = &mut *state {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.take_checkout())
    }
}
