//! Starts and stops an edge.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use edgeward_sites::RateLimiter;
use edgeward_store::purges::Purges;
use http::HeaderValue;
use tokio::runtime::LocalOptions;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::admin::{self, Admin};
use super::bind::{Bound, WorkerListeners, bind_all};
use super::edge_health::EdgeHealth;
use super::monitor;
use super::open::{arena, open_purges};
use super::reload::{Reloader, check_sites};
use super::restart::PersistentMemory;
use super::span_export::{ExportError, SpanExport};
use super::start_error::StartError;
use super::status;
use crate::base::access_log::{AccessLog, LogQueue, LogReopener};
use crate::base::background::Background;
use crate::base::budget::MemoryBudget;
use crate::base::clock::Ticker;
use crate::base::config::{EdgeConfig, ORIGINS_MAX};
use crate::base::counters::Counters;
use crate::base::descriptors;
use crate::base::health::{Activity, Health};
use crate::base::live::Live;
use crate::base::panics;
use crate::base::recent::RecentRequests;
use crate::base::spans::Sampler;
use crate::cache::Cache;
use crate::cache::collapse::{Collapse, MarkedKeys};
use crate::cache::disk::DiskTier;
use crate::cache::encoders::Encoders;
use crate::cache::negative::Negative;
use crate::cache::purge_counts::AcceptedPurges;
use crate::cache::stored::Hot;
use crate::client::listener;
use crate::exchange::canonical::Canonicaliser;
use crate::origin::{OriginGroup, Servers, watch_servers};
use crate::path;
use crate::path::worker::{Shared, TraceExports, Worker};

/// Starts edges: see [`Edge::start`].
#[derive(Debug)]
pub struct Edge;

impl Edge {
    /// Binds the sockets, opens the access log and the disk store, and starts the workers, which accept connections.
    pub fn start(mut config: EdgeConfig) -> Result<RunningEdge, StartError> {
        check_name(&config.name)?;
        if config.listeners.is_empty() {
            return Err(StartError::NoListener);
        }
        if !(1..=ORIGINS_MAX).contains(&config.origins.len()) {
            return Err(StartError::OriginCount);
        }
        check_sites(&config.sites, config.origins.len())
            .map_err(|site| StartError::SiteOrigin { site })?;
        descriptors::fit(&mut config).map_err(|too_few| StartError::OpenFiles {
            limit: too_few.limit,
            needed: too_few.needed,
        })?;
        let workers = config.workers.get();
        let Bound {
            listeners,
            addrs,
            keys,
        } = bind_all(&config)?;
        let thread_error = |what| move |source| StartError::Thread { what, source };
        let ticker = Ticker::start().map_err(thread_error("the clock"))?;
        let origins = config.origins.iter().map(|origin| {
            let servers = Servers::new(origin, random());
            servers.map(Arc::new).map_err(|source| StartError::Origin {
                origin: origin.url().to_string(),
                source,
            })
        });
        let origins = origins.collect::<Result<Vec<_>, _>>()?;
        let (log, log_queues) = match &config.access_log {
            Some(log) => AccessLog::start(log, workers).map(|(log, rings)| (Some(log), rings))?,
            None => (None, Vec::new()),
        };
        let admin_listener = match config.admin {
            Some(addr) => {
                Some(admin::bind(addr).map_err(|source| StartError::Listen { addr, source })?)
            }
            None => None,
        };
        // The disk store is opened after the quick steps that may fail, because its recovery may take seconds.
        let hot = Hot::new(config.hot.clone());
        let (disk, disk_damaged) = match &config.disk {
            Some(disk) => {
                let ram_object_bytes_max = config.limits.object_bytes_max.min(config.hot.capacity);
                let hash_seed = config.caching.hash_seed;
                let opened = DiskTier::open(disk, hash_seed, ram_object_bytes_max, &hot)?;
                let names = opened.damaged.into_iter().map(|device| device.device);
                (opened.tier.map(Arc::new), names.collect())
            }
            None => (None, Vec::new()),
        };
        let purges = open_purges(&config, disk.is_some(), [random(), random()])?;
        let encoders = Encoders::start(&config.compression);
        let encoders = encoders.map_err(thread_error("the compression"))?;
        let shared = Arc::new(shared_state(
            &mut config,
            hot,
            disk.clone(),
            disk_damaged,
            purges,
            Arc::clone(&encoders),
            &ticker,
            log.as_ref(),
            origins,
        ));
        let (stop, stopping) = watch::channel(None);
        let mut edge = RunningEdge {
            reloader: Reloader::new(Arc::clone(&shared), keys),
            addrs,
            admin: None,
            workers: Vec::with_capacity(workers),
            stop,
            log,
            spans: None,
            disk,
            memory: None,
            encoders,
            monitor: None,
            ticker,
        };
        let mut log_queues = log_queues.into_iter();
        let mut sampled_queues = Vec::new();
        for (n, listeners) in listeners.into_iter().enumerate() {
            let sampler = config.tracing.as_ref().map(|tracing| {
                let (sampler, sampled) = Sampler::new(tracing, random());
                sampled_queues.push(sampled);
                sampler
            });
            let start = WorkerStart {
                shared: Arc::clone(&shared),
                counters: Arc::clone(&shared.counters[n]),
                number: n,
                listeners,
                log: log_queues.next(),
                sampler,
                stopping: stopping.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("edgeward-{n}"))
                .spawn(move || start.run())
                .map_err(thread_error("a worker"))?;
            edge.workers.push(thread);
        }
        if let Some(tracing) = &config.tracing {
            let export = SpanExport::start(tracing, sampled_queues, Arc::clone(&shared));
            edge.spans = Some(export.map_err(|error| match error {
                ExportError::Connector(source) => StartError::Collector {
                    collector: tracing.endpoint.to_string(),
                    source,
                },
                ExportError::Thread(source) => thread_error("the export of spans")(source),
            })?);
        }
        if let Some(disk) = config.disk.filter(|_| edge.disk.is_some()) {
            let (cache, counters) = (Arc::clone(&shared.cache), Arc::clone(&shared.counters[0]));
            let memory = PersistentMemory::start(disk, cache, counters);
            edge.memory = Some(memory.map_err(thread_error("the fill of memory"))?);
        }
        let monitor = monitor::start(Arc::clone(&shared));
        edge.monitor = Some(monitor.map_err(thread_error("the monitor"))?);
        if let Some(listener) = admin_listener {
            let admin =
                Admin::start(listener, shared).map_err(thread_error("the admin listener"))?;
            edge.admin = Some(admin);
        }
        Ok(edge)
    }
}

/// A running edge. Dropping this value stops the edge without waiting for requests under way.
pub struct RunningEdge {
    reloader: Reloader,
    addrs: Vec<SocketAddr>,
    admin: Option<Admin>,
    workers: Vec<JoinHandle<()>>,
    /// Tells the workers to stop: set to the drain timeout.
    stop: watch::Sender<Option<Duration>>,
    log: Option<AccessLog>,
    spans: Option<SpanExport>,
    disk: Option<Arc<DiskTier>>,
    /// `None` without a disk.
    memory: Option<PersistentMemory>,
    encoders: Arc<Encoders>,
    monitor: Option<Background>,
    ticker: Ticker,
}

impl RunningEdge {
    /// Returns the addresses on which the edge listens, in the order of the configuration. Port 0 is replaced by the
    /// port that the kernel chose.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Returns the address that serves metrics and status.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::addr)
    }

    /// Returns a handle that reopens the access log, if one is configured.
    pub fn log_reopener(&self) -> Option<LogReopener> {
        self.log.as_ref()?.reopener()
    }

    /// Returns the health of the edge, for a supervisor's watchdog.
    pub fn health(&self) -> EdgeHealth {
        EdgeHealth(Arc::clone(self.reloader.shared()))
    }

    /// Returns a handle that changes the configuration.
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Stops accepting connections, waits for requests under way for at most `drain`, and joins all threads. Then
    /// writes the objects of memory that the disk lacks, within the limits of
    /// [`RestartConfig`](crate::config::RestartConfig).
    pub fn shutdown(mut self, drain: Duration) {
        self.stop_within(drain, true);
    }

    fn stop_within(&mut self, drain: Duration, persists_memory: bool) {
        let start = Instant::now();
        // A worker that has stopped reports no more.
        self.monitor = None;
        self.stop.send_replace(Some(drain));
        if let Some(memory) = &mut self.memory {
            memory.stop_filling();
        }
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker's thread panicked");
            }
        }
        self.encoders.close();
        self.admin = None;
        // The log is closed after the workers, so that it contains their last lines.
        self.log = None;
        self.spans = None;
        if let Some(memory) = self.memory.take().filter(|_| persists_memory) {
            memory.persist();
        }
        if let Some(disk) = self.disk.take() {
            disk.close(drain.saturating_sub(start.elapsed()).max(DISK_CLOSE_MIN));
        }
    }
}

impl Drop for RunningEdge {
    fn drop(&mut self) {
        self.stop_within(Duration::ZERO, false);
    }
}

impl std::fmt::Debug for RunningEdge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningEdge")
            .field("addrs", &self.addrs)
            .field("admin", &self.admin_addr())
            .field("ticker", &self.ticker)
            .finish_non_exhaustive()
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of the state")]
fn shared_state(
    config: &mut EdgeConfig,
    hot: Arc<Hot>,
    disk: Option<Arc<DiskTier>>,
    disk_damaged: Vec<String>,
    purges: Purges,
    encoders: Arc<Encoders>,
    ticker: &Ticker,
    log: Option<&AccessLog>,
    origins: Vec<Arc<Servers>>,
) -> Shared {
    // Both tiers use the same hash of a key, so the seed of an existing store on disk is used.
    let hash_seed = disk
        .as_ref()
        .map(|disk| disk.cache.key_seed())
        .or(config.caching.hash_seed)
        .unwrap_or_else(random);
    let live = Live::new(config);
    let via_name = format!("{}-{:08x}", config.name, random() as u32);
    let cache = Cache {
        fill_budget: MemoryBudget::new(config.limits.fill_bytes_max.bytes(), hot.freed_pages()),
        hot,
        arena: arena(config.hot.capacity),
        may_have_path_rules: AtomicBool::new(disk.is_some()), // the disk may have markers
        disk,
        disk_damaged,
        collapse: Collapse::new(
            config.caching.collapse_followers_max.get(),
            config.caching.collapse_wait_max,
        ),
        hit_for_miss: MarkedKeys::new(config.caching.hit_for_miss),
        failed_validations: MarkedKeys::new(config.caching.validation_backoff),
        unreached_validations: MarkedKeys::new(config.caching.validation_backoff),
        purges,
        accepted_purges: AcceptedPurges::default(),
        negative: Negative::new(&config.negative),
        warm_progress: Default::default(),
        hash_seed,
        // Random, because the disk may have keys with generations of an earlier process.
        next_generation: AtomicU64::new(random()),
        offers: Default::default(),
        ignored_parameters: config.caching.ignored_parameters.clone(),
        live: Arc::clone(&live),
    };
    Shared {
        health: Health::new(config.workers.get()),
        cache: Arc::new(cache),
        encoders,
        upload_budget: MemoryBudget::new(config.limits.upload_buffers_bytes_max.bytes(), None),
        head_budget: MemoryBudget::new(config.limits.heads_bytes_max.bytes(), None),
        clock: ticker.clock(),
        cdn_loop: HeaderValue::try_from(via_name.as_str())
            .expect("the name was checked to be a token"),
        via_http11: HeaderValue::try_from(format!("1.1 {via_name}"))
            .expect("the name was checked to be a token"),
        canonicaliser: Canonicaliser::new(config, via_name),
        origins,
        live,
        on_reload: OnceLock::new(),
        rate_limiter: Mutex::new(RateLimiter::new(config.limits.rate_limit_clients_max.get())),
        counters: (0..config.workers.get()).map(|_| Arc::default()).collect(),
        recent: RecentRequests::new(Instant::now()),
        trace_exports: TraceExports::default(),
        lost_log_lines: log.map(AccessLog::lost_lines),
        config: config.clone(),
    }
}

/// Returns a random number, or 0 if the system provides no randomness. The cache works with 0 too.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    _ = provider.secure_random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Checks that the name is a token that starts with a letter. Such a name is a structured-field token (RFC 9211 §2)
/// and a pseudonym (RFC 9110 §7.6.3).
fn check_name(name: &str) -> Result<(), StartError> {
    let is_token = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if is_token {
        return Ok(());
    }
    Err(StartError::Name {
        name: name.to_owned(),
    })
}

/// The values that a worker's thread starts with.
struct WorkerStart {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    /// The number of the worker. The first one watches the servers of the origins.
    number: usize,
    listeners: WorkerListeners,
    log: Option<LogQueue>,
    sampler: Option<Sampler>,
    stopping: watch::Receiver<Option<Duration>>,
}

impl WorkerStart {
    fn run(self) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => runtime.block_on(self.serve()),
            Err(error) => tracing::error!(%error, "a worker's runtime cannot be started"),
        }
    }

    async fn serve(mut self) {
        let config = &self.shared.config;
        let origins = config.origins.iter().zip(&self.shared.origins);
        let origins = origins.map(|(origin, servers)| {
            Rc::new(OriginGroup::new(
                Arc::clone(servers),
                origin.clone(),
                config.limits.clone(),
                config.workers,
                Arc::clone(&self.counters),
                Arc::clone(&self.shared.clock),
                Arc::clone(&self.shared.upload_budget),
            ))
        });
        let origins = origins.collect();
        let worker = Worker::new(
            self.shared,
            self.counters,
            self.number,
            origins,
            self.log,
            self.sampler,
        );
        let mut watching = JoinSet::new();
        if self.number == 0 {
            let limits = Rc::new(worker.config().limits.clone());
            let origins = worker.config().origins.iter().zip(&worker.shared.origins);
            for (origin, servers) in origins {
                let (servers, limits) = (Arc::clone(servers), Rc::clone(&limits));
                watching.spawn_local(watch_servers(servers, Rc::new(origin.clone()), limits));
            }
        }
        let accepting: Vec<_> = self
            .listeners
            .into_iter()
            .map(|(listener, tls)| {
                tokio::task::spawn_local(listener::accept(Rc::clone(&worker), listener, tls))
            })
            .collect();
        let drain = tokio::select! {
            stop = self.stopping.wait_for(Option::is_some) => {
                stop.ok().and_then(|drain| *drain).unwrap_or_default()
            }
            never = sweep(&worker) => match never {},
            never = worker.shared.health.beat(self.number) => match never {},
        };
        drop(watching);
        for task in accepting {
            task.abort();
            _ = task.await;
        }
        for conn in worker.connections.borrow().iter() {
            conn.drain();
        }
        let deadline = tokio::time::Instant::now() + drain;
        let left = || deadline.saturating_duration_since(tokio::time::Instant::now());
        let finished = tokio::time::timeout(drain, worker.connection_tasks.idle()).await;
        if finished.is_err() {
            tracing::warn!(
                connections = worker.connections.borrow().len(),
                "connections with requests under way were closed because the drain timeout expired"
            );
        }
        _ = tokio::time::timeout(left(), worker.fetch_tasks.idle()).await;
        for origin in &worker.origins {
            origin.shut_down(left()).await;
        }
    }
}

/// At each interval, ends the worker's connections, streams and uploads that exceed a limit. Never returns.
async fn sweep(worker: &Worker) -> std::convert::Infallible {
    let mut interval = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        interval.tick().await;
        worker.heart().set_activity(Activity::Sweep);
        panics::survive(&worker.counters.panics_sweep, || path::sweep::sweep(worker));
        let shared = &worker.shared;
        let totals = || status::totals(&shared.counters);
        shared.recent.sample(Instant::now(), totals);
    }
}

/// The minimum time that the disk cache gets to persist its queues and its index, even if the drain timeout is
/// shorter. Data that was not persisted has to be recovered at the next start.
const DISK_CLOSE_MIN: Duration = Duration::from_secs(5);

/// The interval of the sweep. A connection may exceed its timeout by up to this time before it is closed.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);
