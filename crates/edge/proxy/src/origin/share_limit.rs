//! Limits the number of operations under way, in total and for each client.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use edgeward_types::ClientNet;

use super::queue::Shares;

/// A limit of operations of one kind: each of them takes a slot.
pub(super) struct ShareLimit {
    in_use: Cell<usize>,
    max: usize,
    shares: Shares,
}

/// A slot of a [`ShareLimit`], in use until dropped.
pub(crate) struct ShareSlot {
    limit: Rc<ShareLimit>,
    client: ClientNet,
}

impl ShareLimit {
    /// Returns a limit of `max` slots, of which a single client may take `percent`: see [`queue`](super::queue).
    pub(super) fn new(max: usize, percent: u32) -> Rc<Self> {
        Rc::new(Self {
            in_use: Cell::new(0),
            max,
            shares: Shares::new(percent),
        })
    }

    /// Takes a slot. Returns `None` if this client, or all clients together, use as many slots as they may.
    pub(super) fn take(self: &Rc<Self>, client: IpAddr) -> Option<ShareSlot> {
        let client = ClientNet::from(client);
        let in_use = self.in_use.get();
        let free = self.max.saturating_sub(in_use);
        self.shares.allows(client, free).then(|| {
            self.in_use.set(in_use + 1);
            self.shares.acquire(client);
            ShareSlot {
                limit: Rc::clone(self),
                client,
            }
        })
    }

    pub(super) fn max(&self) -> usize {
        self.max
    }
}

impl Drop for ShareSlot {
    fn drop(&mut self) {
        let limit = &self.limit;
        limit.in_use.set(limit.in_use.get() - 1);
        limit.shares.release(self.client);
    }
}
