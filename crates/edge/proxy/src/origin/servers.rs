//! The servers of one origin, which all workers share: addresses, health, and the choice of a server for a request.
//!
//! The decisions are in [`edgeward_balance`]. One lock guards the state of a group; it is held for one decision, and
//! only requests to the origin take it.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use edgeward_balance::{
    BudgetSettings, Group, GroupSettings, HealthSettings, HealthState, Member, Method, Query,
    RetryBudget, Selection, ServerId, Verdict,
};
use edgeward_types::xxh3::{xxh3_64, xxh3_64_with_seed};
use edgeward_types::{SplitMix64, Timestamp};
use rustls_pki_types::ServerName;

use super::connect::{Connector, ConnectorError, OriginTlsConnectors, Route};
use super::health::OriginHealth;
use super::names::Names;
use super::s3::Signer;
use crate::config::interfaces::{Resolved, Target};
use crate::config::{Balance, OriginConfig, OriginUrl};
use crate::exchange::Request;
use crate::observe::log::ErrorChain;
use crate::rt::panics::lock;

/// The servers of one origin.
pub(crate) struct Servers {
    pub(super) origin: String,
    /// The servers of the configuration. One with a host name becomes a server for each target.
    pub(super) configured: Vec<ConfiguredServer>,
    tls: Option<OriginTlsConnectors>,
    proxy_protocol: Option<edgeward_proxy_protocol::Version>,
    names: Names,
    resolve_interval: Duration,
    servers_max: usize,
    has_hash: bool,
    /// Signs requests, if the origin is a bucket.
    signer: Option<Signer>,
    /// The time 0 of the group. Health follows the monotonic clock, so that a step of the wall clock ejects no server.
    pub(super) start: Instant,
    /// Changes when the list of servers changes.
    version: AtomicU64,
    state: Mutex<State>,
}

/// A server of the configuration.
pub(super) struct ConfiguredServer {
    pub(super) url: OriginUrl,
    is_backup: bool,
    server_name: Option<ServerName<'static>>,
    routes: Routes,
}

/// How the edge connects to a server of the configuration.
enum Routes {
    Fixed(Route),
    /// The host name has to be resolved.
    Name,
}

pub(super) struct State {
    pub(super) group: Group,
    budget: RetryBudget,
    random: SplitMix64,
    /// The last good answer for each configured server with a host name.
    pub(super) answers: HashMap<usize, Vec<Target>>,
    /// True if the last resolution of a host name failed.
    has_unresolved: bool,
    pub(super) servers: Vec<Arc<Server>>,
    next_id: u64,
}

/// One address of a server.
pub(crate) struct Server {
    pub(super) id: ServerId,
    /// The address, for messages and metrics. It identifies the server.
    pub(crate) name: String,
    pub(super) connector: Connector,
    pub(crate) requests: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) ejections: AtomicU64,
    pub(crate) failed_checks: AtomicU64,
}

/// A server that the configuration and the resolved names ask for.
struct RequestedServer {
    name: String,
    /// The index of the configured server.
    configured: usize,
    route: Route,
    is_backup: bool,
    weight: NonZeroU32,
}

/// The state of a server for the status page and the metrics.
pub(crate) struct ServerReport {
    pub(crate) server: Arc<Server>,
    pub(crate) is_backup: bool,
    pub(crate) state: HealthState,
    pub(crate) under_way: u32,
}

impl Servers {
    /// Returns the servers of an origin. Host names are resolved later. `seed` is the seed of the random choices.
    pub(crate) fn new(config: &OriginConfig, seed: u64) -> Result<Self, ConnectorError> {
        Self::at(config, seed, Instant::now())
    }

    /// Returns the servers of an origin, whose times begin at `start`.
    pub(super) fn at(
        config: &OriginConfig,
        seed: u64,
        start: Instant,
    ) -> Result<Self, ConnectorError> {
        let primaries = config.servers.iter().map(|url| (url, false));
        let backups = config.backup_servers.iter().map(|url| (url, true));
        let configured = primaries.chain(backups).map(|(url, is_backup)| {
            Ok::<_, ConnectorError>(ConfiguredServer {
                url: url.clone(),
                is_backup,
                server_name: Connector::server_name(config, url)?,
                routes: match (&config.dial, &url.socket, url.host.parse::<IpAddr>()) {
                    (None, None, _) if url.service.is_some() => Routes::Name,
                    (Some(dial), _, _) => Routes::Fixed(Route::Dial(Arc::clone(dial))),
                    (None, Some(path), _) => Routes::Fixed(Route::Unix(path.clone())),
                    (None, None, Ok(ip)) => Routes::Fixed(Route::Tcp((ip, url.port).into())),
                    (None, None, Err(_)) => Routes::Name,
                },
            })
        });
        let group = Group::new(GroupSettings {
            method: match config.balance {
                Balance::RoundRobin => Method::RoundRobin,
                Balance::LeastRequests => Method::LeastRequests,
                Balance::Hash => Method::Hash {
                    excess_percent: config.hash_excess_percent,
                },
            },
            health: HealthSettings {
                failures_max: config.failures_max.get(),
                ejection_time: config.ejection_time,
                ejection_time_max: config.ejection_time_max,
                slow_start: config.slow_start,
                has_checks: config.checks.path.is_some(),
                check_failures: config.checks.failures.get(),
                check_successes: config.checks.successes.get(),
            },
            all_down: config.all_down,
        });
        let budget = RetryBudget::new(BudgetSettings {
            percent: config.retry_percent,
            per_second: config.retries_per_second,
        });
        let servers = Self {
            origin: config.name.clone(),
            configured: configured.collect::<Result<_, _>>()?,
            tls: Connector::tls(config)?,
            proxy_protocol: config.proxy_protocol,
            names: Names::new(config),
            resolve_interval: config.resolve_interval,
            servers_max: config.servers_max.get(),
            has_hash: config.balance == Balance::Hash,
            signer: config.s3.clone().map(Signer::new).transpose()?,
            start,
            version: AtomicU64::new(0),
            state: Mutex::new(State {
                group,
                budget,
                random: SplitMix64(seed),
                answers: HashMap::new(),
                has_unresolved: false,
                servers: Vec::new(),
                next_id: 0,
            }),
        };
        servers.update(&mut servers.lock());
        Ok(servers)
    }

    pub(super) fn now(&self) -> Timestamp {
        let millis = self.start.elapsed().as_millis();
        Timestamp::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the signer of requests, if the origin is a bucket.
    pub(crate) const fn signer(&self) -> Option<&Signer> {
        self.signer.as_ref()
    }

    /// Returns true if a server of the configuration has a host name.
    pub(super) fn has_names(&self) -> bool {
        self.configured
            .iter()
            .any(|configured| matches!(configured.routes, Routes::Name))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().servers.is_empty()
    }

    /// Returns a number that changes when the list of servers changes.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    pub(super) fn list(&self) -> Vec<Arc<Server>> {
        self.lock().servers.clone()
    }

    /// Returns true if no server works: the last connection to each server or its health checks failed, or no server is
    /// known. A server that is down is connected to again without a request, so this is up to date on a quiet site.
    pub(crate) fn is_down(&self) -> bool {
        let state = self.lock();
        if state.servers.is_empty() {
            return state.has_unresolved;
        }
        let mut views = state.group.views(self.now());
        views.all(|view| {
            let server = state.servers.iter().find(|server| server.id == view.id);
            view.state == HealthState::CheckFailed
                || server.is_some_and(|server| server.connector.health().is_down())
        })
    }

    /// Returns the state of each server.
    pub(crate) fn reports(&self) -> Vec<ServerReport> {
        let state = self.lock();
        let views = state.group.views(self.now());
        let reports = views.filter_map(|view| {
            let server = state.servers.iter().find(|server| server.id == view.id)?;
            Some(ServerReport {
                server: Arc::clone(server),
                is_backup: view.is_backup,
                state: view.state,
                under_way: view.under_way,
            })
        });
        reports.collect()
    }

    /// Returns the hash by which [`Method::Hash`] selects a server. It depends on the URL alone, so all edges and all
    /// processes select the same server.
    pub(super) fn hash(&self, request: &Request) -> u64 {
        if !self.has_hash {
            return 0;
        }
        let authority = xxh3_64(request.authority().unwrap_or_default().as_bytes());
        xxh3_64_with_seed(request.path_and_query().as_bytes(), authority)
    }

    /// Chooses a server that is not in `tried`. Returns `None` if no server is left.
    pub(super) fn choose(
        self: &Arc<Self>,
        hash: u64,
        may_probe: bool,
        tried: &[ServerId],
    ) -> Option<Chosen> {
        let now = self.now();
        let state = &mut *self.lock();
        if tried.is_empty() {
            state.budget.record_request(now);
        }
        let selection = state.group.choose(&Query {
            now,
            random: state.random.draw(),
            hash,
            may_probe,
            tried,
        })?;
        let is_chosen = |server: &&Arc<Server>| server.id == selection.server;
        let server = state.servers.iter().find(is_chosen);
        let server = Arc::clone(server.expect("the group has the servers of the list"));
        server.requests.fetch_add(1, Relaxed);
        Some(Chosen {
            servers: Arc::clone(self),
            server,
            selection,
        })
    }

    /// Returns true if a server is not in `tried`.
    pub(super) fn has_untried(&self, tried: &[ServerId]) -> bool {
        let is_untried = |server: &Arc<Server>| !tried.contains(&server.id);
        self.lock().servers.iter().any(is_untried)
    }

    /// Returns true and counts a retry if the budget allows one.
    pub(super) fn try_retry(&self) -> bool {
        self.lock().budget.try_retry(self.now())
    }

    /// Records the result of an active check.
    pub(super) fn record_check(&self, server: &Server, error: Option<&str>) {
        let is_ok = error.is_none();
        match is_ok {
            true => server.connector.health().record_connection(Instant::now()),
            false => _ = server.failed_checks.fetch_add(1, Relaxed),
        }
        let now = self.now();
        if !self.lock().group.record_check(server.id, is_ok, now) {
            return;
        }
        let (origin, server) = (&self.origin, &server.name);
        match error {
            None => tracing::info!(origin, server, "health checks of the server succeed again"),
            Some(error) => {
                tracing::warn!(origin, server, error, "health checks of the server fail");
            }
        }
    }

    /// Resolves the host names and changes the list of servers. A name that cannot be resolved keeps its last targets.
    /// Returns the last error if the list is empty after that. Otherwise returns the time until the next resolution.
    pub(super) async fn resolve(&self) -> Result<Duration, io::Error> {
        let mut last_error = None;
        let mut ttl: Option<Duration> = None;
        for (index, configured) in self.configured.iter().enumerate() {
            if !matches!(configured.routes, Routes::Name) {
                continue;
            }
            match self.names.resolve(&configured.url).await {
                Ok(Resolved {
                    mut targets,
                    ttl: own_ttl,
                }) => {
                    let own_ttl = own_ttl.unwrap_or(self.resolve_interval);
                    ttl = Some(ttl.map_or(own_ttl, |ttl| ttl.min(own_ttl)));
                    // The order of answers changes from query to query.
                    targets.sort_unstable();
                    targets.dedup();
                    let state = &mut *self.lock();
                    if state.answers.get(&index) != Some(&targets) {
                        state.answers.insert(index, targets);
                        self.update(state);
                    }
                }
                Err(error) => {
                    let (origin, name) = (&self.origin, &configured.url);
                    tracing::debug!(origin, %name, error = %ErrorChain(&error), "cannot resolve the name");
                    last_error = Some(error);
                }
            }
        }
        let has_failed = last_error.is_some();
        self.lock().has_unresolved = has_failed;
        match (last_error, ttl) {
            (Some(error), _) if self.is_empty() => Err(error),
            (None, Some(ttl)) => Ok(ttl),
            (_, ttl) => Ok(ttl.map_or(self.resolve_interval, |ttl| ttl.min(self.resolve_interval))),
        }
    }

    /// Makes the list of servers from the configuration and the resolved addresses. Servers that stay keep their state.
    pub(super) fn update(&self, state: &mut State) {
        let mut found: Vec<RequestedServer> = Vec::new();
        for (index, configured) in self.configured.iter().enumerate() {
            let requested = |route: Route, is_backup, weight| RequestedServer {
                name: server_name(configured, &route),
                configured: index,
                is_backup: configured.is_backup || is_backup,
                route,
                weight,
            };
            let servers: Vec<_> = match &configured.routes {
                Routes::Fixed(route) => vec![requested(route.clone(), false, NonZeroU32::MIN)],
                Routes::Name => {
                    let targets = state.answers.get(&index).into_iter().flatten();
                    let to_server =
                        |to: &Target| requested(Route::Tcp(to.addr), to.is_backup, to.weight);
                    targets.map(to_server).collect()
                }
            };
            for server in servers {
                if !found.iter().any(|other| other.name == server.name) {
                    found.push(server);
                }
            }
        }
        // If the limit leaves some servers out, backups are left out first.
        found.sort_by_key(|server| server.is_backup);
        if found.len() > self.servers_max {
            let (origin, servers) = (&self.origin, found.len());
            let servers_max = self.servers_max;
            tracing::warn!(
                origin,
                servers,
                servers_max,
                "some servers of the origin are not used"
            );
            found.truncate(self.servers_max);
        }
        let mut servers = Vec::with_capacity(found.len());
        let mut members = Vec::with_capacity(found.len());
        for requested in found {
            let (is_backup, weight) = (requested.is_backup, requested.weight);
            let known = state
                .servers
                .iter()
                .find(|server| server.name == requested.name);
            let server = match known {
                Some(server) => Arc::clone(server),
                None => {
                    state.next_id += 1;
                    Arc::new(self.server(ServerId(state.next_id), requested))
                }
            };
            members.push(Member {
                id: server.id,
                key: xxh3_64(server.name.as_bytes()),
                is_backup,
                weight,
            });
            servers.push(server);
        }
        state.servers = servers;
        state.group.set_members(&members, self.now());
        self.version.fetch_add(1, Relaxed);
    }

    fn server(&self, id: ServerId, requested: RequestedServer) -> Server {
        let health = OriginHealth::new(self.origin.clone(), requested.name.clone());
        let tls_name = self.configured[requested.configured].server_name.clone();
        let tls = self.tls.clone().zip(tls_name);
        Server {
            id,
            connector: Connector::new(requested.route, tls, self.proxy_protocol, Arc::new(health)),
            name: requested.name,
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
            failed_checks: AtomicU64::new(0),
        }
    }
}

/// Returns the name of a server in messages and metrics: its address, and its host name if it has one.
fn server_name(configured: &ConfiguredServer, route: &Route) -> String {
    match (route, &configured.routes) {
        (Route::Tcp(addr), Routes::Name) => {
            let url = &configured.url;
            format!("{addr} ({})", url.service.as_ref().unwrap_or(&url.host))
        }
        (Route::Tcp(addr), Routes::Fixed(_)) => addr.to_string(),
        (Route::Unix(path), _) => format!("unix:{}", path.display()),
        (Route::Dial(_), _) => configured.url.authority(),
    }
}

/// A server that was chosen for a request. Dropping this value ends the request.
pub(crate) struct Chosen {
    servers: Arc<Servers>,
    pub(super) server: Arc<Server>,
    selection: Selection,
}

impl Chosen {
    /// Records that the server has sent the head of a response.
    pub(super) fn succeed(&self) {
        self.record(Verdict::Success);
    }

    /// Records that the server did not answer.
    pub(super) fn fail(&self, error: &dyn std::error::Error) {
        self.server.failures.fetch_add(1, Relaxed);
        if self.record(Verdict::Failure) {
            self.server.ejections.fetch_add(1, Relaxed);
            let (origin, server) = (&self.servers.origin, &self.server.name);
            let error = ErrorChain(error);
            tracing::warn!(origin, server, %error, "a server that failed gets no requests for a time");
        }
    }

    fn record(&self, verdict: Verdict) -> bool {
        let servers = &self.servers;
        let now = servers.now();
        servers.lock().group.record(self.selection, verdict, now)
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        let servers = &self.servers;
        let now = servers.now();
        servers.lock().group.finish(self.selection, now);
    }
}
