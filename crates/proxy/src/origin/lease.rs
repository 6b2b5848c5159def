//! A place among a worker's connections to the origin, and the connections that wait on theirs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use edgeward_types::Timestamp;
use hyper::client::conn::http1;

use super::h1;
use super::queue::{ClientNet, Queue, Shares};
use super::upload::{Upload, UploadProgress};
use crate::base::clock::Clock;
use crate::base::counters::Counters;
use crate::base::sparse_log::SparseLog;
use crate::base::tasks::TaskSet;

/// What the bodies of responses need of the pool.
pub(super) struct Shared {
    pub(super) idle: RefCell<Vec<Idle>>,
    pub(super) idle_max: usize,
    pub(super) open: Cell<usize>,
    /// Bound of `open`.
    pub(super) open_max: usize,
    pub(super) idle_timeout: Duration,
    pub(super) shares: Shares,
    pub(super) waiting: RefCell<Queue<Rc<Ticket>>>,
    pub(super) busy_log: SparseLog,
    pub(super) counters: Arc<Counters>,
    pub(super) clock: Arc<Clock>,
    pub(super) tasks: TaskSet,
}

pub(super) struct Idle {
    pub(super) connection: Reusable,
    pub(super) since: Timestamp,
}

/// A connection that may serve another request.
pub(super) enum Reusable {
    /// For requests with a body.
    Hyper(http1::SendRequest<Upload>),
    /// For all others.
    Own(h1::Connection),
}

impl Reusable {
    pub(super) fn is_hypers(&self) -> bool {
        matches!(self, Self::Hyper(_))
    }

    pub(super) fn is_usable(&mut self) -> bool {
        match self {
            Self::Hyper(sender) => !sender.is_closed(),
            Self::Own(connection) => connection.is_quiet(),
        }
    }
}

impl Shared {
    pub(super) fn has_idle(&self, pick: fn(&Reusable) -> bool) -> bool {
        self.idle.borrow().iter().any(|idle| pick(&idle.connection))
    }

    /// The youngest idle connection of a kind that can still be used.
    fn pop_idle(&self, pick: fn(&Reusable) -> bool) -> Option<Reusable> {
        loop {
            let mut idle = {
                let mut idle = self.idle.borrow_mut();
                let at = idle.iter_mut().rposition(|idle| pick(&idle.connection))?;
                idle.remove(at)
            };
            if self.clock.now().since(idle.since) <= self.idle_timeout
                && idle.connection.is_usable()
            {
                return Some(idle.connection);
            }
            self.closed(idle);
        }
    }

    /// Whether requests without an idle connection of their kind have to wait.
    pub(super) fn is_contended(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// An idle connection, if the client may have one more.
    pub(super) fn take_idle(
        self: &Rc<Self>,
        client: ClientNet,
        pick: fn(&Reusable) -> bool,
    ) -> Option<(Reusable, Lease)> {
        if !self.shares.allow(client, self.free()) {
            return None;
        }
        let idle = self.pop_idle(pick)?;
        Some((idle, Lease::counted(self, Some(client))))
    }

    /// A place with an idle connection on it, or one for a new connection, if the client may have one more.
    pub(super) fn take(
        self: &Rc<Self>,
        client: ClientNet,
        reuse: bool,
        pick: fn(&Reusable) -> bool,
    ) -> Option<(Option<Reusable>, Lease)> {
        if !self.shares.allow(client, self.free()) {
            return None;
        }
        if reuse && let Some(idle) = self.pop_idle(pick) {
            return Some((Some(idle), Lease::counted(self, Some(client))));
        }
        // An idle connection that is of no use here would hold its place forever: the oldest is closed.
        if self.open.get() < self.open_max || self.close_oldest() {
            return Some((None, Lease::open(self, Some(client))));
        }
        None
    }

    /// Places without a connection, and those with an idle one.
    fn free(&self) -> usize {
        let busy = self.open.get() - self.idle.borrow().len();
        self.open_max.saturating_sub(busy)
    }

    /// Gives free places to the requests that wait.
    pub(super) fn serve_waiting(self: &Rc<Self>) {
        loop {
            let free = self.free();
            if free == 0 || !self.is_contended() {
                return;
            }
            let next = self
                .waiting
                .borrow_mut()
                .next(|client| self.shares.allow(client, free));
            let Some(ticket) = next else { return };
            match self.take(ticket.client, ticket.reuse, ticket.pick) {
                Some(place) => ticket.serve(place),
                None => unreachable!("a place is free, and the client may have it"),
            }
        }
    }

    fn close_oldest(&self) -> bool {
        let oldest = {
            let mut idle = self.idle.borrow_mut();
            (!idle.is_empty()).then(|| idle.remove(0))
        };
        oldest.map(|idle| self.closed(idle)).is_some()
    }

    pub(super) fn closed(&self, idle: Idle) {
        drop(idle);
        self.count(-1);
    }

    pub(super) fn count(&self, change: isize) {
        let open = self.open.get().checked_add_signed(change);
        self.open
            .set(open.expect("a connection closes once, after it was opened"));
        match change {
            1 => self.counters.origin_connections.increment(),
            _ => self.counters.origin_connections.decrement(),
        }
    }
}

/// A place among the pool's connections, given back when dropped: with a connection that can be
/// used again, or without one.
pub(super) struct Lease {
    pool: Rc<Shared>,
    /// The client whose share the place is part of; none of a connection that many clients use.
    client: Option<ClientNet>,
    sender: Option<http1::SendRequest<Upload>>,
    upload: Option<Rc<UploadProgress>>,
}

impl Lease {
    /// A place for a new connection.
    pub(super) fn open(pool: &Rc<Shared>, client: Option<ClientNet>) -> Self {
        pool.count(1);
        Self::counted(pool, client)
    }

    /// The place of a connection that was idle.
    pub(super) fn counted(pool: &Rc<Shared>, client: Option<ClientNet>) -> Self {
        if let Some(client) = client {
            pool.shares.take(client);
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

    /// A response was read whole from hyper's connection: it may serve another request.
    pub(super) fn give_back_sender(mut self) {
        let Some(sender) = self.sender.take() else {
            return;
        };
        // An origin may answer before it has read the request. Whoever got this connection next would
        // wait for somebody else's upload.
        if self
            .upload
            .as_ref()
            .is_some_and(|upload| !upload.has_ended())
        {
            return;
        }
        if !sender.is_closed() {
            self.give_back(Reusable::Hyper(sender));
        }
    }

    /// The connection may serve another request.
    pub(super) fn give_back(self, connection: Reusable) {
        if self.pool.idle.borrow().len() >= self.pool.idle_max {
            return;
        }
        // The place stays taken, now by an idle connection.
        self.pool.idle.borrow_mut().push(Idle {
            connection,
            since: self.pool.clock.now(),
        });
        self.pool.count(1);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.count(-1);
        if let Some(upload) = &self.upload {
            upload.end_if_refused();
        }
        if let Some(client) = self.client {
            self.pool.shares.give_back(client);
        }
        if self.pool.is_contended() {
            self.pool.serve_waiting();
        }
    }
}

/// A place among the pool's connections: with an idle connection, or for a new one.
pub(super) type Place = (Option<Reusable>, Lease);

/// A waiting request.
pub(super) struct Ticket {
    pub(super) client: ClientNet,
    reuse: bool,
    pick: fn(&Reusable) -> bool,
    state: RefCell<TicketState>,
}

enum TicketState {
    Waits(Option<Waker>),
    Served(Place),
    /// The queue was full, and another client waits with fewer requests.
    Displaced,
    Taken,
}

impl Ticket {
    pub(super) fn new(client: ClientNet, reuse: bool, pick: fn(&Reusable) -> bool) -> Rc<Self> {
        Rc::new(Self {
            client,
            reuse,
            pick,
            state: RefCell::new(TicketState::Waits(None)),
        })
    }

    /// Takes the request's place in the queue from it.
    pub(super) fn displace(&self) {
        self.wake(TicketState::Displaced);
    }

    /// The request goes on with this place.
    pub(super) fn serve(&self, place: Place) {
        self.wake(TicketState::Served(place));
    }

    fn wake(&self, state: TicketState) {
        let before = self.state.replace(state);
        if let TicketState::Waits(Some(waker)) = before {
            waker.wake();
        }
    }

    /// The place that came while nobody waited for it any more.
    pub(super) fn leave(&self) -> Option<Place> {
        match self.state.replace(TicketState::Taken) {
            TicketState::Served(place) => Some(place),
            TicketState::Waits(_) | TicketState::Displaced | TicketState::Taken => None,
        }
    }

    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Place>> {
        let mut state = self.state.borrow_mut();
        if let TicketState::Waits(waker) = &mut *state {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.leave())
    }
}
