//! [`Worker`], the state that the requests of one worker share, and [`Shared`], the state that all workers share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use edgeward_overload::Work;
use edgeward_semantics::{CacheStatus, Exchange};
use edgeward_sites::RateLimiter;
use edgeward_types::{KeyHash, Timestamp};
use http::{HeaderValue, StatusCode, Version};

use super::ahead::AheadRate;
use super::connections::Connections;
use super::delivery::Deliveries;
use super::fleet::Fleet;
use super::response_texts::ResponseTexts;
use super::tunnels::Tunnels;
use crate::cache::encoders::Encoders;
use crate::cache::negative::Negative;
use crate::cache::{Cache, CacheKey, WorkerCache};
use crate::config::EdgeConfig;
use crate::config::live::LiveConfig;
use crate::exchange::canonical::Canonicaliser;
use crate::exchange::request_settings::SettingsCache;
use crate::exchange::{Client, CloseReason, Request};
use crate::observe::access_log::{LogLine, LogQueue, LogText, RequestFacts, RequestText};
use crate::observe::counters::Counters;
use crate::observe::log::SparseLog;
use crate::observe::metric_labels::{MetricLabels, PerWorker, WorkerTally};
use crate::observe::observation::Observation;
use crate::observe::origin_counters::OriginCounters;
use crate::observe::outcome::{ClientProtocol, RequestOutcome};
use crate::observe::recent::RecentRequests;
use crate::observe::site_counters::SiteCounters;
use crate::observe::spans::Sampler;
use crate::observe::watch::WatchQueue;
use crate::origin::{Abandoned, EdgeInfo, OriginGroup, Servers, Signing};
use crate::rt::budget::MemoryBudget;
use crate::rt::clock::Clock;
use crate::rt::health::{Health, Heart};
use crate::rt::tasks::TaskSet;

/// The state that all workers share. A reload makes another value, a further generation, which shares the cache and the
/// counters with the first one. A request keeps the generation with which it began.
pub(crate) struct Shared {
    /// The number of the generation: 0 from the start to the first reload.
    pub(crate) generation: u64,
    pub(crate) config: EdgeConfig,
    /// The level of overload, and the reports of the workers.
    pub(crate) health: Arc<Health>,
    pub(crate) cache: Arc<Cache>,
    /// The threads that compress bodies.
    pub(crate) encoders: Arc<Encoders>,
    pub(crate) budgets: Budgets,
    pub(crate) clock: Arc<Clock>,
    /// Checks requests, and removes fields from them.
    pub(crate) canonicaliser: Canonicaliser,
    /// The value of `Via` for a request over HTTP/1.1 that a client sends without `Via`.
    pub(crate) via_http11: HeaderValue,
    /// The sites and the rules of caching.
    pub(crate) live: Arc<LiveConfig>,
    /// The rules of id filters.
    pub(crate) negative: Arc<Negative>,
    /// The requests of clients that have a rate limit.
    pub(crate) rate_limiter: Arc<Mutex<RateLimiter>>,
    /// The name of this edge as a member of `CDN-Loop`.
    pub(crate) cdn_loop: HeaderValue,
    /// The servers of each origin, in the order of the configuration.
    pub(crate) origins: Vec<Arc<Servers>>,
    /// The fleet to which the edge belongs.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// The counters of each worker, and at the end those of all other threads.
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) labels: Arc<Labels>,
    /// The counters of each site and of each origin, in the order of the configuration.
    pub(crate) site_counters: Vec<PerWorker<SiteCounters>>,
    pub(crate) origin_counters: Vec<PerWorker<OriginCounters>>,
    pub(crate) recent: Arc<RecentRequests>,
    pub(crate) trace_exports: Arc<TraceExports>,
    /// The number of lines that the destination of the access log did not accept.
    pub(crate) lost_log_lines: Option<Arc<AtomicU64>>,
}

impl Shared {
    /// Returns the counters of all threads that are no workers.
    pub(crate) fn other_counters(&self) -> &Arc<Counters> {
        self.counters
            .last()
            .expect("the last ones are of other threads")
    }

    /// Returns the settings of this edge that affect how it sends the request to its origin.
    pub(crate) fn edge_info(&self, request: &Request) -> EdgeInfo<'_> {
        self.edge_info_at(request.origin.index())
    }

    /// Like [`edge_info`](Self::edge_info), for the origin with this index.
    pub(crate) fn edge_info_at(&self, origin: usize) -> EdgeInfo<'_> {
        let signer = self.origins[origin].signer();
        EdgeInfo {
            signing: signer.map(|signer| Signing::new(signer, &self.clock)),
            origin: &self.config.origins[origin],
            forwarding: &self.config.forwarding,
            via_name: &self.canonicaliser.via_name,
            via_http11: &self.via_http11,
            cdn_loop: &self.cdn_loop,
        }
    }
}

/// The memory budgets of what clients make the edge hold.
pub(crate) struct Budgets {
    /// Request bodies that are buffered before a request is sent to the origin.
    pub(crate) uploads: Arc<MemoryBudget>,
    /// The decoded heads of HTTP/2 requests.
    pub(crate) heads: Arc<MemoryBudget>,
    /// The state of all client connections.
    pub(crate) connections: Arc<MemoryBudget>,
}

/// The labels of sites and origins in metrics, which all generations share.
pub(crate) struct Labels {
    pub(crate) sites: MetricLabels<SiteCounters>,
    pub(crate) origins: MetricLabels<OriginCounters>,
}

impl Labels {
    pub(crate) fn new(config: &EdgeConfig) -> Self {
        let (labels_max, workers) = (config.metric_labels_max, config.workers.get());
        Self {
            sites: MetricLabels::new(labels_max, workers),
            origins: MetricLabels::new(labels_max, workers),
        }
    }

    /// Returns the label of a site by its name.
    pub(crate) fn of_site(name: &str) -> &str {
        match name {
            "*" => "default",
            name => name,
        }
    }
}

/// Sampled requests that a collector accepted, and those that could not be sent to it.
#[derive(Debug, Default)]
pub(crate) struct TraceExports {
    pub(crate) sent: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// The state that the requests of one worker and one generation share. It never leaves the worker's thread.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    /// The number of this worker.
    number: usize,
    pub(crate) cache: WorkerCache,
    log: Option<Rc<LogQueue>>,
    /// The settings of sites and rules.
    settings: Rc<SettingsCache>,
    /// The counters of requests whose site is unknown.
    pub(super) other_site: WorkerTally<SiteCounters>,
    sampler: Option<Rc<Sampler>>,
    /// The queue of samples, if requests are watched.
    pub(crate) watch: Option<Rc<WatchQueue>>,
    /// The connections to each origin, in the order of the configuration.
    pub(crate) origins: Vec<Rc<OriginGroup>>,
    pub(crate) texts: ResponseTexts,
    pub(crate) connection_tasks: TaskSet,
    /// The tasks of fetches, which may outlive the requests that started them.
    pub(crate) fetch_tasks: TaskSet,
    /// The connections of all generations.
    pub(crate) connections: Rc<RefCell<Connections>>,
    pub(crate) deliveries: Deliveries,
    pub(super) tunnels: Tunnels,
    pub(crate) warnings: Warnings,
    pub(super) reliefs: LastReliefs,
}

/// The rate limits of warnings.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    /// Slow responses.
    pub(super) slow: SparseLog,
    /// Connections that are closed because they pin too many bytes.
    pub(super) pinned: SparseLog,
    /// Connections that are closed because of their memory.
    pub(super) memory: SparseLog,
    /// Floods of HTTP/2 frames.
    pub(crate) flood: SparseLog,
}

/// The last reliefs of the budgets of connections and of heads.
#[derive(Debug, Default)]
pub(super) struct LastReliefs {
    pub(super) connections: LastRelief,
    pub(super) heads: LastRelief,
}

/// The number of ended connections when all that the last relief of a budget closed have ended, and the used bytes
/// before it.
pub(super) type LastRelief = Cell<(u64, u64)>;

/// The newest generation of a worker. Connections ask for it at each request.
pub(crate) struct CurrentWorker(RefCell<Rc<Worker>>);

impl CurrentWorker {
    pub(crate) fn new(worker: Rc<Worker>) -> Rc<Self> {
        Rc::new(Self(RefCell::new(worker)))
    }

    pub(crate) fn get(&self) -> Rc<Worker> {
        Rc::clone(&self.0.borrow())
    }

    /// Sets `worker` to the newest generation.
    #[inline]
    pub(crate) fn update(&self, worker: &mut Rc<Worker>) {
        let current = self.0.borrow();
        if !Rc::ptr_eq(&current, worker) {
            *worker = Rc::clone(&current);
        }
    }

    /// Replaces the generation, and returns the earlier one.
    pub(crate) fn replace(&self, worker: Rc<Worker>) -> Rc<Worker> {
        self.0.replace(worker)
    }
}

/// The state that a worker gets from its thread.
pub(crate) struct WorkerParts {
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) number: usize,
    pub(crate) origins: Vec<Rc<OriginGroup>>,
    pub(crate) log: Option<Rc<LogQueue>>,
    pub(crate) sampler: Option<Rc<Sampler>>,
    pub(crate) watch: Option<Rc<WatchQueue>>,
}

impl Worker {
    /// Returns the bound of exchanges whose client has left.
    pub(crate) fn abandoned(&self) -> Abandoned {
        Abandoned {
            wait: self.config().limits.abandoned_wait,
            counters: Arc::clone(&self.counters),
        }
    }

    /// Returns a worker with the tasks and connections of `before`, the worker of the generation before.
    pub(crate) fn new(parts: WorkerParts, before: Option<&Self>) -> Rc<Self> {
        let WorkerParts {
            shared,
            counters,
            number,
            origins,
            log,
            sampler,
            watch,
        } = parts;
        let (connection_tasks, fetch_tasks, connections) = match before {
            Some(before) => (
                before.connection_tasks.clone(),
                before.fetch_tasks.clone(),
                Rc::clone(&before.connections),
            ),
            None => {
                let (of_connections, of_fetches) = (Arc::clone(&counters), Arc::clone(&counters));
                (
                    TaskSet::new(move || of_connections.panics_connection.increment()),
                    TaskSet::new(move || of_fetches.panics_fetch.increment()),
                    Rc::default(),
                )
            }
        };
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
            settings: Rc::new(SettingsCache::new(
                &shared.live,
                shared.generation,
                &shared.site_counters,
                number,
            )),
            other_site: WorkerTally::new(&shared.labels.sites.other(), number),
            shared,
            counters,
            number,
            origins,
            log,
            sampler,
            watch,
            texts: ResponseTexts::default(),
            connection_tasks,
            fetch_tasks,
            connections,
            deliveries,
            tunnels: Tunnels::default(),
            warnings: Warnings::default(),
            reliefs: LastReliefs::default(),
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
            self.counters.shed[work].increment();
        }
        sheds
    }

    /// Returns the time for durations.
    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns the wall time, for dates.
    pub(crate) fn wall(&self) -> Timestamp {
        self.shared.clock.wall()
    }

    /// Returns the times of a fetch whose response head has just arrived.
    pub(crate) fn exchange(&self, request_time: Timestamp) -> Exchange {
        Exchange {
            request_time,
            response_time: self.now(),
            response_date: self.wall(),
        }
    }

    /// Counts a request for an object that the cache may have, in the rates by which other nodes decide about copies.
    #[inline]
    pub(crate) fn record_request_rate(&self, key: &CacheKey) {
        let fleet = self.shared.fleet.as_ref();
        if let Some(copies) = fleet.and_then(|fleet| fleet.copies.as_ref()) {
            copies.record(key.target_hash(self.cache.hash_seed), self.now());
        }
    }

    /// Records that the refresh of a stale response has failed: without a response, with a status of 5xx, or because
    /// the body ended early. The next refresh waits for `caching.validation_backoff` while the stale response may be
    /// served. `is_disconnect` is true if the origin could not be reached.
    pub(crate) fn record_failed_refresh(&self, hash: KeyHash, is_disconnect: bool) {
        let now = self.now();
        self.cache.failed_validations.mark(hash, now);
        if is_disconnect {
            self.cache.unreached_validations.mark(hash, now);
        }
    }

    /// Returns the number of this worker.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Returns the settings of sites and rules.
    #[inline]
    pub(crate) fn settings(&self) -> Rc<SettingsCache> {
        Rc::clone(&self.settings)
    }

    /// Returns the queue of the access log and the sampler, for the next generation.
    pub(crate) fn observers(&self) -> (Option<Rc<LogQueue>>, Option<Rc<Sampler>>) {
        (self.log.clone(), self.sampler.clone())
    }

    /// Returns the time as the value of `Date`.
    pub(crate) fn http_date(&self) -> HeaderValue {
        self.texts.http_date(self.wall())
    }

    /// Returns the value of `Cache-Status` for a response from the origin.
    pub(crate) fn cache_status(&self, status: &CacheStatus) -> HeaderValue {
        self.texts.cache_status(status, &self.config().name)
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
    ) -> Option<LogText> {
        let queue = self.log.as_ref()?;
        Some(LogText {
            request: text(queue, self.wall()),
            queue: Rc::clone(queue),
        })
    }

    /// Returns the sampler, if traces are exported.
    pub(crate) fn sampler(&self) -> Option<&Sampler> {
        self.sampler.as_deref()
    }

    /// Ends the record of a request: counts its response, and logs the request.
    pub(crate) fn finish(&self, observation: Observation) {
        let watch = self.watch.as_deref();
        let watch = watch.map(|watch| (watch, || self.now()));
        let (line, sampled) = observation.finish(&self.counters, watch);
        if let Some(line) = line {
            self.log(line);
        }
        if let (Some(sampler), Some(sampled)) = (&self.sampler, sampled)
            && !sampler.push(sampled)
        {
            self.counters.traces_dropped.increment();
        }
    }

    fn log(&self, (queue, line): (Rc<LogQueue>, LogLine)) {
        if !queue.push(line) {
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
    pub(crate) fn record_unread(&self, client: &Client, status: StatusCode, version: Version) {
        self.counters.count_refusal(status);
        self.counters.client_requests[ClientProtocol::from(version)].increment();
        let text = self.log_text(|queue, now| {
            let facts = RequestFacts {
                time: now,
                peer: client.peer.ip(),
                is_tls: client.scheme == "https",
                key_exchange: client.key_exchange,
                method: None,
                host: b"",
                target: b"-",
                version,
            };
            queue.text(&facts, |_| None)
        });
        let mut observation = Observation::begin(&self.other_site, text);
        observation.count(RequestOutcome::Refused, &self.counters);
        observation.set_response(status, None);
        if let Some(line) = observation.finish_unread() {
            self.log(line);
        }
    }
}
