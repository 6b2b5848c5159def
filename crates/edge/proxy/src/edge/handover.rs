//! An upgrade: an edge passes its sockets to a new process, then its store on disk, and ends.
//!
//! 1. The new process gets copies of all listening sockets ([`UpgradeSource::sockets`]) and starts. The kernel's queues
//!    of connections belong to the sockets, so both processes accept from the same queues, and no connection is lost.
//!    A socket of UDP has the datagrams of all connections, so one process reads it at a time. When the new one is
//!    ready, the old one stops ([`UpgradeSource::leave_quic`]), and the new one begins
//!    ([`RunningEdge::quic_take_over`]). It passes the datagrams of old connections to the old process
//!    (`client::h3::routes`), which sends by its own copies of the sockets.
//! 2. The old process stops accepting, and sends later purges and invalidations to the new one
//!    ([`UpgradeSource::forward_changes`]). Its requests under way finish.
//! 3. When no request reads the store any more, the old process writes the objects of memory to the store, closes it
//!    and lets the new process open it ([`RunningEdge::disk_take_over`]). Until then the new process works with memory
//!    and the origin.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use edgeward_store::disk::OpenError;
use tokio::sync::watch;

use super::generations::Generations;
use super::inherit::{ADMIN, CacheIdentity, QuicIdentity, inbox_name, udp_name};
use super::open::{log_damage, purge_log};
use super::reload::Reloader;
use super::restart::{Persistent, PersistentMemory};
use super::start::{DISK_CLOSE_MIN, RunningEdge};
use super::start_error::StartError;
use super::worker_thread::{Listeners, Stop};
use crate::cache::disk::{DiskError, DiskTier};
use crate::cache::successor::{ForwardedChange, Receipt};
use crate::client::h3::bound::bind_rest;
use crate::path::worker::Shared;
use crate::rt::panics::lock;

impl RunningEdge {
    /// Returns a handle by which another thread passes this edge to a new process.
    pub fn upgrade_source(&self) -> UpgradeSource {
        UpgradeSource {
            generations: Arc::clone(&self.generations),
            listeners: self.listeners.clone(),
            reloader: self.reloader(),
            admin: self.admin.as_ref().and_then(|admin| admin.socket().ok()),
        }
    }

    /// Returns a handle that applies the changes that the process before this one forwards.
    pub fn forwarded_changes(&self) -> impl Fn(ForwardedChange) + Send + Sync + 'static {
        let cache = Arc::clone(&self.generations.shared().cache);
        move |change| cache.apply_forwarded(change)
    }

    /// Returns true if a listener has HTTP/3. The process before this one must then stop reading its sockets of UDP.
    pub fn takes_quic(&self) -> bool {
        self.generations.has_http3()
    }

    /// Returns a function that begins to read the sockets of UDP. Call it when the process before this one has stopped.
    pub fn quic_take_over(&self) -> impl Fn() + Send + Sync + 'static {
        let routes = Arc::clone(&self.generations.routes);
        let shared = self.generations.shared().config.share_ports;
        move || {
            bind_rest(&routes.open_sockets(), shared);
            routes.read_sockets();
        }
    }

    /// Counts that this process has replaced another.
    pub fn count_upgrade(&self) {
        self.generations
            .shared()
            .other_counters()
            .process_upgrades
            .increment();
    }

    /// Like [`shutdown`](Self::shutdown), for an edge that another process replaces. Calls `released` when the other
    /// process can open the disk store, which may be long before the last request has ended. Idle connections of
    /// HTTP/1.1 stay open for one more request, for a few seconds at most.
    pub fn shutdown_for_successor(mut self, drain: Duration, released: impl FnOnce() + Send) {
        self.stop_accepting(drain, Some(LAST_REQUEST_MAX));
        let (disk, memory) = Persistent::end(&self.persistent);
        let cache = Arc::clone(&self.generations.shared().cache);
        std::thread::scope(|scope| {
            let (ended, workers_run) = mpsc::channel::<()>();
            scope.spawn(move || {
                let is_needed = || workers_run.try_recv() == Err(mpsc::TryRecvError::Empty);
                if let Some(disk) = disk {
                    disk.retire();
                    disk.wait_until_unused(is_needed);
                    if let Some(memory) = memory {
                        memory.persist();
                    }
                    disk.close(DISK_CLOSE_MIN.max(drain));
                    cache.purges.detach();
                    disk.release(is_needed);
                }
                released();
            });
            // The other process accepts the requests of the admin server. The response to the request for the upgrade
            // may still be pending.
            self.admin = None;
            self.join_workers();
            drop(ended);
        });
        self.stop_within(Duration::ZERO, false);
    }

    /// Returns a handle that opens the disk store after the process before this one has released it.
    pub fn disk_take_over(&self) -> DiskTakeOver {
        DiskTakeOver {
            shared: self.generations.shared(),
            persistent: Arc::clone(&self.persistent),
        }
    }

    /// Stops accepting connections, and lets the workers end.
    pub(super) fn stop_accepting(&mut self, drain: Duration, last_request: Option<Duration>) {
        let stop = Stop {
            drain,
            last_request,
        };
        if self.stop.borrow().is_none() {
            self.stop.send_replace(Some(stop));
        }
        self.listeners.send_replace(Arc::default());
        if let Some(memory) = &mut lock(&self.persistent).memory {
            memory.stop_filling();
        }
    }

    pub(super) fn join_workers(&mut self) {
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a worker's thread panicked");
            }
        }
    }
}

/// The parts of a running edge that a new process gets.
pub struct UpgradeSource {
    generations: Arc<Generations>,
    listeners: watch::Sender<Listeners>,
    reloader: Reloader,
    admin: Option<OwnedFd>,
}

impl UpgradeSource {
    /// Returns copies of all listening sockets with the addresses of the configuration, for
    /// [`InheritedSockets`](crate::InheritedSockets) of another process. A reload that opens a listener is refused from
    /// now on, unless the upgrade [fails](Self::record_failure).
    pub fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        self.reloader.pass_sockets(|| self.copy_sockets())
    }

    fn copy_sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut copies = Vec::new();
        let mut with_http3 = Vec::new();
        for listener in self.listeners.borrow().iter() {
            for socket in listener.sockets.iter().flatten() {
                copies.push((listener.configured.to_string(), socket.try_clone()?));
            }
            if listener.http3.is_some() {
                with_http3.push(udp_name(&listener.configured));
            }
        }
        let routes = &self.generations.routes;
        let udp = routes.sockets()?.into_iter();
        // The new process reads a socket if it has the listener.
        copies.extend(udp.filter(|(listener, _)| with_http3.contains(listener)));
        let inboxes = routes.inboxes()?;
        let inboxes = inboxes.into_iter();
        copies.extend(inboxes.map(|(endpoint, inbox)| (inbox_name(endpoint), inbox)));
        if let (Some(admin), Some(addr)) =
            (&self.admin, &self.generations.shared().config.admin.address)
        {
            copies.push((format!("{ADMIN} {addr}"), admin.try_clone()?));
        }
        Ok(copies)
    }

    /// Returns the values that a process needs to identify the objects of this cache.
    pub fn cache_identity(&self) -> CacheIdentity {
        let cache = &self.generations.shared().cache;
        CacheIdentity {
            hash_seed: cache.hash_seed,
            purges: cache.purges.latest().0,
        }
    }

    /// Returns the identity of this process for connections of HTTP/3.
    pub fn quic_identity(&self) -> QuicIdentity {
        self.generations.routes.identity().clone()
    }

    /// Stops reading the sockets of UDP, for a process that [takes](RunningEdge::takes_quic) them. That process passes
    /// the datagrams of connections of this one on.
    pub fn leave_quic(&self) {
        self.generations.routes.leave_sockets();
    }

    /// Calls `send` with each purge and invalidation from now on, for the process that replaces this one. `send` calls
    /// the receipt when the other process has the change. Call this function when the other process accepts
    /// connections.
    pub fn forward_changes(&self, send: impl Fn(ForwardedChange, Receipt) + Send + Sync + 'static) {
        self.generations.shared().cache.successor.set(send);
    }

    /// Returns the longest time to wait for the new process.
    pub fn timeout(&self) -> Duration {
        self.generations.shared().config.upgrade_timeout
    }

    /// Records that the upgrade has failed: this process carries on.
    pub fn record_failure(&self) {
        self.reloader.keep_sockets();
        self.generations
            .shared()
            .other_counters()
            .process_upgrades_failed
            .increment();
    }

    /// Sets the function that `POST /upgrade` of the admin server calls. It returns the id of the new process, or the
    /// reason why the upgrade failed. Only the first call counts.
    pub fn on_request(&self, upgrade: impl Fn() -> Result<u32, String> + Send + Sync + 'static) {
        _ = self.generations.on_upgrade.set(Box::new(upgrade));
    }
}

impl std::fmt::Debug for UpgradeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UpgradeSource")
    }
}

/// Opens the disk store of the process before this one.
pub struct DiskTakeOver {
    shared: Arc<Shared>,
    persistent: Arc<Mutex<Persistent>>,
}

impl DiskTakeOver {
    /// Opens the disk store and its log of purges. Waits up to a minute if another process still has them. After an
    /// error, the edge works without a disk; unless another process has the store, the log then gets the purges too, so
    /// that they apply to the objects on disk when the store is opened again.
    pub fn run(self) -> Result<(), StartError> {
        let (config, cache) = (&self.shared.config, &self.shared.cache);
        let Some(disk) = &config.disk else {
            return Ok(());
        };
        let ram_object_bytes_max = config.limits.object_bytes_max.min(config.hot.capacity);
        let start = Instant::now();
        let opened = loop {
            let seed = Some(cache.hash_seed);
            match DiskTier::open(disk, seed, ram_object_bytes_max, &cache.hot) {
                Err(DiskError::Open(error))
                    if is_locked(&error)
                        && start.elapsed() < RELEASE_WAIT_MAX
                        && !lock(&self.persistent).has_ended =>
                {
                    std::thread::sleep(RELEASE_CHECK_INTERVAL);
                }
                other => break other,
            }
        };
        let is_of_other_process =
            matches!(&opened, Err(DiskError::Open(error)) if is_locked(error));
        let tier = opened.map(|opened| opened.tier.map(Arc::new));
        if let Ok(Some(tier)) = &tier
            && tier.cache.key_seed() != cache.hash_seed
        {
            tier.close(DISK_CLOSE_MIN);
            return Err(StartError::OtherStore);
        }
        let attached = match purge_log(config) {
            Some(path) if !is_of_other_process => cache.purges.attach(path).map(|_| ()),
            _ => Ok(()),
        };
        log_damage(&cache.purges);
        // The log has the position in the stream.
        cache.follow_fleet();
        let lose = || {
            let cache = Arc::downgrade(cache);
            self.shared.cache.disk.lose(move |purges| {
                if let Some(cache) = cache.upgrade() {
                    cache.purges.purge(purges, |_| ());
                }
            });
        };
        let Ok(Some(tier)) = tier else {
            lose();
            tier?;
            return Ok(attached?);
        };
        // The edge does not stop before both are in place.
        let mut persistent = lock(&self.persistent);
        if persistent.has_ended || attached.is_err() {
            drop(persistent);
            lose();
            tier.close(DISK_CLOSE_MIN);
            return Ok(attached?);
        }
        cache.disk.attach(Arc::clone(&tier), |purges| {
            let (done, accepted) = mpsc::channel();
            cache
                .purges
                .purge(purges, move |result| _ = done.send(result));
            _ = accepted.recv();
        });
        let counters = Arc::clone(self.shared.other_counters());
        let memory = PersistentMemory::start(disk.clone(), Arc::clone(cache), counters);
        persistent.disk = Some(tier);
        persistent.memory = Some(memory.map_err(|source| StartError::Thread {
            what: "the fill of memory",
            source,
        })?);
        Ok(())
    }
}

impl std::fmt::Debug for DiskTakeOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskTakeOver")
    }
}

fn is_locked(error: &OpenError) -> bool {
    let OpenError::Device { source, .. } = error else {
        return false;
    };
    source.kind() == io::ErrorKind::ResourceBusy
}

/// The longest time for which an idle connection stays open for a last request. Clients that send requests all the time
/// need milliseconds. An idle connection that is closed later may meet a request only in the moment of the close.
const LAST_REQUEST_MAX: Duration = Duration::from_secs(5);

/// The longest wait for the process before this one to release the store, after it has said so or has ended.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(60);
const RELEASE_CHECK_INTERVAL: Duration = Duration::from_millis(10);
