//! A place among a worker's connections to the origin, and the connections that wait on theirs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use edgeward_types::Timestamp;
use hyper::client::conn::http1;
use tokio::sync::Notify;

use super::h1;
use crate::clock::Clock;
use crate::counters::Counters;
use crate::request::{Upload, UploadProgress};
use crate::tasks::TaskSet;

/// What the bodies of responses need of the pool.
pub(super) struct Shared {
    pub(super) idle: RefCell<Vec<Idle>>,
    pub(super) idle_max: usize,
    pub(super) open: Cell<usize>,
    /// Signalled when a connection came back or was closed.
    pub(super) freed: Notify,
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
    pub(super) fn pop_idle(
        &self,
        timeout: Duration,
        pick: fn(&Reusable) -> bool,
    ) -> Option<Reusable> {
        loop {
            let mut idle = {
                let mut idle = self.idle.borrow_mut();
                let at = idle.iter_mut().rposition(|idle| pick(&idle.connection))?;
                idle.remove(at)
            };
            if self.clock.now().since(idle.since) <= timeout && idle.connection.is_usable() {
                return Some(idle.connection);
            }
            self.closed(idle);
        }
    }

    pub(super) fn close_oldest(&self) -> bool {
        let oldest = {
            let mut idle = self.idle.borrow_mut();
            (!idle.is_empty()).then(|| idle.remove(0))
        };
        oldest.map(|idle| self.closed(idle)).is_some()
    }

    pub(super) fn closed(&self, idle: Idle) {
        drop(idle);
        self.count(-1);
        self.freed.notify_one();
    }

    fn count(&self, change: isize) {
        let open = self.open.get().checked_add_signed(change);
        self.open
            .set(open.expect("a connection closes once, after it was opened"));
        match change {
            1 => self.counters.origin_connections.one(),
            _ => self.counters.origin_connections.less_one(),
        }
    }
}

/// A place among the pool's connections, given back when dropped: with a connection that can be
/// used again, or without one.
pub(super) struct Lease {
    pool: Rc<Shared>,
    sender: Option<http1::SendRequest<Upload>>,
    upload: Option<Rc<UploadProgress>>,
}

impl Lease {
    pub(super) fn open(pool: &Rc<Shared>) -> Self {
        pool.count(1);
        Self::counted(pool)
    }

    pub(super) fn counted(pool: &Rc<Shared>) -> Self {
        Self {
            pool: Rc::clone(pool),
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
        if self.upload.take().is_some_and(|upload| !upload.has_ended()) {
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
        self.pool.freed.notify_one();
    }
}
