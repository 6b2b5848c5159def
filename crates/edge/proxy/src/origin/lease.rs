//! The slots for a worker's connections to the origin. A slot that is not leased is empty or has an idle connection.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use edgeward_balance::ServerId;
use edgeward_types::{ClientNet, Timestamp};
use http::StatusCode;
use hyper::client::conn::http1;

use super::h1;
use super::orphans::Orphans;
use super::outbound::Outbound;
use super::queue::{Queue, Shares};
use super::upload::{Upload, UploadProgress};
use crate::config::OriginConfig;
use crate::observe::counters::Counters;
use crate::observe::log::SparseLog;
use crate::observe::metric_labels::WorkerTally;
use crate::observe::origin_counters::OriginCounters;
use crate::observe::site_counters::FetchClass;
use crate::rt::clock::Clock;
use crate::rt::tasks::TaskSet;

/// The slots of an origin at one worker, which the pools of its servers share with their leases.
pub(super) struct PoolState {
    /// The idle connections, the longest idle first.
    pub(super) idle: RefCell<Vec<IdleConnection>>,
    pub(super) idle_max: usize,
    /// The number of open connections, leased or idle.
    pub(super) open: Cell<usize>,
    /// The number of slots.
    pub(super) open_max: usize,
    pub(super) idle_timeout: Duration,
    /// Limits the slots that one client uses.
    pub(super) shares: Shares,
    pub(super) waiting: RefCell<Queue<Rc<Ticket>>>,
    pub(super) busy_log: SparseLog,
    pub(super) orphans: Orphans,
    pub(super) counters: Arc<Counters>,
    /// The counters of the origin.
    pub(super) tally: RefCell<WorkerTally<OriginCounters>>,
    pub(super) clock: Arc<Clock>,
    pub(super) tasks: TaskSet,
}

pub(super) struct IdleConnection {
    pub(super) server: ServerId,
    pub(super) connection: PooledConnection,
    pub(super) since: Timestamp,
}

/// A connection that may serve another request.
pub(super) enum PooledConnection {
    /// A connection that hyper reads and writes. It can serve requests with a body.
    Hyper(http1::SendRequest<Upload>),
    /// A connection of this crate's HTTP/1.1 client, which sends requests without a body.
    Direct(Box<h1::Connection>),
}

/// The idle connections that a request can use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepts {
    pub(super) server: ServerId,
    pub(super) kind: AcceptedKind,
}

/// The kind of connections that a request can use.
#[derive(Clone, Copy, Debug)]
pub(super) enum AcceptedKind {
    Any,
    Hyper,
    Direct,
}

impl Accepts {
    fn accepts(self, idle: &IdleConnection) -> bool {
        idle.server == self.server
            && matches!(
                (self.kind, &idle.connection),
                (AcceptedKind::Any, _)
                    | (AcceptedKind::Hyper, PooledConnection::Hyper(_))
                    | (AcceptedKind::Direct, PooledConnection::Direct(_))
            )
    }
}

impl PooledConnection {
    pub(super) fn is_usable(&mut self) -> bool {
        match self {
            Self::Hyper(sender) => !sender.is_closed(),
            Self::Direct(connection) => connection.is_quiet(),
        }
    }
}

impl PoolState {
    pub(super) fn new(
        config: &OriginConfig,
        counters: Arc<Counters>,
        tally: WorkerTally<OriginCounters>,
        clock: Arc<Clock>,
    ) -> Self {
        Self {
            idle: RefCell::new(Vec::new()),
            // A connection with a PROXY header belongs to one client.
            idle_max: match config.proxy_protocol {
                None => config.idle_per_worker_max,
                Some(_) => 0,
            },
            open: Cell::new(0),
            open_max: config.connections_per_worker_max.get(),
            idle_timeout: config.idle_timeout,
            shares: Shares::new(config.client_share_percent),
            waiting: RefCell::new(Queue::new(config.queue_max)),
            orphans: Orphans::default(),
            busy_log: SparseLog::default(),
            counters,
            tally: RefCell::new(tally),
            clock,
            tasks: TaskSet::default(),
        }
    }

    /// Counts the head of a response, and the time from sending the request.
    pub(super) fn record_first_byte(
        &self,
        outbound: &Outbound<'_>,
        fetch: FetchClass,
        status: StatusCode,
        latency: Duration,
    ) {
        if let Some(settings) = &outbound.request.settings {
            settings.counters.record_first_byte(fetch, latency);
        }
        self.tally.borrow().record_response(status, latency);
    }

    pub(super) fn has_idle(&self, accepts: Accepts) -> bool {
        self.idle.borrow().iter().any(|idle| accepts.accepts(idle))
    }

    /// Takes the most recently used idle connection that is usable and that `accepts` accepts.
    fn pop_idle(&self, accepts: Accepts) -> Option<PooledConnection> {
        loop {
            let mut idle = {
                let mut idle = self.idle.borrow_mut();
                let at = idle.iter_mut().rposition(|idle| accepts.accepts(idle))?;
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

    /// Leases a slot to a client. If `reuse` is true, prefers a slot with an idle connection that `accepts` accepts.
    /// Returns `None` if all slots are leased or the client's share is used up.
    pub(super) fn lease_slot(
        self: &Rc<Self>,
        client: ClientNet,
        reuse: bool,
        accepts: Accepts,
    ) -> Option<Checkout> {
        if !self.shares.allows(client, self.free_slots()) {
            return None;
        }
        if reuse && let Some(idle) = self.pop_idle(accepts) {
            return Some((Some(idle), Lease::reuse(self, accepts.server, Some(client))));
        }
        // If all slots have connections, the connection that has been idle for the longest time is closed.
        if self.open.get() < self.open_max || self.close_oldest() {
            return Some((None, Lease::open(self, accepts.server, Some(client))));
        }
        None
    }

    /// Returns the number of slots that are not leased: without a connection, or with an idle connection.
    pub(super) fn free_slots(&self) -> usize {
        let busy = self.open.get() - self.idle.borrow().len();
        self.open_max.saturating_sub(busy)
    }

    /// Leases free slots to waiting requests.
    pub(super) fn serve_waiting(self: &Rc<Self>) {
        loop {
            let free = self.free_slots();
            if free == 0 || !self.is_contended() {
                return;
            }
            let next = self
                .waiting
                .borrow_mut()
                .next(|client| self.shares.allows(client, free));
            let Some(ticket) = next else { return };
            match self.lease_slot(ticket.client, ticket.reuse, ticket.accepts) {
                Some(checkout) => ticket.serve(checkout),
                None => unreachable!("a slot is free, and the share of the client allows it"),
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

    /// Closes the idle connections for which `is_closed` returns true.
    pub(super) fn close_idle_where(&self, mut is_closed: impl FnMut(&mut IdleConnection) -> bool) {
        let closed: Vec<IdleConnection> = {
            let mut idle = self.idle.borrow_mut();
            idle.extract_if(.., |idle| is_closed(idle)).collect()
        };
        for idle in closed {
            self.close_idle(idle);
        }
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

/// A slot that a request uses. Dropping the lease without a release frees the slot and closes its connection.
pub(super) struct Lease {
    pool: Rc<PoolState>,
    server: ServerId,
    /// The client whose share includes the slot. `None` for an HTTP/2 connection, which many clients use.
    client: Option<ClientNet>,
    sender: Option<http1::SendRequest<Upload>>,
    upload: Option<Rc<UploadProgress>>,
}

impl Lease {
    /// Leases the slot of a new connection.
    pub(super) fn open(pool: &Rc<PoolState>, server: ServerId, client: Option<ClientNet>) -> Self {
        pool.change_open(1);
        Self::reuse(pool, server, client)
    }

    /// Leases the slot of a connection that was idle.
    pub(super) fn reuse(pool: &Rc<PoolState>, server: ServerId, client: Option<ClientNet>) -> Self {
        if let Some(client) = client {
            pool.shares.acquire(client);
        }
        Self {
            pool: Rc::clone(pool),
            server,
            client,
            sender: None,
            upload: None,
        }
    }

    /// Returns true if requests wait for a slot.
    pub(super) fn is_contended(&self) -> bool {
        self.pool.is_contended()
    }

    /// Adds hyper's connection and the progress of the upload, which decide whether the connection is reused.
    pub(super) fn with_sender(
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
        // The origin has answered before the upload ended. The next request would wait for the rest of the upload.
        if self
            .upload
            .as_ref()
            .is_some_and(|upload| !upload.has_ended())
        {
            return;
        }
        if !sender.is_closed() {
            self.release(PooledConnection::Hyper(sender));
        }
    }

    /// Makes the connection idle, so that it can serve another request. Closes it if `idle_max` are idle already.
    pub(super) fn release(self, connection: PooledConnection) {
        if self.pool.idle.borrow().len() >= self.pool.idle_max {
            return;
        }
        // Dropping the lease subtracts one open connection. The idle connection is still open, so one is added here.
        self.pool.idle.borrow_mut().push(IdleConnection {
            server: self.server,
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

/// A lease, with the idle connection of its slot. If the slot has no connection, the caller opens one.
pub(super) type Checkout = (Option<PooledConnection>, Lease);

/// A request that waits for a slot.
pub(super) struct Ticket {
    pub(super) client: ClientNet,
    reuse: bool,
    accepts: Accepts,
    state: RefCell<TicketState>,
}

enum TicketState {
    Waiting(Option<Waker>),
    Served(Checkout),
    /// The request was removed from the full queue, because its client had the most waiting requests.
    Displaced,
    /// The checkout was taken.
    Taken,
}

impl Ticket {
    pub(super) fn new(client: ClientNet, reuse: bool, accepts: Accepts) -> Rc<Self> {
        Rc::new(Self {
            client,
            reuse,
            accepts,
            state: RefCell::new(TicketState::Waiting(None)),
        })
    }

    /// Records that the request was removed from the full queue, and wakes the request.
    pub(super) fn displace(&self) {
        self.wake(TicketState::Displaced);
    }

    /// Gives the request a slot, and wakes it.
    pub(super) fn serve(&self, checkout: Checkout) {
        self.wake(TicketState::Served(checkout));
    }

    fn wake(&self, state: TicketState) {
        let before = self.state.replace(state);
        if let TicketState::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }

    /// Takes the request's slot, if the request has got one.
    pub(super) fn take_checkout(&self) -> Option<Checkout> {
        match self.state.replace(TicketState::Taken) {
            TicketState::Served(checkout) => Some(checkout),
            TicketState::Waiting(_) | TicketState::Displaced | TicketState::Taken => None,
        }
    }

    /// Waits for a slot. Returns `None` if the request was removed from the queue.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Option<Checkout>> {
        let mut state = self.state.borrow_mut();
        if let TicketState::Waiting(waker) = &mut *state {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.take_checkout())
    }
}
