//! The admin listener: metrics, status and health, with its own address and thread.

use std::error::Error as _;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use edgeward_policy::{
    ParsePolicyError, PolicySpec, SERVED_ADMISSION_NAMES, SERVED_EVICTION_NAMES,
};
use edgeward_purge::PurgeRequest;
use edgeward_store::hot::PolicyChange;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use tokio::sync::watch;

use edgeward_httpd::{
    AdminPages, AdminRoutes, AdminToken, Caller, ConnectionCounters, Denied, Roles, Server,
    ServerConfig,
};

use super::admin_request::{Action, POLICY, PostPage, decide};
use super::bind_admin::BoundAdmin;
use super::generations::Generations;
use super::{metrics, status};
use crate::cache::purging::RejectedPurge;
use crate::config::ListenAddress;
use crate::path::explain::explain;
use crate::path::inspect::{InspectedRequest, cache_get};

/// A running admin listener. Dropping this value stops the listener and joins its thread.
pub(crate) struct Admin {
    addr: ListenAddress,
    /// The socket, for the process that replaces this one.
    socket: OwnedFd,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    pub(super) fn start(bound: BoundAdmin, generations: Arc<Generations>) -> io::Result<Self> {
        let socket = bound.socket.try_clone()?;
        let (stop, stopping) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let server = Server {
            handler: AdminRoutes(Pages(generations)),
            config: ServerConfig::ADMIN,
            counters: Arc::new(ConnectionCounters::default()),
            stopping,
            tls: bound.tls,
        };
        let thread = std::thread::Builder::new()
            .name("edgeward-admin".to_owned())
            .spawn(move || runtime.block_on(server.run(bound.socket)))?;
        Ok(Self {
            addr: bound.addr,
            socket,
            stop,
            thread: Some(thread),
        })
    }

    pub(crate) const fn addr(&self) -> &ListenAddress {
        &self.addr
    }

    /// Returns the socket, which stays open if another process has it too.
    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
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

/// Parses a policy. The error lists the rules.
fn parse_policy(text: &str) -> Result<PolicySpec, String> {
    PolicySpec::parse_served(text).map_err(|error: ParsePolicyError| {
        let source = error.source().map(|source| format!(": {source}"));
        let source = source.unwrap_or_default();
        format!("{error}{source}\neviction rules: {SERVED_EVICTION_NAMES}\nadmission rules: {SERVED_ADMISSION_NAMES}\n")
    })
}

impl AdminPages for Pages {
    fn metrics(&self) -> String {
        metrics::render(&self.0.shared(), self.0.tls_expiry())
    }

    fn status(&self) -> String {
        format!("{:#}\n", status::render(&self.0.shared()))
    }

    fn authorize(
        &self,
        method: &Method,
        path: &str,
        authorization: Option<&HeaderValue>,
    ) -> Result<Caller, Denied> {
        let shared = self.0.shared();
        let config = &shared.config;
        let of_purge = config.purge.token.clone().map(|token| AdminToken {
            name: "purge.token_file".to_owned(),
            token,
            roles: Roles::ALL,
        });
        let decided = decide(
            config.admin.tokens.iter().chain(&of_purge),
            config.admin.requires_token,
            method,
            path,
            authorization.map(HeaderValue::as_bytes),
        );
        if let Err(denied) = &decided {
            let counters = shared.other_counters();
            match denied {
                Denied::NoToken => &counters.admin_no_token,
                Denied::UnknownToken => &counters.admin_unknown_token,
                Denied::MissingRole { .. } => &counters.admin_missing_role,
            }
            .increment();
        }
        decided
    }

    fn accepts_post(&self, path: &str) -> bool {
        match PostPage::of(path) {
            Some(PostPage::Reload) => self.0.on_reload.get().is_some(),
            Some(PostPage::Upgrade) => self.0.on_upgrade.get().is_some(),
            page => page.is_some(),
        }
    }

    async fn post(&self, path: &str, caller: &Caller, body: Bytes) -> (StatusCode, String) {
        let action = PostPage::of(path).map(|page| Action::parse(page, &body));
        let (code, answer) = match action {
            Some(Ok(Action::Purge(request))) => self.purge(request, caller).await,
            Some(Ok(Action::Cache(query))) => self.inspect(false, query).await,
            Some(Ok(Action::Explain(query))) => self.inspect(true, query).await,
            Some(Ok(Action::Reload)) => {
                tracing::info!(from = %caller, "a reload is requested");
                self.reload().await
            }
            Some(Ok(Action::Upgrade)) => {
                tracing::info!(from = %caller, "an upgrade is requested");
                self.upgrade().await
            }
            Some(Err(error)) => (StatusCode::BAD_REQUEST, json!({ "error": error })),
            None => (StatusCode::NOT_FOUND, json!({ "error": "no such page" })),
        };
        (code, format!("{answer}\n"))
    }

    fn setting(&self, path: &str) -> Option<String> {
        (path == POLICY).then(|| self.0.shared().cache.hot.policy().to_string())
    }

    /// Changes the policy of the cache in memory. A thread for blocking work moves the objects, so the pages are served
    /// meanwhile. The runtime waits for this thread when it stops.
    async fn change_setting(
        &self,
        _path: &str,
        caller: &Caller,
        value: &str,
    ) -> Result<String, String> {
        let policy = parse_policy(value)?;
        let shared = self.0.shared();
        let change = move || shared.cache.change_policy(policy, shared.other_counters());
        let changed = tokio::task::spawn_blocking(change).await;
        let changed = changed.map_err(|_| "the change of the policy panicked\n".to_owned())?;
        let changed = changed.map_err(|error| format!("{error}\n"))?;
        let PolicyChange {
            before,
            kept_objects,
            lost_objects,
        } = changed;
        tracing::info!(from = %caller, %before, %policy, kept_objects, lost_objects, "the policy was changed");
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
                .admin
                .hosts
                .iter()
                .any(|name| host.eq_ignore_ascii_case(name))
    }
}

impl Pages {
    /// Explains the decisions for a request, or shows the stored responses of a URL.
    async fn inspect(
        &self,
        explains: bool,
        query: InspectedRequest,
    ) -> (StatusCode, serde_json::Value) {
        let shared = self.0.shared();
        // The disk is read, and with `all` the heads of all objects.
        let answered = tokio::task::spawn_blocking(move || match explains {
            true => Ok(explain(&shared, &query)),
            false => cache_get(&shared, &query),
        });
        match answered.await {
            Ok(Ok(answer)) => (StatusCode::OK, answer),
            Ok(Err(error)) => (StatusCode::BAD_REQUEST, json!({ "error": error })),
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
    async fn purge(
        &self,
        request: PurgeRequest,
        caller: &Caller,
    ) -> (StatusCode, serde_json::Value) {
        let cache = Arc::clone(&self.0.shared().cache);
        if request.dry_run {
            // Reading all objects takes seconds for millions of them.
            let purges: Vec<_> = request.purges().collect();
            let counted = tokio::task::spawn_blocking(move || cache.count_covered(&purges)).await;
            return match counted {
                Ok(Ok(covered)) => {
                    let [memory, disk] = [covered.in_memory, covered.on_disk];
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
        match cache.accept_purges(purges, caller.to_string()).await {
            Ok(_) => (StatusCode::OK, json!({ "accepted": request.scopes.len() })),
            Err(error) => rejected(&error),
        }
    }
}

fn rejected(error: &RejectedPurge) -> (StatusCode, serde_json::Value) {
    (error.status(), json!({ "error": error.to_string() }))
}
