//! Keeps the memory of connections within `limits.connections_bytes_max`, that of their heads within
//! `limits.heads_bytes_max`, and frees memory under `overload.memory_max`.
//!
//! The rule: under pressure the heaviest holders are closed first, and newcomers and hits go last. The address (IPv6:
//! the network of 64 bits) whose connections hold most loses its heaviest connection, until enough is freed, see
//! [`heaviest_first`]. An address with a small share loses nothing, however many connections others open.
//!
//! Each worker closes connections for its share of the excess, which is in proportion to the bytes that its own
//! connections hold, and only of addresses that hold at least half as much as the heaviest one of any worker. The
//! workers therefore need no common lock.

use std::rc::Rc;

use edgeward_overload::{Holder, heaviest_first, heaviest_owner};
use edgeward_types::{ClientNet, Timestamp};

use super::worker::{LastRelief, Worker};
use crate::exchange::{CloseReason, ConnState};
use crate::rt::budget::MemoryBudget;

impl Worker {
    /// Closes connections if all connections hold more than [`RELIEF_EIGHTHS`] of their budget, or of that of the heads
    /// of HTTP/2 and HTTP/3 requests. Cheap if they do not.
    pub(crate) fn relieve_connections(&self) {
        let shared = &self.shared;
        self.relieve(
            &shared.budgets.connections,
            ConnState::held_bytes,
            &self.reliefs.connections,
        );
        self.relieve(
            &shared.budgets.heads,
            ConnState::head_bytes,
            &self.reliefs.heads,
        );
    }

    fn relieve(&self, budget: &MemoryBudget, held_by: fn(&ConnState) -> u64, last: &LastRelief) {
        let (used, max) = (budget.used_bytes(), budget.max_bytes());
        if used <= max / 8 * RELIEF_EIGHTHS {
            return;
        }
        // The tasks of the connections that the last call has closed may not have run yet.
        let (ended, used_then) = last.get();
        if self.connections.borrow().ended() < ended && used < used_then + max / 32 {
            return;
        }
        let now = self.now();
        let conns = self.holders(now, held_by, 0);
        let excess = (used - max / 8 * GOAL_EIGHTHS).saturating_sub(conns.closing_bytes);
        let held: u64 = conns.holders.iter().map(|holder| holder.bytes).sum();
        let share = (excess as f64 * (held as f64 / used as f64).min(1.0)).ceil() as u64;
        let closed = self.close_holders(&conns, share, now);
        let ended = self.connections.borrow().ended() + closed as u64;
        last.set((ended, used));
    }

    /// Frees memory while the process exceeds `overload.memory_max`: an eighth of the bytes that connections of this
    /// worker hold, beyond those that any open connection takes.
    pub(super) fn relieve_process(&self, now: Timestamp) {
        if !self.shared.health.lacks_memory() {
            return;
        }
        let held_by = |conn: &ConnState| conn.held_bytes() + conn.head_bytes();
        let conns = self.holders(now, held_by, LIGHT_BYTES);
        let held: u64 = conns.holders.iter().map(|holder| holder.bytes).sum();
        let share = (held / 8).saturating_sub(conns.closing_bytes);
        self.close_holders(&conns, share, now);
    }

    /// Returns the connections that hold more than `bytes_min`.
    fn holders(&self, now: Timestamp, held_by: fn(&ConnState) -> u64, bytes_min: u64) -> Holders {
        let mut found = Holders::default();
        for conn in self.connections.borrow().iter() {
            let bytes = held_by(conn);
            if conn.close_reason().is_some() {
                found.closing_bytes += bytes;
            } else if bytes > bytes_min {
                let since = conn.last_progress();
                let is_active = now.since(since) < edgeward_types::IDLE_AFTER;
                found.holders.push(Holder {
                    owner: conn.net(),
                    bytes,
                    is_last: is_active && bytes <= LIGHT_BYTES,
                    since: since.as_millis(),
                });
                found.conns.push(Rc::clone(conn));
            }
        }
        found
    }

    /// Closes connections that hold `share` bytes. Returns their number.
    fn close_holders(&self, conns: &Holders, share: u64, now: Timestamp) -> usize {
        let health = &self.shared.health;
        self.heart()
            .set_heaviest_client(heaviest_owner(&conns.holders));
        let heaviest = health.hearts().iter().map(|heart| heart.heaviest_client());
        let client_bytes_min = heaviest.max().unwrap_or(0) / 2;
        let closed = heaviest_first(&conns.holders, share, client_bytes_min);
        for &index in &closed {
            conns.conns[index].close(CloseReason::Memory);
        }
        if let Some(&first) = closed.first()
            && let Some(unlogged) = self.warnings.memory.record(now)
        {
            let client = conns.holders[first].owner.map(ClientNet::first);
            tracing::warn!(
                connections = closed.len(),
                client = client.map(tracing::field::display),
                unlogged,
                bytes = self.shared.budgets.connections.used_bytes(),
                bytes_max = self.shared.budgets.connections.max_bytes(),
                "the connections that held most memory were closed: see limits.connections_bytes_max, \
                 limits.heads_bytes_max and overload.memory_max"
            );
        }
        closed.len()
    }
}

/// The connections of a worker that may be closed, in the same order as `holders`.
#[derive(Default)]
struct Holders {
    holders: Vec<Holder<Option<ClientNet>>>,
    conns: Vec<Rc<ConnState>>,
    /// The bytes of connections that are closing already.
    closing_bytes: u64,
}

/// Eighths of the budget above which connections are closed, and to which. A request of HTTP/2 is refused only at the
/// whole budget, so newcomers are served while the holders are closed.
const RELIEF_EIGHTHS: u64 = 7;
const GOAL_EIGHTHS: u64 = 6;

/// A connection that holds at most this much may be any client's: an idle one of HTTP/2 with TLS, with a few requests.
const LIGHT_BYTES: u64 = 64 << 10;
