//! [`Worker`], the state that the requests of one worker share, and [`Shared`], the state that all workers share.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use edgeward_semantics::{CacheStatus, format_http_date};
use edgeward_types::Timestamp;
use http::{HeaderValue, StatusCode};

use super::connections::Connections;
use super::delivery::Deliveries;
use super::tunnels::Tunnels;
use crate::base::access_log::LogLine;
use crate::base::ahead::AheadRate;
use crate::base::budget::MemoryBudget;
use crate::base::clock::Clock;
use crate::base::config::EdgeConfig;
use crate::base::counters::Counters;
use crate::base::sparse_log::SparseLog;
use crate::base::tasks::TaskSet;
use crate::cache::{Cache, WorkerCache};
use crate::exchange::canonical::Canonicaliser;
use crate::exchange::{Client, CloseReason};
use crate::origin::{EdgeInfo, OriginHealth, OriginPool};

/// The state that all workers share.
pub(crate) struct Shared {
    pub(crate) config: EdgeConfig,
    pub(crate) cache: Arc<Cache>,
    /// The memory budget of request bodies that are buffered before a request is sent to the origin.
    pub(crate) upload_budget: Arc<MemoryBudget>,
    /// The memory budget of the decoded heads of HTTP/2 requests.
    pub(crate) head_budget: Arc<MemoryBudget>,
    pub(crate) clock: Arc<Clock>,
    /// Checks requests, and removes fields from them.
    pub(crate) canonicaliser: Canonicaliser,
    /// The value of `Via` for a request over HTTP/1.1 that a client sends without `Via`.
    pub(crate) via_http11: HeaderValue,
    pub(crate) origin_health: Arc<OriginHealth>,
    /// The counters of each worker.
    pub(crate) counters: Vec<Arc<Counters>>,
}

impl Shared {
    /// Returns the settings of this edge that affect the requests it sends to the origin.
    pub(crate) fn edge_info(&self) -> EdgeInfo<'_> {
        EdgeInfo {
            origin: &self.config.origin,
            forwarding: &self.config.forwarding,
            via_name: &self.canonicaliser.via_name,
            via_http11: &self.via_http11,
        }
    }
}

/// The state that the requests of one worker share. It never leaves the worker's thread.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) cache: WorkerCache,
    pub(crate) origin: Rc<OriginPool>,
    log: Option<RefCell<rtrb::Producer<LogLine>>>,
    /// A buffer that is reused to write values of `Cache-Status`.
    pub(crate) cache_status_text: RefCell<String>,
    /// The last `Cache-Status` of a response from the origin, because consecutive values are usually equal.
    last_cache_status: RefCell<Option<(CacheStatus, HeaderValue)>>,
    /// The last value of `Date`, and the second for which it was written.
    date: RefCell<(u64, HeaderValue)>,
    pub(crate) connection_tasks: TaskSet,
    /// The tasks of fetches, which may outlive the requests that started them.
    pub(crate) fetch_tasks: TaskSet,
    pub(crate) connections: RefCell<Connections>,
    pub(crate) deliveries: Deliveries,
    pub(super) tunnels: Tunnels,
    /// Rate-limited warnings: slow responses, connections closed for pinned bytes, and floods of HTTP/2 frames.
    pub(super) slow_log: SparseLog,
    pub(super) pinned_log: SparseLog,
    pub(crate) flood_log: SparseLog,
}

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        counters: Arc<Counters>,
        origin: Rc<OriginPool>,
        log: Option<rtrb::Producer<LogLine>>,
    ) -> Rc<Self> {
        let connection_tasks = TaskSet::default();
        let fetch_tasks = TaskSet::default();
        let ahead_max = shared.config.limits.read_ahead_rate_max.bytes();
        let ahead_rate = AheadRate::new(ahead_max, Arc::clone(&counters));
        let deliveries = Deliveries {
            watched: RefCell::default(),
            clock: Arc::clone(&shared.clock),
            counters: Arc::clone(&counters),
            budget: Arc::clone(&shared.cache.fill_budget),
            read_ahead_bytes: shared.config.limits.read_ahead_bytes.bytes(),
            ahead_rate: Rc::new(ahead_rate),
            connection_tasks: connection_tasks.clone(),
            fetch_tasks: fetch_tasks.clone(),
        };
        Rc::new(Self {
            cache: WorkerCache::new(Arc::clone(&shared.cache), Arc::clone(&counters)),
            shared,
            counters,
            origin,
            log: log.map(RefCell::new),
            cache_status_text: RefCell::default(),
            last_cache_status: RefCell::default(),
            date: RefCell::new((0, HeaderValue::from_static(""))),
            connection_tasks,
            fetch_tasks,
            connections: RefCell::default(),
            deliveries,
            tunnels: Tunnels::default(),
            slow_log: SparseLog::default(),
            pinned_log: SparseLog::default(),
            flood_log: SparseLog::default(),
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns the time as the value of `Date` (RFC 9110 §5.6.7). The value is formatted at most once a second.
    pub(crate) fn http_date(&self) -> HeaderValue {
        let secs = self.now().as_secs();
        let mut date = self.date.borrow_mut();
        if date.0 != secs || date.1.is_empty() {
            *date = (secs, format_http_date(self.now()));
        }
        date.1.clone()
    }

    /// Returns the value of `Cache-Status` for a response from the origin.
    pub(crate) fn cache_status(&self, status: &CacheStatus) -> HeaderValue {
        let mut last = self.last_cache_status.borrow_mut();
        match &*last {
            Some((same, value)) if same == status => value.clone(),
            _ => {
                let value = status.to_header_value(&self.config().name);
                *last = Some((status.clone(), value.clone()));
                value
            }
        }
    }

    /// Returns the settings of this edge that affect the requests it sends to the origin.
    pub(crate) fn edge_info(&self) -> EdgeInfo<'_> {
        self.shared.edge_info()
    }

    pub(crate) fn config(&self) -> &EdgeConfig {
        &self.shared.config
    }

    pub(crate) fn has_log(&self) -> bool {
        self.log.is_some()
    }

    pub(crate) fn log(&self, line: LogLine) {
        if let Some(ring) = &self.log
            && ring.borrow_mut().push(line).is_err()
        {
            self.counters.access_log_dropped.increment();
        }
    }

    /// Closes the client connection that has been idle for the longest time. Returns false if none is idle.
    pub(crate) fn close_idle_client(&self) -> bool {
        let spare = self.connections.borrow_mut().take_spare(self.now());
        if let Some(conn) = &spare {
            conn.close(CloseReason::Crowded);
        }
        spare.is_some()
    }

    /// Logs a request whose head could not be read, if an access log is configured.
    pub(crate) fn log_unread(&self, client: &Client, status: StatusCode) {
        if self.has_log() {
            self.log(LogLine {
                target: "-".into(),
                status,
                ..LogLine::without_request(client.peer.ip(), client.scheme(), self.now())
            });
        }
    }
}
