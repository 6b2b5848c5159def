//! What the requests of one worker share, and what all workers share.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_semantics::{CacheStatus, format_http_date};
use edgeward_store::arena::Arena;
use edgeward_store::hot::{Offer, Recorder};
use edgeward_types::{KeyHash, Timestamp};
use http::{HeaderValue, StatusCode};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::access_log::{LogLine, Pending};
use crate::client_io::{ConnState, Overdue, SpareRank};
use crate::clock::Clock;
use crate::collapse::{Collapse, HitForMiss};
use crate::config::EdgeConfig;
use crate::counters::Counters;
use crate::delivery::Delivery;
use crate::disk::{DiskTier, Durable};
use crate::fill::FillBudget;
use crate::heads::HeadBudget;
use crate::negative::Negative;
use crate::origin::{OriginHealth, OriginPool};
use crate::pinned::{self, PinnedLog};
use crate::request::{ClientLink, FieldFilter, Hop, UploadProgress};
use crate::sparse_log::SparseLog;
use crate::stored::{Hot, Stored, StoredBody, StoredKind, StoredResponse};
use crate::tasks::TaskSet;

/// What all workers share. Nothing in it is locked on the way of a hit.
pub(crate) struct Shared {
    pub(crate) config: EdgeConfig,
    pub(crate) hot: Arc<Hot>,
    /// Where large bodies of `hot` lie; on the heap where the system has no such thing.
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) disk: Option<Arc<DiskTier>>,
    /// Devices of the disk cache that are not used, because they are damaged.
    pub(crate) disk_damaged: Vec<String>,
    pub(crate) collapse: Arc<Collapse>,
    pub(crate) hit_for_miss: HitForMiss,
    pub(crate) negative: Negative,
    pub(crate) fill_budget: Arc<FillBudget>,
    /// Memory of request bodies that are read before the origin is asked.
    pub(crate) upload_budget: Arc<FillBudget>,
    pub(crate) pinned_log: PinnedLog,
    pub(crate) head_budget: Arc<HeadBudget>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) hash_seed: u64,
    /// This edge and no other, in `Via`: how a request that comes round again is recognised.
    pub(crate) via_name: String,
    /// The fields that no origin gets.
    pub(crate) field_filter: FieldFilter,
    /// Of an HTTP/1.0 request without `Host`.
    pub(crate) default_authority: Box<str>,
    /// The whole field for a request by HTTP/1.1 that came straight from a client.
    pub(crate) via_http11: HeaderValue,
    pub(crate) generations: AtomicU64,
    pub(crate) origin_health: Arc<OriginHealth>,
    /// One set a worker.
    pub(crate) counters: Vec<Arc<Counters>>,
}

impl Shared {
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        hash_key(key, self.hash_seed)
    }

    /// Asks RAM for room. What has to leave may go to disk.
    pub(crate) fn offer_to_ram(
        &self,
        key: KeyHash,
        charge_bytes: u64,
        counters: &Counters,
    ) -> Offer<Stored> {
        let Some(disk) = &self.disk else {
            return self.hot.offer(key, charge_bytes);
        };
        let forgotten = disk.forgotten();
        self.hot.offer_with(key, charge_bytes, |evicted, left| {
            let StoredKind::Response(response) = &left.kind else {
                return;
            };
            if !disk.take_evicted(evicted, left.key(), response, forgotten) {
                return;
            }
            counters.disk_evicted.one();
            // A variant is found by its marker alone.
            if let Some(end) = memchr::memchr(b'\n', left.key()) {
                let primary = &left.key()[..end];
                let hash = self.hash(primary);
                let changes = disk.changes(hash);
                if let Some(marker) = self.hot.peek(hash).filter(|stored| stored.is_of(primary))
                    && let StoredKind::Varies(variants) = &marker.kind
                {
                    disk.put_marker(hash, primary, variants, changes);
                }
            }
        })
    }

    /// A large body was copied into a socket. One that is asked for often moves to where it need not be.
    pub(crate) fn move_if_worth_it(&self, hash: KeyHash, stored: &Arc<Stored>) {
        let Some(arena) = &self.arena else { return };
        let StoredKind::Response(response) = &stored.kind else {
            return;
        };
        let StoredBody::Memory(body) = &response.body else {
            return;
        };
        if !arena.accepts(body.len() as u64)
            || arena.place_of(body).is_some()
            || !stored.is_worth_moving()
        {
            return;
        }
        // Both copies count until the last reader of the old one has gone.
        let hold = self.hot.hold(stored.charge_bytes());
        if let Some(body) = arena.keep_with(body, hold) {
            let response = StoredResponse {
                body: StoredBody::Memory(body),
                ..response.clone()
            };
            let moved = stored.renewed(StoredKind::Response(response));
            self.hot.swap(hash, stored, moved);
        }
    }

    /// Takes a key out of both tiers. True if it was in one of them. The disk tells when that outlives a kill of the process.
    ///
    /// RAM first, and once more at the end: what was on its way from disk to RAM is caught by one of the two, or sees the change itself.
    pub(crate) fn invalidate(&self, hash: KeyHash, key: &[u8]) -> (bool, Option<Durable>) {
        let ours = |stored: &Arc<Stored>| stored.is_of(key);
        let mut removed = self.hot.remove_if(hash, ours);
        let Some(disk) = &self.disk else {
            return (removed, None);
        };
        let (held, durable) = disk.forget_durably(hash, key);
        removed |= held;
        removed |= self.hot.remove_if(hash, ours);
        (removed, Some(durable))
    }

    /// Takes `old` out of both tiers, and nothing that is newer. `changes` is the disk tier's count from before the origin was
    /// asked about `old`. False if something newer is there, or nothing is.
    pub(crate) fn remove_outdated(
        &self,
        hash: KeyHash,
        key: &[u8],
        old: &Arc<Stored>,
        changes: u64,
    ) -> bool {
        let mut removed = self.hot.remove_if(hash, |stored| Arc::ptr_eq(stored, old));
        if let Some(disk) = &self.disk
            && disk.changes(hash) == changes
        {
            removed |= disk.forget(hash, key);
        }
        removed
    }

    /// Whether one of the tiers has something under the key, as far as memory and the disk's index tell.
    pub(crate) fn holds(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.hot.peek(hash).is_some_and(|stored| stored.is_of(key))
            || self.disk.as_ref().is_some_and(|disk| disk.holds(hash))
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::Relaxed)
    }
}

/// The hash of a full key, in both tiers.
pub(crate) fn hash_key(key: &[u8], seed: u64) -> KeyHash {
    KeyHash(xxh3_64_with_seed(key, seed))
}

/// What the requests of one worker share. It never leaves its thread.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) origin: OriginPool,
    recorder: RefCell<Recorder>,
    log: Option<RefCell<rtrb::Producer<LogLine>>>,
    /// Where keys are put together.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Where a Cache-Status is put together.
    pub(crate) line: RefCell<String>,
    /// The last one of a response that was passed on: they are few, and mostly one follows its like.
    passed: RefCell<Option<(CacheStatus, HeaderValue)>>,
    date: RefCell<(u64, HeaderValue)>,
    /// Connections' tasks.
    pub(crate) connection_tasks: TaskSet,
    /// Fetches, which outlive the request that began them.
    pub(crate) fetch_tasks: TaskSet,
    pub(crate) connections: RefCell<Connections>,
    /// Uploads under way, for the sweep.
    pub(crate) uploads: RefCell<Vec<Weak<UploadProgress>>>,
    /// Responses under way, for the sweep.
    pub(crate) deliveries: RefCell<Vec<Weak<Delivery>>>,
    slow: SlowLog,
    /// When an HTTP/2 flood was last logged.
    pub(crate) flood_logged: Cell<Option<Timestamp>>,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        counters: Arc<Counters>,
        origin: OriginPool,
        log: Option<rtrb::Producer<LogLine>>,
    ) -> Rc<Self> {
        let recorder = RefCell::new(shared.hot.recorder());
        Rc::new(Self {
            shared,
            counters,
            origin,
            recorder,
            log: log.map(RefCell::new),
            scratch: RefCell::default(),
            line: RefCell::default(),
            passed: RefCell::default(),
            date: RefCell::new((0, HeaderValue::from_static(""))),
            connection_tasks: TaskSet::default(),
            fetch_tasks: TaskSet::default(),
            connections: RefCell::default(),
            uploads: RefCell::default(),
            deliveries: RefCell::default(),
            slow: SlowLog::default(),
            flood_logged: Cell::new(None),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The time as a `Date` has it (RFC 9110 §5.6.7), written once a second.
    pub(crate) fn http_date(&self) -> HeaderValue {
        let secs = self.now().as_secs();
        let mut date = self.date.borrow_mut();
        if date.0 != secs || date.1.is_empty() {
            *date = (secs, format_http_date(self.now()));
        }
        date.1.clone()
    }

    /// A `Cache-Status` of this edge, for a response that was passed on.
    pub(crate) fn cache_status(&self, status: &CacheStatus) -> HeaderValue {
        let mut last = self.passed.borrow_mut();
        match &*last {
            Some((same, value)) if same == status => value.clone(),
            _ => {
                let value = status.to_header_value(&self.config().name);
                *last = Some((status.clone(), value.clone()));
                value
            }
        }
    }

    /// What a request to the origin says of this edge.
    pub(crate) fn hop(&self) -> Hop<'_> {
        Hop {
            origin: self.origin.config(),
            forwarding: &self.shared.config.forwarding,
            via_name: &self.shared.via_name,
            via_http11: &self.shared.via_http11,
        }
    }

    pub(crate) fn config(&self) -> &EdgeConfig {
        &self.shared.config
    }

    /// Tells the tuner of a request for something that can be kept.
    pub(crate) fn record(&self, key: KeyHash, charge_bytes: u64, hit: bool) {
        self.recorder.borrow_mut().record(key, charge_bytes, hit);
    }

    pub(crate) fn logs(&self) -> bool {
        self.log.is_some()
    }

    pub(crate) fn log(&self, line: LogLine) {
        if let Some(ring) = &self.log
            && ring.borrow_mut().push(line).is_err()
        {
            self.counters.access_log_dropped.one();
        }
    }

    /// Closes the client connection that can be spared best. False if every connection has a request under way.
    pub(crate) fn make_room(&self) -> bool {
        let spare = self.connections.borrow_mut().take_spare(self.now());
        if let Some(conn) = &spare {
            conn.condemn(Overdue::Crowded);
        }
        spare.is_some()
    }

    /// Logs a request whose head could not be read, if there is a log.
    pub(crate) fn log_unread(&self, link: &ClientLink, status: StatusCode) {
        if self.logs() {
            let pending = Pending::unread(link.peer.ip(), link.scheme(), self.now(), status);
            self.log(pending.finish());
        }
    }

    /// Ends connections that passed a limit, and old idle ones to the origin.
    pub(crate) fn sweep(&self) {
        let now = self.now();
        let limits = &self.config().limits;
        self.sweep_uploads(now);
        self.sweep_deliveries(now);
        let rate = limits.socket_rate();
        for conn in self.connections.borrow().iter() {
            if conn.verdict().is_some() {
                continue;
            }
            if let Some(overdue) = conn.overdue(now, limits) {
                conn.condemn(overdue);
            } else if conn.charge(now, rate) {
                conn.condemn(Overdue::Slow);
                self.note_slow_response(now);
            }
        }
        pinned::sweep(self, now);
        if let Some(disk) = &self.shared.disk {
            disk.cache.tick(now);
        }
        self.origin.sweep(now);
    }

    /// Ends HTTP/2 streams that are slower than allowed, and reads ahead of clients that take nothing.
    fn sweep_deliveries(&self, now: Timestamp) {
        let rate = self.config().limits.stream_rate();
        let requests_wait = self.origin.is_contended();
        self.deliveries.borrow_mut().retain(|delivery| {
            let Some(delivery) = delivery.upgrade() else {
                return false;
            };
            delivery.read_ahead(self, now);
            if delivery.charge(now, rate) || (requests_wait && delivery.make_way(now, rate.window))
            {
                self.note_slow_response(now);
            }
            true
        });
    }

    fn note_slow_response(&self, now: Timestamp) {
        self.counters.slow_responses.one();
        if let Some(unlogged) = self.slow.responses.next(now) {
            tracing::warn!(
                unlogged,
                "a client took its response slower than limits.response_rate_min, or took nothing while requests waited"
            );
        }
    }

    /// Ends uploads that are slower than allowed.
    fn sweep_uploads(&self, now: Timestamp) {
        let rate = self.config().limits.upload_rate();
        self.uploads.borrow_mut().retain(|upload| {
            let Some(upload) = upload.upgrade() else {
                return false;
            };
            if upload.charge(now, rate) {
                self.counters.slow_uploads.one();
                if let Some(unlogged) = self.slow.uploads.next(now) {
                    let client = upload.peer().ip();
                    tracing::warn!(%client, unlogged, "a request body came slower than limits.upload_rate_min");
                }
            }
            true
        });
    }
}

/// Which slow clients are logged.
#[derive(Debug, Default)]
struct SlowLog {
    uploads: SparseLog,
    responses: SparseLog,
}

/// A worker's open connections, each at a place of its own.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    places: Vec<Option<Rc<ConnState>>>,
    free: Vec<usize>,
    /// Connections that can be spared, as of the last search; the best one last.
    spares: Vec<(SpareRank, usize)>,
    /// When a search last found fewer than it looked for.
    searched: Option<Timestamp>,
}

impl Connections {
    pub(crate) fn insert(&mut self, conn: Rc<ConnState>) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(conn);
                place
            }
            None => {
                self.places.push(Some(conn));
                self.places.len() - 1
            }
        }
    }

    pub(crate) fn remove(&mut self, place: usize) {
        self.places[place] = None;
        self.free.push(place);
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The connection to close next when room is needed.
    ///
    /// A search through all connections finds enough spares for the next newcomers, so that each newcomer costs a constant
    /// number of steps. A search that came to the end of what can be spared is not repeated within the same tick of the clock.
    fn take_spare(&mut self, now: Timestamp) -> Option<Rc<ConnState>> {
        loop {
            while let Some((rank, place)) = self.spares.pop() {
                if let Some(conn) = &self.places[place]
                    && conn.spare_rank() == Some(rank)
                {
                    return Some(Rc::clone(conn));
                }
            }
            if self.searched == Some(now) {
                return None;
            }
            let wanted = self.len().div_ceil(SPARES_FRACTION);
            let ranked = self.places.iter().enumerate().filter_map(|(place, conn)| {
                let rank = conn.as_ref()?.spare_rank()?;
                Some((rank, place))
            });
            self.spares = ranked.collect();
            if self.spares.len() > wanted {
                self.spares.select_nth_unstable(wanted);
                self.spares.truncate(wanted);
            } else {
                self.searched = Some(now);
            }
            self.spares.sort_unstable_by(|a, b| b.cmp(a));
            if self.spares.is_empty() {
                return None;
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<ConnState>> {
        self.places.iter().flatten()
    }
}

/// A search for connections to close keeps one in so many of those open.
const SPARES_FRACTION: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    use crate::clock::Ticker;

    #[test]
    fn the_connection_without_a_request_that_waits_longest_is_spared_first() {
        let ticker = Ticker::start().expect("a thread");
        let conns: Vec<_> = (0..200).map(|_| ConnState::new(ticker.clock())).collect();
        let mut open = Connections::default();
        for (n, conn) in conns.iter().enumerate() {
            conn.set_idle_since(Timestamp::from_secs(1000 - n as u64));
            open.insert(Rc::clone(conn));
        }
        // The last one waits longest; requests are under way on the four after it.
        let busy: Vec<_> = (195..199).map(|n| conns[n].begin()).collect();
        let now = Timestamp::from_secs(5000);
        for expected in [199, 194, 193, 192, 191, 190] {
            let spare = open.take_spare(now).expect("one without a request");
            assert!(Rc::ptr_eq(&spare, &conns[expected]), "not {expected}");
            spare.condemn(Overdue::Crowded);
        }
        drop(busy);
    }

    #[test]
    fn connections_with_requests_under_way_are_never_spared() {
        let ticker = Ticker::start().expect("a thread");
        let conns: Vec<_> = (0..3).map(|_| ConnState::new(ticker.clock())).collect();
        let mut open = Connections::default();
        let busy: Vec<_> = conns
            .iter()
            .map(|conn| {
                open.insert(Rc::clone(conn));
                conn.begin()
            })
            .collect();
        assert!(open.take_spare(Timestamp::from_secs(1)).is_none());
        drop(busy);
        assert!(
            open.take_spare(Timestamp::from_secs(1)).is_none(),
            "the same tick"
        );
        assert!(open.take_spare(Timestamp::from_secs(2)).is_some());
    }
}
