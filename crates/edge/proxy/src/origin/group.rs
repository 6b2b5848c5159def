//! A worker's connections to the servers of one origin, and the retries at another server.
//!
//! All servers share the slots of the origin: its limit of connections, the queue of waiting requests and the shares of
//! clients. Each server has its own pool of connections.
//!
//! A request that fails before its response began is sent to another server: always if it reached no server, and
//! otherwise only if it may be repeated and the retry budget allows it.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use edgeward_balance::ServerId;
use edgeward_types::Timestamp;

use super::error::OriginError;
use super::lease::PoolState;
use super::location;
use super::orphans::{Abandoned, Orphans};
use super::outbound::Outbound;
use super::pool::{Attempt, OriginPool, OriginResponse};
use super::servers::{Server, Servers};
use super::share_limit::ShareLimit;
use super::upload::{Upload, Uploads};
use crate::config::{LimitsConfig, OriginConfig, OriginProtocol};
use crate::observe::counters::Counters;
use crate::observe::log::SparseLog;
use crate::observe::metric_labels::WorkerTally;
use crate::observe::origin_counters::OriginCounters;
use crate::rt::budget::MemoryBudget;
use crate::rt::clock::Clock;
use crate::rt::tasks::TaskSet;

/// A worker's connections to one origin.
pub(crate) struct OriginGroup {
    pub(super) servers: Arc<Servers>,
    pub(super) config: Rc<OriginConfig>,
    pub(super) limits: Rc<LimitsConfig>,
    uploads: Rc<Uploads>,
    pub(super) slots: Rc<PoolState>,
    /// Limits the connections outside of the pools: see [`switch`](Self::switch).
    pub(super) tunnels: Rc<ShareLimit>,
    pub(super) tunnel_log: SparseLog,
    pub(super) counters: Arc<Counters>,
    pools: RefCell<Vec<(ServerId, Rc<OriginPool>)>>,
    /// The version of the servers at the last sweep.
    version: Cell<u64>,
    /// Locked by the request that resolves the host names after the start.
    resolving: tokio::sync::Mutex<()>,
}

/// The state that a worker's group gets from its thread.
pub(crate) struct GroupParts {
    pub(crate) servers: Arc<Servers>,
    pub(crate) config: OriginConfig,
    pub(crate) limits: LimitsConfig,
    /// The number of workers, among which limits are divided.
    pub(crate) workers: NonZeroUsize,
    pub(crate) counters: Arc<Counters>,
    pub(crate) tally: WorkerTally<OriginCounters>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) upload_budget: Arc<MemoryBudget>,
}

impl OriginGroup {
    pub(crate) fn new(parts: GroupParts) -> Self {
        let GroupParts {
            servers,
            config,
            limits,
            workers,
            counters,
            tally,
            clock,
            upload_budget,
        } = parts;
        // Each worker gets the same share.
        let tunnels_max = limits.tunnels_max.get().div_ceil(workers.get());
        let uploads = Uploads::new(
            &config,
            limits.clone(),
            upload_budget,
            Arc::clone(&counters),
            Arc::clone(&clock),
        );
        Self {
            tunnels: ShareLimit::new(tunnels_max, config.client_share_percent),
            tunnel_log: SparseLog::default(),
            slots: Rc::new(PoolState::new(&config, Arc::clone(&counters), tally, clock)),
            version: Cell::new(servers.version()),
            servers,
            config: Rc::new(config),
            limits: Rc::new(limits),
            uploads,
            counters,
            pools: RefCell::default(),
            resolving: tokio::sync::Mutex::new(()),
        }
    }

    /// Sets the counters of the origin, which a reload may change.
    pub(crate) fn set_tally(&self, tally: WorkerTally<OriginCounters>) {
        self.slots.tally.replace(tally);
    }

    /// Returns true if these are the group's servers.
    pub(crate) fn has_servers(&self, servers: &Arc<Servers>) -> bool {
        Arc::ptr_eq(&self.servers, servers)
    }

    pub(crate) fn is_h2(&self) -> bool {
        self.config.protocol == OriginProtocol::Http2
    }

    pub(crate) fn uploads(&self) -> &Rc<Uploads> {
        &self.uploads
    }

    /// Returns the fetches that run in tasks of their own and can outlive their clients.
    pub(crate) fn orphans(&self) -> &Orphans {
        &self.slots.orphans
    }

    /// Continues an exchange whose client has left: see [`Orphans::spawn_abandoned`]. Drops it if requests wait for a
    /// connection.
    pub(crate) fn abandon(
        &self,
        tasks: &TaskSet,
        exchange: impl Future<Output = ()> + 'static,
        abandoned: Abandoned,
        is_wanted: impl Fn() -> bool + Clone + 'static,
        has_begun: impl Fn() -> bool + 'static,
    ) {
        if self.slots.is_contended() && !is_wanted() && !has_begun() {
            return abandoned.counters.fetches_cancelled.increment();
        }
        let orphans = &self.slots.orphans;
        orphans.spawn_abandoned(tasks, exchange, abandoned, is_wanted, has_begun);
    }

    /// Sends a request to one server after the other, and returns the first response.
    pub(crate) async fn send(
        &self,
        attempt: &Attempt,
        outbound: &Outbound<'_>,
        mut upload: Upload,
    ) -> Result<OriginResponse, OriginError> {
        let hash = self.servers.hash(outbound.request);
        let may_repeat = attempt.repeatable && attempt.upload.is_none();
        let mut retries_left = self.config.retries_max;
        let mut tried = Vec::new();
        let mut last_error = None;
        loop {
            let Some(chosen) = self.servers.choose(hash, may_repeat, &tried) else {
                if self.servers.is_empty() {
                    Box::pin(self.resolve()).await?;
                    continue;
                }
                return Err(last_error.unwrap_or_else(|| {
                    let error = OriginError::NoServer;
                    error.count(&self.counters);
                    error
                }));
            };
            if last_error.take().is_some() {
                self.counters.origin_failovers.increment();
            }
            let pool = self.pool(&chosen.server);
            let error = match pool.send(attempt, outbound, &mut upload).await {
                Ok((mut parts, mut body)) => {
                    chosen.succeed();
                    body.set_server(chosen);
                    location::rewrite(&self.config, outbound.request, &mut parts);
                    return Ok((parts, body));
                }
                Err(error) => error,
            };
            if error.is_failure_of_server() {
                chosen.fail(&error);
            }
            tried.push(chosen.server.id);
            drop(chosen);
            let may_retry = may_retry(&error, may_repeat, &mut retries_left);
            if !may_retry || !self.servers.has_untried(&tried) {
                return Err(error);
            }
            if reached_server(&error) && !self.servers.try_retry() {
                self.counters.origin_retries_denied.increment();
                return Err(error);
            }
            last_error = Some(error);
        }
    }

    /// Sends a request without content to the first server once, although it may be ejected and no probe of it be due.
    /// The answer does not change its state.
    pub(crate) async fn send_to_ejected(
        &self,
        attempt: &Attempt,
        outbound: &Outbound<'_>,
    ) -> Result<OriginResponse, OriginError> {
        let servers = self.servers.list();
        let pool = self.pool(servers.first().ok_or(OriginError::NoServer)?);
        Box::pin(pool.send(attempt, outbound, &mut Upload::Empty)).await
    }

    /// Resolves the host names, if no other request has done so.
    pub(super) async fn resolve(&self) -> Result<(), OriginError> {
        let resolving = async {
            let _first = self.resolving.lock().await;
            match self.servers.is_empty() {
                true => self.servers.resolve().await.map(drop),
                false => Ok(()),
            }
        };
        let resolved = tokio::time::timeout(self.config.connect_timeout, resolving)
            .await
            .map_err(|_| OriginError::ResolveTimeout)
            .and_then(|resolved| resolved.map_err(|source| OriginError::Resolve { source }));
        if let Err(error) = &resolved {
            error.count(&self.counters);
        }
        resolved
    }

    pub(super) fn pool(&self, server: &Arc<Server>) -> Rc<OriginPool> {
        let mut pools = self.pools.borrow_mut();
        if let Some((_, pool)) = pools.iter().find(|(id, _)| *id == server.id) {
            return Rc::clone(pool);
        }
        let pool = Rc::new(OriginPool::new(
            Rc::clone(&self.config),
            Rc::clone(&self.limits),
            Arc::clone(server),
            Rc::clone(&self.slots),
        ));
        pools.push((server.id, Rc::clone(&pool)));
        pool
    }

    /// Ends slow uploads, closes connections that were idle for too long or whose server has left, and leases free
    /// slots to waiting requests.
    pub(crate) fn sweep(&self, now: Timestamp) {
        self.uploads.sweep(now, self.limits.upload_rate());
        let version = self.servers.version();
        if self.version.replace(version) != version {
            let servers = self.servers.list();
            let is_left = |id: ServerId| servers.iter().any(|server| server.id == id);
            self.pools.borrow_mut().retain(|(id, pool)| {
                let is_left = is_left(*id);
                if !is_left {
                    pool.close();
                }
                is_left
            });
            self.slots.close_idle_where(|idle| !is_left(idle.server));
        }
        let timeout = self.config.idle_timeout;
        self.slots.close_idle_where(|idle| {
            now.since(idle.since) > timeout || !idle.connection.is_usable()
        });
        self.slots.serve_waiting();
    }

    /// Closes all idle connections, and waits for all tasks of connections for at most `within`.
    pub(crate) async fn shut_down(&self, within: Duration) {
        for (_, pool) in self.pools.take() {
            pool.close();
        }
        self.slots.close_idle_where(|_| true);
        _ = tokio::time::timeout(within, self.slots.tasks.idle()).await;
    }
}

/// Returns true if a server may have received a part of the request.
const fn reached_server(error: &OriginError) -> bool {
    !matches!(
        error,
        OriginError::Connect { .. } | OriginError::ConnectTimeout
    )
}

/// Returns true if another server may get the request. Failures that take time use up the retries of the request.
/// Connections that are refused at once do not, so that a request finds the only server that is up.
pub(super) fn may_retry(error: &OriginError, may_repeat: bool, retries_left: &mut u32) -> bool {
    let mut takes_retry = || match retries_left.checked_sub(1) {
        Some(left) => {
            *retries_left = left;
            true
        }
        None => false,
    };
    match error {
        OriginError::Connect { .. } => true,
        OriginError::ConnectTimeout => takes_retry(),
        OriginError::FirstByteTimeout
        | OriginError::Incomplete { .. }
        | OriginError::Tls { .. } => may_repeat && takes_retry(),
        OriginError::Resolve { .. }
        | OriginError::ResolveTimeout
        | OriginError::Busy
        | OriginError::NoServer
        | OriginError::ReadTimeout
        | OriginError::HeadInvalid { .. }
        | OriginError::HeadTooLarge
        | OriginError::UpgradeFailed { .. }
        | OriginError::TooManyTunnels
        | OriginError::Upload { .. }
        | OriginError::UploadTooLarge
        | OriginError::UploadTooSlow => false,
    }
}
