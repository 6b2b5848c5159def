//! Memory that clients keep the edge from freeing, by connection.
//!
//! A body that a client reads slowly stays in memory after its object has left the cache. The cache charges such bytes to its
//! budget (`edgeward_store::hot`) and admits nothing above a bound. This module finds the connections that pin them: each
//! connection lists the pieces of memory that were handed to it and that its client has not taken. While the bound is exceeded
//! the sweep compares the connections and closes those that take longest to free what they pin.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes};
use edgeward_store::hot::Hold;
use edgeward_types::{KeyHash, Timestamp};

use crate::client_io::{ConnState, Overdue};
use crate::stored::{StoredBody, StoredKind};
use crate::worker::{Shared, Worker};

/// Bytes whose memory is charged to a budget until the last reference to them is dropped.
pub(crate) fn charged<B, C>(bytes: B, charge: C) -> Bytes
where
    B: AsRef<[u8]> + Send + 'static,
    C: Send + 'static,
{
    Bytes::from_owner(Charged {
        bytes,
        _charge: charge,
    })
}

struct Charged<B, C> {
    bytes: B,
    _charge: C,
}

impl<B: AsRef<[u8]>, C> AsRef<[u8]> for Charged<B, C> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Whose memory a piece of a body is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Memory {
    /// Nobody's worth counting.
    #[default]
    Uncounted,
    /// A body's that the cache has under this key, or had. All of it stays in memory with any part of it.
    Cached { key: KeyHash, body_bytes: u64 },
    /// The piece's own: read from the disk or the origin for this client.
    Own,
}

/// What a connection's client has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    places: RefCell<Vec<Option<HeldPiece>>>,
    /// Since when the sweep compares this connection with others, and how many bytes it had written by then.
    watched: Cell<Option<(Timestamp, u64)>>,
}

#[derive(Clone, Copy, Debug)]
struct HeldPiece {
    memory: Memory,
    address: usize,
    bytes: usize,
}

/// Lists a piece with its connection until dropped.
#[derive(Debug)]
pub(crate) struct Holding {
    conn: Rc<ConnState>,
    place: usize,
    /// Of a piece with memory of its own.
    _charge: Option<Hold>,
}

impl Holding {
    /// Lists `bytes`, unless they are nobody's worth counting.
    pub(crate) fn new(
        shared: &Shared,
        conn: &Rc<ConnState>,
        memory: Memory,
        bytes: &Bytes,
    ) -> Option<Self> {
        let charge = match memory {
            _ if bytes.is_empty() => return None,
            Memory::Uncounted => return None,
            Memory::Cached { .. } => None,
            Memory::Own => Some(shared.hot.hold(bytes.len() as u64)),
        };
        let piece = HeldPiece {
            memory,
            address: bytes.as_ptr().addr(),
            bytes: bytes.len(),
        };
        let mut places = conn.pieces().places.borrow_mut();
        let place = match places.iter().position(Option::is_none) {
            Some(free) => {
                places[free] = Some(piece);
                free
            }
            None => {
                places.push(Some(piece));
                places.len() - 1
            }
        };
        Some(Self {
            conn: Rc::clone(conn),
            place,
            _charge: charge,
        })
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut places = self.conn.pieces().places.borrow_mut();
        places[self.place] = None;
        while let Some(None) = places.last() {
            places.pop();
        }
    }
}

/// A piece of a body on its way through hyper, listed with its connection until hyper has written or dropped it.
#[derive(Debug)]
pub(crate) struct ClientBytes {
    bytes: Bytes,
    _holding: Option<Rc<Holding>>,
}

impl ClientBytes {
    pub(crate) fn new(bytes: Bytes, holding: Option<Rc<Holding>>) -> Self {
        Self {
            bytes,
            _holding: holding,
        }
    }
}

impl Buf for ClientBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}

/// When connections were last closed for what they pinned, for the log.
#[derive(Debug, Default)]
pub(crate) struct PinnedLog {
    logged_millis: AtomicU64,
    unlogged: AtomicU64,
}

impl PinnedLog {
    /// Counts closed connections. The number to log, if it is time for a line.
    fn closed(&self, connections: u64, now: Timestamp) -> Option<u64> {
        let all = self.unlogged.fetch_add(connections, Ordering::Relaxed) + connections;
        let now = now.as_millis();
        let last = self.logged_millis.load(Ordering::Relaxed);
        let interval = u64::try_from(LOG_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        if last != 0 && now.saturating_sub(last) < interval {
            return None;
        }
        self.logged_millis
            .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        self.unlogged.fetch_sub(all, Ordering::Relaxed);
        Some(all)
    }
}

/// While pinned bytes exceed their bound: closes the connections that free what they pin most slowly.
///
/// Each worker closes its share of the excess, by what its own connections pin, so that workers need not wait for each other.
pub(crate) fn sweep(worker: &Worker, now: Timestamp) {
    let (pinned, pinned_max) = worker.shared.hot.pinned_bytes();
    let excess = pinned.saturating_sub(pinned_max);
    let connections = worker.connections.borrow();
    if excess == 0 {
        for conn in connections.iter() {
            conn.pieces().watched.set(None);
        }
        return;
    }
    let mut all = 0_u64;
    let mut readers = Vec::new();
    for conn in connections.iter().filter(|conn| conn.verdict().is_none()) {
        let pins = conn.pieces().pinned_bytes(&worker.shared);
        let pieces = conn.pieces();
        if pins == 0 {
            pieces.watched.set(None);
            continue;
        }
        all += pins;
        match pieces.watched.get() {
            None => pieces.watched.set(Some((now, conn.written_bytes()))),
            Some((since, written)) if now.since(since) >= WATCH => {
                let progress = conn.written_bytes().saturating_sub(written) as f64;
                let secs = now.since(since).as_secs_f64();
                readers.push((progress / secs / pins as f64, pins, Rc::clone(conn)));
            }
            Some(_) => {}
        }
    }
    // One body may be pinned by several connections, so that closing one frees nothing: the next sweep goes on.
    let share = (excess as f64 * (all as f64 / pinned as f64).min(1.0)).ceil() as u64;
    readers.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut freed = 0;
    let mut closed = 0;
    for (_, pins, conn) in readers {
        if freed >= share {
            break;
        }
        freed += pins;
        closed += 1;
        conn.condemn(Overdue::Pinned);
    }
    if closed > 0
        && let Some(connections) = worker.shared.pinned_log.closed(closed, now)
    {
        tracing::warn!(
            connections,
            pinned_bytes = pinned,
            pinned_bytes_max = pinned_max,
            "slow readers of evicted objects were disconnected: they pinned more memory than hot.pinned_bytes_max"
        );
    }
}

impl Pieces {
    /// Bytes that this connection keeps from being freed: of bodies that have left the cache, and of pieces of its own.
    fn pinned_bytes(&self, shared: &Shared) -> u64 {
        let places = self.places.borrow();
        places
            .iter()
            .flatten()
            .map(|piece| piece.pinned_bytes(shared))
            .sum()
    }
}

impl HeldPiece {
    fn pinned_bytes(&self, shared: &Shared) -> u64 {
        let Memory::Cached { key, body_bytes } = self.memory else {
            return self.bytes as u64;
        };
        let is_resident = shared.hot.peek(key).is_some_and(|stored| {
            let StoredKind::Response(response) = &stored.kind else {
                return false;
            };
            let StoredBody::Memory(body) = &response.body else {
                return false;
            };
            body.as_ptr_range()
                .contains(&std::ptr::without_provenance(self.address))
        });
        if is_resident { 0 } else { body_bytes }
    }
}

/// How long connections are compared before the first is closed: a reader of 100 Mbit/s takes 12 MB in it.
const WATCH: Duration = Duration::from_secs(1);

/// The least time between two lines of the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
