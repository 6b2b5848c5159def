//! The servers of one origin, which all workers share: addresses, health, and the choice of a server for a request.
//!
//! The decisions are in [`edgeward_balance`]. One lock guards the state of a group; it is held for one decision, and
//! only requests to the origin take it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use edgeward_balance::{
    BudgetSettings, Group, GroupSettings, HealthSettings, HealthState, Member, Method, Query,
    RetryBudget, Selection, ServerId, Verdict,
};
use edgeward_types::xxh3::{xxh3_64, xxh3_64_with_seed};
use edgeward_types::{SplitMix64, Timestamp};
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use super::connect::{Connector, ConnectorError, Route};
use super::health::OriginHealth;
use crate::base::config::{Balance, OriginConfig, OriginUrl};
use crate::base::error_chain::ErrorChain;
use crate::base::resolve::{Resolve, SystemResolver};
use crate::exchange::Request;

/// The servers of one origin.
pub(crate) struct Servers {
    origin: String,
    /// The servers of the configuration. One with a host name becomes a server for each address.
    configured: Vec<ConfiguredServer>,
    tls: Option<TlsConnector>,
    resolver: Arc<dyn Resolve>,
    servers_max: usize,
    has_hash: bool,
    /// The time 0 of the group. Health follows the monotonic clock, so that a step of the wall clock ejects no server.
    start: Instant,
    /// Changes when the list of servers changes.
    version: AtomicU64,
    state: Mutex<State>,
}

/// A server of the configuration.
struct ConfiguredServer {
    url: OriginUrl,
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

struct State {
    group: Group,
    budget: RetryBudget,
    random: SplitMix64,
    /// The last good answer for each configured server with a host name.
    answers: HashMap<usize, Vec<SocketAddr>>,
    /// True if the last resolution of a host name failed.
    has_unresolved: bool,
    servers: Vec<Arc<Server>>,
    next_id: u64,
}

/// One address of a server.
pub(crate) struct Server {
    pub(super) id: ServerId,
    /// The index of the configured server.
    configured: usize,
    /// The address, for messages and metrics. It identifies the server.
    pub(crate) name: String,
    pub(super) connector: Connector,
    pub(crate) requests: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) ejections: AtomicU64,
    pub(crate) failed_checks: AtomicU64,
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
        let primaries = config.servers.iter().map(|url| (url, false));
        let backups = config.backup_servers.iter().map(|url| (url, true));
        let configured = primaries.chain(backups).map(|(url, is_backup)| {
            Ok(ConfiguredServer {
                url: url.clone(),
                is_backup,
                server_name: Connector::server_name(config, url)?,
                routes: match (&config.dial, &url.socket, url.host.parse::<IpAddr>()) {
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
        let default_resolver = || Arc::new(SystemResolver) as Arc<dyn Resolve>;
        let servers = Self {
            origin: config.name.clone(),
            configured: configured.collect::<Result<_, _>>()?,
            tls: Connector::tls(config)?,
            resolver: config.resolver.clone().unwrap_or_else(default_resolver),
            servers_max: config.servers_max.get(),
            has_hash: config.balance == Balance::Hash,
            start: Instant::now(),
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

    fn now(&self) -> Timestamp {
        let millis = self.start.elapsed().as_millis();
        Timestamp::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
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

    /// Returns true if the last connections to all servers failed, or if no server is known.
    pub(crate) fn is_down(&self) -> bool {
        let state = self.lock();
        let is_down = |server: &Arc<Server>| server.connector.health().is_down();
        match state.servers.is_empty() {
            true => state.has_unresolved,
            false => state.servers.iter().all(is_down),
        }
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
        if !is_ok {
            server.failed_checks.fetch_add(1, Relaxed);
        }
        let now = self.now();
        if !self.lock().group.record_check(server.id, is_ok, now) {
            return;
        }
        let (origin, name) = (&self.origin, &server.name);
        match error {
            None => tracing::info!(
                origin,
                server = name,
                "health checks of the server succeed again"
            ),
            Some(error) => {
                tracing::warn!(
                    origin,
                    server = name,
                    error,
                    "health checks of the server fail"
                );
            }
        }
    }

    /// Resolves the host names and changes the list of servers. A name that cannot be resolved keeps its last
    /// addresses. Returns the last error if the list is empty after that.
    pub(super) async fn resolve(&self) -> Result<(), io::Error> {
        let mut last_error = None;
        for (index, configured) in self.configured.iter().enumerate() {
            if !matches!(configured.routes, Routes::Name) {
                continue;
            }
            let (host, port) = (configured.url.host.clone(), configured.url.port);
            let resolver = Arc::clone(&self.resolver);
            let resolving = tokio::task::spawn_blocking(move || resolver.resolve(&host, port));
            let answer = match resolving.await {
                Ok(Ok(addresses)) if addresses.is_empty() => {
                    let text = format!("{} has no address", configured.url.host);
                    Err(io::Error::new(io::ErrorKind::NotFound, text))
                }
                Ok(answer) => answer,
                Err(panicked) => Err(io::Error::other(panicked)),
            };
            match answer {
                Ok(mut addresses) => {
                    // The order of answers changes from query to query.
                    addresses.sort_unstable();
                    addresses.dedup();
                    let state = &mut *self.lock();
                    if state.answers.get(&index) != Some(&addresses) {
                        state.answers.insert(index, addresses);
                        self.update(state);
                    }
                }
                Err(error) => {
                    let (origin, host) = (&self.origin, &configured.url.host);
                    tracing::debug!(origin, host, error = %ErrorChain(&error), "cannot resolve the host");
                    last_error = Some(error);
                }
            }
        }
        self.lock().has_unresolved = last_error.is_some();
        match last_error {
            Some(error) if self.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the list of servers from the configuration and the resolved addresses. Servers that stay keep their state.
    fn update(&self, state: &mut State) {
        let mut found: Vec<(usize, Route, String)> = Vec::new();
        for (index, configured) in self.configured.iter().enumerate() {
            let routes = match &configured.routes {
                Routes::Fixed(route) => vec![route.clone()],
                Routes::Name => {
                    let addresses = state.answers.get(&index).into_iter().flatten();
                    addresses.map(|addr| Route::Tcp(*addr)).collect()
                }
            };
            for route in routes {
                let name = server_name(configured, &route);
                if !found.iter().any(|(_, _, other)| *other == name) {
                    found.push((index, route, name));
                }
            }
        }
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
        for (index, route, name) in found {
            let known = state.servers.iter().find(|server| server.name == name);
            servers.push(match known {
                Some(server) => Arc::clone(server),
                None => {
                    state.next_id += 1;
                    Arc::new(self.server(ServerId(state.next_id), index, route, name))
                }
            });
        }
        state.servers = servers;
        let members = state.servers.iter().map(|server| Member {
            id: server.id,
            key: xxh3_64(server.name.as_bytes()),
            is_backup: self.configured[server.configured].is_backup,
        });
        let members: Vec<_> = members.collect();
        state.group.set_members(&members, self.now());
        self.version.fetch_add(1, Relaxed);
    }

    fn server(&self, id: ServerId, index: usize, route: Route, name: String) -> Server {
        let health = OriginHealth::new(self.origin.clone(), name.clone());
        let tls = self
            .tls
            .clone()
            .zip(self.configured[index].server_name.clone());
        Server {
            id,
            configured: index,
            connector: Connector::new(route, tls, Arc::new(health)),
            name,
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
        (Route::Tcp(addr), Routes::Name) => format!("{addr} ({})", configured.url.host),
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
