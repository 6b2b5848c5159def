//! The admin listener: metrics, status and health, with its own address and thread.

use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use edgeward_policy::{ADMISSION_NAMES, EVICTION_NAMES, ParsePolicyError, PolicySpec};
use edgeward_purge::PurgeRequest;
use edgeward_store::hot::PolicyChange;
use http::{HeaderValue, StatusCode};
use serde_json::json;
use tokio::sync::watch;

use edgeward_httpd::{AdminPages, AdminRoutes, ConnectionCounters, Server, ServerConfig};

use super::generations::Generations;
use super::{metrics, status};
use crate::cache::purging::RejectedPurge;
use crate::path::explain::explain;
use crate::path::inspect::{InspectedRequest, cache_get};

/// A running admin listener. Dropping this value stops the listener and joins its thread.
pub(crate) struct Admin {
    addr: SocketAddr,
    /// The socket, for the process that replaces this one.
    socket: StdListener,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Binds the address. An edge does not start if its admin address is in use.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<StdListener> {
    let listener = StdListener::bind(addr)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Admin {
    pub(crate) fn start(listener: StdListener, generations: Arc<Generations>) -> io::Result<Self> {
        let addr = listener.local_addr()?;
        let socket = listener.try_clone()?;
        let (stop, stopping) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let server = Server {
            handler: AdminRoutes(Pages(generations)),
            config: ServerConfig::ADMIN,
            counters: Arc::new(ConnectionCounters::default()),
            stopping,
        };
        let thread = std::thread::Builder::new()
            .name("edgeward-admin".to_owned())
            .spawn(move || runtime.block_on(server.run(listener)))?;
        Ok(Self {
            addr,
            socket,
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the socket, which stays open if another process has it too.
    pub(crate) fn socket(&self) -> io::Result<StdListener> {
        self.socket.try_clone()
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Pages(Arc<Generations>);

/// The path of the policy.
const POLICY: &str = "/policy";

/// The path that shows the stored responses of a URL.
const CACHE: &str = "/cache";

/// The path that explains the decisions for a request.
const EXPLAIN: &str = "/explain";

/// The path that reloads the configuration.
const RELOAD: &str = "/reload";

/// The path that replaces the process by a new one.
const UPGRADE: &str = "/upgrade";

/// Parses a policy. The error lists the rules.
fn parse_policy(text: &str) -> Result<PolicySpec, String> {
    text.parse().map_err(|error: ParsePolicyError| {
        let source = error.source().map(|source| format!(": {source}"));
        let source = source.unwrap_or_default();
        format!("{error}{source}\neviction rules: {EVICTION_NAMES}\nadmission rules: {ADMISSION_NAMES}\n")
    })
}

impl AdminPages for Pages {
    fn metrics(&self) -> String {
        metrics::render(&self.0.shared())
    }

    fn status(&self) -> String {
        format!("{:#}\n", status::render(&self.0.shared()))
    }

    fn may_post(&self, path: &str, authorization: Option<&HeaderValue>) -> Option<bool> {
        let has_token = || {
            let shared = self.0.shared();
            let token = shared.config.purge.token.as_ref()?;
            Some(token.matches_authorization(authorization?.as_bytes()))
        };
        let is_page = match path {
            "/purge" | CACHE | EXPLAIN => true,
            RELOAD => self.0.on_reload.get().is_some(),
            UPGRADE => self.0.on_upgrade.get().is_some(),
            _ => false,
        };
        is_page.then(|| has_token().unwrap_or(false))
    }

    async fn post(&self, path: &str, body: Bytes) -> (StatusCode, String) {
        let (code, answer) = match path {
            CACHE | EXPLAIN => self.inspect(path == EXPLAIN, &body).await,
            RELOAD => self.reload().await,
            UPGRADE => self.upgrade().await,
            _ => self.purge(&body).await,
        };
        (code, format!("{answer}\n"))
    }

    fn setting(&self, path: &str) -> Option<String> {
        (path == POLICY).then(|| self.0.shared().cache.hot.policy().to_string())
    }

    /// Changes the policy of the cache in memory. A thread for blocking work moves the objects, so the pages are served
    /// meanwhile. The runtime waits for this thread when it stops.
    async fn change_setting(&self, _path: &str, value: &str) -> Result<String, String> {
        let policy = parse_policy(value)?;
        let shared = self.0.shared();
        // The first worker's counters count the objects that the change writes to disk.
        let change = move || shared.cache.change_policy(policy, &shared.counters[0]);
        let changed = tokio::task::spawn_blocking(change).await;
        let changed = changed.map_err(|_| "the change of the policy panicked\n".to_owned())?;
        let changed = changed.map_err(|error| format!("{error}\n"))?;
        let PolicyChange {
            before,
            kept_objects,
            lost_objects,
        } = changed;
        tracing::info!(%before, %policy, kept_objects, lost_objects, "the policy was changed");
        Ok(format!(
            "policy changed from {before} to {policy}: {kept_objects} objects kept, {lost_objects} lost\n\
             set hot.policy = \"{policy}\" to keep it after a restart\n"
        ))
    }

    /// Returns true for IP addresses, `localhost` and the configured names. A malicious web site can make its own name
    /// resolve to the admin address (DNS rebinding). Requests of its pages have this name in `Host` and are refused.
    fn is_own_host(&self, host: &str) -> bool {
        let shared = self.0.shared();
        let config = &shared.config;
        let host = host.strip_suffix('.').unwrap_or(host);
        host.parse::<IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || host.eq_ignore_ascii_case(&config.name)
            || config
                .admin_hosts
                .iter()
                .any(|name| host.eq_ignore_ascii_case(name))
    }
}

impl Pages {
    /// Explains the decisions for a request, or shows the stored responses of a URL.
    async fn inspect(&self, explains: bool, body: &[u8]) -> (StatusCode, serde_json::Value) {
        let bad_request = |error: String| (StatusCode::BAD_REQUEST, json!({ "error": error }));
        let query = match InspectedRequest::parse(body) {
            Ok(query) => query,
            Err(error) => return bad_request(error.to_string()),
        };
        let shared = self.0.shared();
        // The disk is read, and with `all` the heads of all objects.
        let answered = tokio::task::spawn_blocking(move || match explains {
            true => Ok(explain(&shared, &query)),
            false => cache_get(&shared, &query),
        });
        match answered.await {
            Ok(Ok(answer)) => (StatusCode::OK, answer),
            Ok(Err(error)) => bad_request(error),
            Err(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                json!({ "error": "the inspection failed" }),
            ),
        }
    }

    /// Reloads the configuration.
    async fn reload(&self) -> (StatusCode, serde_json::Value) {
        let generations = Arc::clone(&self.0);
        // The files are read on a thread for blocking work.
        let reloaded = tokio::task::spawn_blocking(move || match generations.on_reload.get() {
            Some(reload) => reload(),
            None => Err("this edge cannot reload its configuration".to_owned()),
        });
        match reloaded.await {
            Ok(Ok(changes)) => (StatusCode::OK, json!({ "changes": changes })),
            Ok(Err(error)) => (StatusCode::BAD_REQUEST, json!({ "error": error })),
            Err(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                json!({ "error": "the reload failed" }),
            ),
        }
    }

    /// Replaces this process by a new one.
    async fn upgrade(&self) -> (StatusCode, serde_json::Value) {
        let generations = Arc::clone(&self.0);
        let upgraded = tokio::task::spawn_blocking(move || match generations.on_upgrade.get() {
            Some(upgrade) => upgrade(),
            None => Err("this edge cannot be upgraded".to_owned()),
        });
        match upgraded.await {
            Ok(Ok(pid)) => (StatusCode::OK, json!({ "pid": pid })),
            Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": error })),
            Err(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                json!({ "error": "the upgrade failed" }),
            ),
        }
    }

    /// Carries out a request of the purge API.
    async fn purge(&self, body: &[u8]) -> (StatusCode, serde_json::Value) {
        let request = match PurgeRequest::parse(body) {
            Ok(request) => request,
            Err(error) => {
                return (
                    StatusCode::BAD_REQUEST,
                    json!({ "error": error.to_string() }),
                );
            }
        };
        let cache = Arc::clone(&self.0.shared().cache);
        if request.dry_run {
            // Reading all objects takes seconds for millions of them.
            let counted = tokio::task::spawn_blocking(move || cache.count_covered(&request)).await;
            return match counted {
                Ok(Ok([memory, disk])) => {
                    let counts = json!({ "memory_objects": memory, "disk_objects": disk });
                    (StatusCode::OK, counts)
                }
                Ok(Err(error)) => rejected(&error),
                Err(_) => (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    json!({ "error": "the count failed" }),
                ),
            };
        }
        let purges = request.purges().collect();
        match cache.accept_purges(purges, "api".to_owned()).await {
            Ok(()) => (StatusCode::OK, json!({ "accepted": request.scopes.len() })),
            Err(error) => rejected(&error),
        }
    }
}

fn rejected(error: &RejectedPurge) -> (StatusCode, serde_json::Value) {
    (error.status(), json!({ "error": error.to_string() }))
}
