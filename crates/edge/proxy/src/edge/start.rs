//! Starts and stops an edge.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use edgeward_store::purges::Purges;
use edgeward_types::ByteSize;
use tokio::sync::{mpsc, watch};

use super::admin::Admin;
use super::bind::bind_all;
use super::bind_admin::bind_admin;
use super::certificate_files::{credential_states, file_states};
use super::certificate_watch::{self, CertificateWatch};
use super::checks::check;
use super::edge_health::EdgeHealth;
use super::generation::{Basis, random, servers_of, start_log, start_spans};
use super::generations::{Generation, Generations, LogReopener};
use super::inherit::{CacheIdentity, Inheritance};
use super::monitor;
use super::open::{arena, open_purges};
use super::reload::Reloader;
use super::restart::{Persistent, PersistentMemory};
use super::start_error::StartError;
use super::watching::Watching;
use super::worker_thread::{Listeners, Stop, WorkerStart};
use crate::cache::Cache;
use crate::cache::collapse::{Collapse, MarkedKeys};
use crate::cache::copy_pauses::CopyPauses;
use crate::cache::dictionaries::Dictionaries;
use crate::cache::disk::DiskTier;
use crate::cache::disk_slot::DiskSlot;
use crate::cache::encoders::Encoders;
use crate::cache::miss_history::MissHistory;
use crate::cache::purge_counts::AcceptedPurges;
use crate::cache::stored::Hot;
use crate::cache::successor::Successor;
use crate::client::h3::routes::Routes;
use crate::config::live::{Live, LiveConfig};
use crate::config::{EdgeConfig, ListenAddress};
use crate::net::descriptors;
use crate::observe::counters::Counters;
use crate::observe::recent::RecentRequests;
use crate::rt::background::Background;
use crate::rt::budget::MemoryBudget;
use crate::rt::clock::Ticker;
use crate::rt::health::Health;
use crate::rt::panics::lock;

/// Starts edges: see [`Edge::start`].
#[derive(Debug)]
pub struct Edge;

impl Edge {
    /// Binds the sockets, opens the access log and the disk store, and starts the workers, which accept connections.
    pub fn start(config: EdgeConfig) -> Result<RunningEdge, StartError> {
        Self::start_with(config, Inheritance::default())
    }

    /// Like [`start`](Self::start), with sockets of another process. If that process is replaced by this one, the disk
    /// store is opened by [`RunningEdge::disk_take_over`].
    pub fn start_with(
        mut config: EdgeConfig,
        inheritance: Inheritance,
    ) -> Result<RunningEdge, StartError> {
        let Inheritance {
            mut sockets,
            predecessor,
            quic,
        } = inheritance;
        check(&config)?;
        let wanted = Arc::new(config.clone());
        descriptors::fit(&mut config)?;
        let workers = config.workers.get();
        let certificates = file_states(&config);
        let credentials = credential_states(&config);
        let inboxes = sockets.take_inboxes();
        let routes = match &quic {
            Some(quic) => Routes::after(quic, inboxes),
            None => Routes::new(),
        };
        let listeners = bind_all(&config, &mut sockets, &routes)?;
        let thread_error = |what| move |source| StartError::Thread { what, source };
        let ticker = Ticker::start().map_err(thread_error("the clock"))?;
        let origins = servers_of(&config, None)?;
        let (log, log_queues) = start_log(&config)?;
        let admin = bind_admin(&config.admin, &mut sockets)?;
        for address in sockets.left() {
            tracing::warn!(
                address,
                "an inherited socket is closed: no listener has its address"
            );
        }
        drop(sockets);
        // The disk store is opened after the quick steps that may fail, because its recovery may take seconds.
        let hot = Hot::new(config.hot.clone());
        let (disk, disk_damaged) = match &config.disk {
            Some(disk) if predecessor.is_none() => {
                let ram_object_bytes_max = config.limits.object_bytes_max.min(config.hot.capacity);
                let hash_seed = config.caching.hash_seed;
                let opened = DiskTier::open(disk, hash_seed, ram_object_bytes_max, &hot)?;
                let names = opened.damaged.into_iter().map(|device| device.device);
                (opened.tier.map(Arc::new), names.collect())
            }
            _ => (None, Vec::new()),
        };
        let purges = open_purges(&config, disk.is_some(), predecessor, [random(), random()])?;
        let encoders = Encoders::start(&config.compression);
        let encoders = encoders.map_err(thread_error("the compression"))?;
        let cache = cache_of(
            &config,
            hot,
            disk.clone(),
            disk_damaged,
            purges,
            predecessor,
        );
        let of_workers = (0..workers).map(|_| Arc::default());
        let counters = of_workers.chain([Arc::new(Counters::shared())]).collect();
        let basis = Basis {
            cache: Arc::new(cache),
            encoders: Arc::clone(&encoders),
            clock: ticker.clock(),
            counters,
            labels: Arc::new(crate::path::worker::Labels::new(&config)),
            health: Arc::new(Health::new(workers)),
            recent: Arc::new(RecentRequests::new(Instant::now())),
            trace_exports: Arc::default(),
        };
        let shared = Arc::new(basis.generation(0, config.clone(), origins, log.as_deref(), None));
        let (spans, samplers) = start_spans(&config, &shared.trace_exports)?;
        let (watching, watch_queues) = match &config.watcher {
            Some(watcher) => {
                let (watching, queues) = Watching::new(watcher, workers);
                (Some(watching), queues)
            }
            None => (None, Vec::new()),
        };
        let admin_keys = admin.as_ref().and_then(|admin| admin.keys.clone());
        let first = Generation {
            shared: Arc::clone(&shared),
            wanted,
            log,
            spans,
        };
        let (stop, stopping) = watch::channel(None);
        let listening: Vec<_> = listeners.iter().map(|l| l.addr.clone()).collect();
        let addrs = listening.iter().filter_map(ListenAddress::tcp).collect();
        let (listeners, following) = watch::channel(Arc::new(listeners));
        let generations = Generations::new(first, admin_keys, following.clone(), routes);
        let (switches, switched): (Vec<_>, Vec<_>) =
            (0..workers).map(|_| mpsc::unbounded_channel()).unzip();
        let reloader = Reloader::new(&generations, &listeners, switches);
        let ending = Arc::clone(&generations);
        let mut watch = CertificateWatch::new(reloader.clone(), certificates, credentials);
        let janitor = Background::start("edgeward-reload", certificate_watch::TICK, move || {
            ending.end_unused();
            watch.check();
        });
        let mut edge = RunningEdge {
            reloader,
            generations: Arc::clone(&generations),
            listening,
            addrs,
            listeners,
            admin: None,
            workers: Vec::with_capacity(workers),
            stop,
            _janitor: janitor.map_err(thread_error("the end of replaced configurations"))?,
            persistent: Arc::new(Mutex::new(Persistent {
                disk: disk.clone(),
                ..Persistent::default()
            })),
            encoders,
            monitor: None,
            watching: None,
            ticker,
        };
        let mut log_queues = log_queues.into_iter();
        let mut samplers = samplers.into_iter();
        let mut watch_queues = watch_queues.into_iter();
        for (n, switches) in switched.into_iter().enumerate() {
            let start = WorkerStart {
                shared: Arc::clone(&shared),
                counters: Arc::clone(&shared.counters[n]),
                number: n,
                listeners: following.clone(),
                switches,
                log: log_queues.next(),
                sampler: samplers.next(),
                watch: watch_queues.next(),
                stopping: stopping.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("edgeward-{n}"))
                .spawn(move || start.run())
                .map_err(thread_error("a worker"))?;
            edge.workers.push(thread);
        }
        let has_disk = config.disk.is_some();
        if let Some(config) = config.disk.filter(|_| disk.is_some()) {
            let (cache, counters) = (
                Arc::clone(&shared.cache),
                Arc::clone(shared.other_counters()),
            );
            let memory = PersistentMemory::start(config, cache, counters);
            let memory = memory.map_err(thread_error("the fill of memory"))?;
            lock(&edge.persistent).memory = Some(memory);
        }
        let monitor = monitor::start(&generations);
        edge.monitor = Some(monitor.map_err(thread_error("the monitor"))?);
        if let Some(watching) = watching {
            let thread = watching.start(&generations);
            edge.watching = Some(thread.map_err(thread_error("the analysis of requests"))?);
        }
        if let Some(admin) = admin {
            let admin = Admin::start(admin, Arc::clone(&generations));
            let admin = admin.map_err(thread_error("the admin listener"))?;
            edge.admin = Some(admin);
        }
        // With the store of another process, the position in the stream is known later.
        let is_complete = predecessor.is_none() || !has_disk;
        if is_complete {
            generations.shared().cache.follow_fleet();
        }
        Ok(edge)
    }
}

/// A running edge. Dropping this value stops the edge without waiting for requests under way.
pub struct RunningEdge {
    pub(super) reloader: Reloader,
    pub(super) generations: Arc<Generations>,
    pub(super) listeners: watch::Sender<Listeners>,
    pub(super) listening: Vec<ListenAddress>,
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) admin: Option<Admin>,
    pub(super) workers: Vec<JoinHandle<()>>,
    /// Tells the workers to stop: set to the drain timeout.
    pub(super) stop: watch::Sender<Option<Stop>>,
    pub(super) _janitor: Background,
    pub(super) persistent: Arc<Mutex<Persistent>>,
    pub(super) encoders: Arc<Encoders>,
    pub(super) monitor: Option<Background>,
    pub(super) watching: Option<Background>,
    pub(super) ticker: Ticker,
}

impl RunningEdge {
    /// Returns the addresses on which the edge listened at its start, in the order of the configuration. Port 0 is
    /// replaced by the port that the kernel chose.
    pub fn listening(&self) -> &[ListenAddress] {
        &self.listening
    }

    /// Returns those of [`listening`](Self::listening) that are of TCP.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Returns the address that serves metrics and status.
    pub fn admin(&self) -> Option<&ListenAddress> {
        self.admin.as_ref().map(Admin::addr)
    }

    /// Returns the address that serves metrics and status, if it is of TCP.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin()?.tcp()
    }

    /// Returns a handle that reopens the access log.
    pub fn log_reopener(&self) -> LogReopener {
        LogReopener(Arc::clone(&self.generations))
    }

    /// Returns the health of the edge, for a supervisor's watchdog.
    pub fn health(&self) -> EdgeHealth {
        EdgeHealth(Arc::clone(&self.generations.shared().health))
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

    pub(super) fn stop_within(&mut self, drain: Duration, persists_memory: bool) {
        let start = Instant::now();
        // A worker that has stopped reports no more.
        self.monitor = None;
        self.stop_accepting(drain, None);
        self.join_workers();
        self.watching = None;
        self.encoders.close();
        self.admin = None;
        // The log is closed after the workers, so that it contains their last lines.
        self.generations.close();
        let (disk, memory) = Persistent::end(&self.persistent);
        if let Some(memory) = memory.filter(|_| persists_memory) {
            memory.persist();
        }
        if let Some(disk) = disk {
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
            .field("listening", &self.listening)
            .field("admin", &self.admin())
            .field("ticker", &self.ticker)
            .finish_non_exhaustive()
    }
}

/// Returns the cache, which all generations of the edge share.
fn cache_of(
    config: &EdgeConfig,
    hot: Arc<Hot>,
    disk: Option<Arc<DiskTier>>,
    disk_damaged: Vec<String>,
    purges: Purges,
    predecessor: Option<CacheIdentity>,
) -> Cache {
    // Both tiers use the same hash of a key, so the seed of an existing store on disk is used.
    let hash_seed = predecessor
        .map(|predecessor| predecessor.hash_seed)
        .or_else(|| disk.as_ref().map(|disk| disk.cache.key_seed()))
        .or(config.caching.hash_seed)
        .unwrap_or_else(random);
    Cache {
        fill_budget: MemoryBudget::new(config.limits.fill_bytes_max.bytes(), hot.freed_pages()),
        hot,
        arena: arena(config.hot.capacity),
        may_have_path_rules: AtomicBool::new(config.disk.is_some()), // the disk may have markers
        disk: match predecessor {
            Some(_) if config.disk.is_some() => DiskSlot::expected(),
            _ => DiskSlot::new(disk),
        },
        successor: Successor::default(),
        disk_damaged,
        collapse: Collapse::new(
            config.caching.collapse_followers_max.get(),
            config.caching.collapse_wait_max,
        ),
        hit_for_miss: MarkedKeys::new(config.caching.hit_for_miss),
        failed_validations: MarkedKeys::new(config.caching.validation_backoff),
        unreached_validations: MarkedKeys::new(config.caching.validation_backoff),
        head_fetches: MarkedKeys::new(HEAD_FETCHES_FOR),
        copy_pauses: CopyPauses::new(hash_seed),
        miss_history: MissHistory::new(match config.admin.address {
            Some(_) => MissHistory::size_for(config.hot.capacity),
            None => ByteSize(0), // the causes are shown at the admin address only
        }),
        purges,
        fleet: config.fleet_purges.clone(),
        accepted_purges: AcceptedPurges::default(),
        warm_progress: Default::default(),
        hash_seed,
        // Random, because the disk may have keys with generations of an earlier process.
        next_generation: AtomicU64::new(random()),
        offers: Default::default(),
        dictionaries: Dictionaries::new(config.compression.dictionary_bytes_max.bytes()),
        ignored_parameters: config.caching.ignored_parameters.clone(),
        live: Arc::new(Live::new(Arc::new(LiveConfig::of(config)))),
    }
}

/// The minimum time that the disk cache gets to persist its queues and its index, even if the drain timeout is
/// shorter. Data that was not persisted has to be recovered at the next start.
pub(super) const DISK_CLOSE_MIN: Duration = Duration::from_secs(5);

/// The time for which a target is remembered whose next HEAD is fetched with GET. Monitors and mirrors that send HEAD
/// do so at least once an hour.
const HEAD_FETCHES_FOR: Duration = Duration::from_secs(3600);
