//! [`Worker`], the state that the requests of one worker share, and [`Shared`], the state that all workers share.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use edgeward_overload::Work;
use edgeward_semantics::{CacheStatus, format_http_date};
use edgeward_sites::RateLimiter;
use edgeward_types::Timestamp;
use http::{HeaderValue, StatusCode, Version};

use super::connections::Connections;
use super::delivery::Deliveries;
use super::tunnels::Tunnels;
use crate::base::access_log::{LogLine, LogQueue, RequestFacts, RequestText};
use crate::base::ahead::AheadRate;
use crate::base::budget::MemoryBudget;
use crate::base::clock::Clock;
use crate::base::config::EdgeConfig;
use crate::base::counters::Counters;
use crate::base::health::{Health, Heart};
use crate::base::live::Live;
use crate::base::observation::Observation;
use crate::base::recent::RecentRequests;
use crate::base::request_settings::SettingsCache;
use crate::base::site_counters::OutcomeClass;
use crate::base::spans::Sampler;
use crate::base::sparse_log::SparseLog;
use crate::base::tasks::TaskSet;
use crate::cache::encoders::Encoders;
use crate::cache::{Cache, WorkerCache};
use crate::exchange::canonical::Canonicaliser;
use crate::exchange::{Client, CloseReason, Request};
use crate::origin::{EdgeInfo, OriginGroup, Servers};

/// See [`Shared::on_reload`].
pub(crate) type ReloadFn = Box<dyn Fn() -> Result<Vec<String>, String> + Send + Sync>;

/// See [`Shared::on_upgrade`].
pub(crate) type UpgradeFn = Box<dyn Fn() -> Result<u32, String> + Send + Sync>;

/// The state that all workers share.
pub(crate) struct Shared {
    pub(crate) config: EdgeConfig,
    /// The level of overload, and the reports of the workers.
    pub(crate) health: Health,
    pub(crate) cache: Arc<Cache>,
    /// The threads that compress bodies.
    pub(crate) encoders: Arc<Encoders>,
    /// The memory budget of request bodies that are buffered before a request is sent to the origin.
    pub(crate) upload_budget: Arc<MemoryBudget>,
    /// The memory budget of the decoded heads of HTTP/2 requests.
    pub(crate) head_budget: Arc<MemoryBudget>,
    pub(crate) clock: Arc<Clock>,
    /// Checks requests, and removes fields from them.
    pub(crate) canonicaliser: Canonicaliser,
    /// The value of `Via` for a request over HTTP/1.1 that a client sends without `Via`.
    pub(crate) via_http11: HeaderValue,
    /// The configuration that a reload changes.
    pub(crate) live: Arc<Live>,
    /// Reads the configuration again and applies it. Returns the changes, or the reason why nothing changed.
    pub(crate) on_reload: OnceLock<ReloadFn>,
    /// Replaces this process by a new one, and returns the id of the new one.
    pub(crate) on_upgrade: OnceLock<UpgradeFn>,
    /// The requests of clients that have a rate limit.
    pub(crate) rate_limiter: Mutex<RateLimiter>,
    /// The name of this edge as a member of `CDN-Loop`.
    pub(crate) cdn_loop: HeaderValue,
    /// The servers of each origin, in the order of the configuration.
    pub(crate) origins: Vec<Arc<Servers>>,
    /// The counters of each worker.
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) recent: RecentRequests,
    pub(crate) trace_exports: TraceExports,
    /// The number of lines that the destination of the access log did not accept.
    pub(crate) lost_log_lines: Option<Arc<AtomicU64>>,
}

impl Shared {
    /// Returns the settings of this edge that affect how it sends the request to its origin.
    pub(crate) fn edge_info(&self, request: &Request) -> EdgeInfo<'_> {
        EdgeInfo {
            origin: &self.config.origins[request.origin.index()],
            forwarding: &self.config.forwarding,
            via_name: &self.canonicaliser.via_name,
            via_http11: &self.via_http11,
            cdn_loop: &self.cdn_loop,
        }
    }
}

/// Sampled requests that a collector accepted, and those that could not be sent to it.
#[derive(Debug, Default)]
pub(crate) struct TraceExports {
    pub(crate) sent: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// The state that the requests of one worker share. It never leaves the worker's thread.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    /// The number of this worker.
    number: usize,
    pub(crate) cache: WorkerCache,
    log: Option<LogQueue>,
    /// The settings of sites and rules.
    settings: RefCell<Rc<SettingsCache>>,
    sampler: Option<Sampler>,
    /// The connections to each origin, in the order of the configuration.
    pub(crate) origins: Vec<Rc<OriginGroup>>,
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
        number: usize,
        origins: Vec<Rc<OriginGroup>>,
        log: Option<LogQueue>,
        sampler: Option<Sampler>,
    ) -> Rc<Self> {
        let connection_tasks = TaskSet::counting(&counters, |counters| &counters.panics_connection);
        let fetch_tasks = TaskSet::counting(&counters, |counters| &counters.panics_fetch);
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
            settings: RefCell::new(Rc::new(SettingsCache::new(&shared.live))),
            shared,
            counters,
            number,
            origins,
            log,
            sampler,
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

    /// Returns the reports of this worker.
    pub(crate) fn heart(&self) -> &Heart {
        self.shared.health.heart(self.number)
    }

    /// Returns true, and counts, if work of this class is shed because of overload.
    #[inline]
    pub(crate) fn sheds(&self, work: Work) -> bool {
        let sheds = self.shared.health.sheds(work);
        if sheds {
            let counters = &self.counters;
            match work {
                Work::Connection => counters.shed_connections.increment(),
                Work::Pass => counters.shed_passes.increment(),
                Work::Miss => counters.shed_misses.increment(),
                Work::Hit => counters.shed_hits.increment(),
            }
        }
        sheds
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns the settings of sites and rules, of the newest configuration.
    #[inline]
    pub(crate) fn settings(&self) -> Rc<SettingsCache> {
        let mut settings = self.settings.borrow_mut();
        if settings.version != self.shared.live.version() {
            *settings = Rc::new(SettingsCache::new(&self.shared.live));
        }
        Rc::clone(&settings)
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

    /// Returns the settings of this edge that affect how it sends the request to its origin.
    pub(crate) fn edge_info(&self, request: &Request) -> EdgeInfo<'_> {
        self.shared.edge_info(request)
    }

    /// Returns the connections to the origin of the request.
    pub(crate) fn origin(&self, request: &Request) -> &Rc<OriginGroup> {
        &self.origins[request.origin.index()]
    }

    pub(crate) fn config(&self) -> &EdgeConfig {
        &self.shared.config
    }

    /// Returns the text of a request for the access log, or `None` if no access log is configured.
    pub(crate) fn log_text(
        &self,
        text: impl FnOnce(&LogQueue, Timestamp) -> RequestText,
    ) -> Option<RequestText> {
        self.log.as_ref().map(|queue| text(queue, self.now()))
    }

    /// Returns the sampler, if traces are exported.
    pub(crate) fn sampler(&self) -> Option<&Sampler> {
        self.sampler.as_ref()
    }

    /// Ends the record of a request: counts its response, and logs the request.
    pub(crate) fn finish(&self, observation: Observation) {
        let outcome = observation.outcome.unwrap_or_else(|| {
            self.counters.no_outcome.increment();
            OutcomeClass::None
        });
        let (line, sampled) = observation.finish(outcome, &self.counters.site);
        if let Some(line) = line {
            self.log(line);
        }
        if let (Some(sampler), Some(sampled)) = (&self.sampler, sampled)
            && !sampler.push(sampled)
        {
            self.counters.traces_dropped.increment();
        }
    }

    fn log(&self, line: LogLine) {
        if let Some(queue) = &self.log
            && !queue.push(line)
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

    /// Counts and logs a request whose head could not be read.
    pub(crate) fn record_unread(&self, client: &Client, status: StatusCode) {
        self.counters.refused.increment();
        self.counters.count_refusal(status);
        let text = self.log_text(|queue, now| {
            let facts = RequestFacts {
                time: now,
                peer: client.peer.ip(),
                is_tls: client.tls,
                method: None,
                host: b"",
                target: b"-",
                version: Version::HTTP_11,
            };
            queue.text(&facts, |_| None)
        });
        let mut observation = Observation::begin(text);
        observation.set_response(status, None);
        if let Some(line) = observation.finish_unread(&self.counters.site) {
            self.log(line);
        }
    }
}
