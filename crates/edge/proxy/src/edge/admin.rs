//! The admin listener: metrics, status and health, with its own address and thread.

use std::error::Error as _;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use edgeward_policy::{
    ParsePolicyError, PolicySpec, SERVED_ADMISSION_NAMES, SERVED_EVICTION_NAMES,
};
use edgeward_purge::PurgeRequest;
use edgeward_store::hot::PolicyChange;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;

use edgeward_httpd::{
    Access, AdminPages, AdminRoutes, AdminToken, Call, Caller, ConnectionCounters, Denied, File,
    Media, Role, Roles, Route, Server, ServerConfig, authorize,
};

use super::bind_admin::BoundAdmin;
use super::generations::Generations;
use super::page::files;
use super::page::tracker::Tracker;
use super::{metrics, status};
use crate::config::ListenAddress;
use crate::path::explain::explain;
use crate::path::inspect::{InspectedRequest, cache_get};
use crate::path::worker::Shared;

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
        let stopped = stopping.clone();
        let tracker = Arc::new(Tracker::new(&generations.shared()));
        let server = Server {
            handler: AdminRoutes(Pages {
                generations: Arc::clone(&generations),
                tracker: Arc::clone(&tracker),
            }),
            config: ServerConfig::ADMIN,
            counters: Arc::new(ConnectionCounters::default()),
            stopping,
            tls: bound.tls,
        };
        let thread = std::thread::Builder::new()
            .name("edgeward-admin".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let samples = tracker.run(&generations, stopped);
                    tokio::join!(server.run(bound.socket), samples);
                });
            })?;
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

/// The error of a reload that reaches a process which another one has replaced. The client may send it again.
pub const REPLACED: &str = "another process has just replaced this one";

/// The pages of an edge. Each is a row of [`AdminPages::ROUTES`] and a method.
#[derive(Clone)]
pub(super) struct Pages {
    generations: Arc<Generations>,
    tracker: Arc<Tracker>,
}

impl AdminPages for Pages {
    const ROUTES: &'static [Route<Self>] = &[
        Route::metrics("/metrics", Self::metrics, Self::open_metrics),
        Route::show("/status", Media::Json, Self::status),
        Route::<Self>::show("/status.json", Media::Json, Self::status_json).for_local(),
        Route::<Self>::follow("/events", |pages| pages.tracker.follow()).for_local(),
        Route::file("/page.js", files::SCRIPT),
        Route::file("/page.css", files::STYLE),
        Route::show("/policy", Media::Text, Self::policy),
        Route::change("/policy", |pages, call| Box::pin(pages.change_policy(call))),
        Route::post("/purge", Role::Purge, |pages, call| {
            Box::pin(pages.purge(call))
        }),
        Route::post("/cache", Role::Read, |pages, call| {
            Box::pin(pages.inspect(call, cache_get))
        }),
        Route::post("/explain", Role::Read, |pages, call| {
            Box::pin(pages.inspect(call, |shared, query| Ok(explain(shared, query))))
        }),
        Route::<Self>::post("/reload", Role::Reload, |pages, call| {
            Box::pin(pages.reload(call))
        })
        .only_if(|pages| pages.generations.on_reload.get().is_some()),
        Route::<Self>::post("/upgrade", Role::Reload, |pages, call| {
            Box::pin(pages.upgrade(call))
        })
        .only_if(|pages| pages.generations.on_upgrade.get().is_some()),
    ];

    const HOME: Option<File> = Some(files::PAGE);

    fn authorize(
        &self,
        access: Access,
        authorization: Option<&HeaderValue>,
    ) -> Result<Caller, Denied> {
        let shared = self.generations.shared();
        let config = &shared.config;
        let Some(role) = access.role(config.admin.requires_token, config.admin.is_local()) else {
            return Ok(Caller::Anyone);
        };
        let of_purge = config.purge.token.clone().map(|token| AdminToken {
            name: "purge.token_file".to_owned(),
            token,
            roles: Roles::ALL,
        });
        let tokens = config.admin.tokens.iter().chain(&of_purge);
        let decided = authorize(tokens, authorization.map(HeaderValue::as_bytes), role);
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

    /// Returns true for IP addresses, `localhost` and the configured names. A malicious web site can make its own name
    /// resolve to the admin address (DNS rebinding). Requests of its pages have this name in `Host` and are refused.
    fn is_own_host(&self, host: &str) -> bool {
        let shared = self.generations.shared();
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

/// The status of a response, and its body in JSON.
type Answer = (StatusCode, String);

impl Pages {
    fn metrics(&self) -> String {
        metrics::render(&self.generations.shared(), self.generations.tls_expiry())
    }

    /// Without traces there are no exemplars, so that the usual format says the same.
    fn open_metrics(&self) -> Option<String> {
        let shared = self.generations.shared();
        let expiry = self.generations.tls_expiry();
        let has_traces = shared.config.tracing.is_some();
        has_traces.then(|| metrics::render_open_metrics(&shared, expiry))
    }

    fn status(&self) -> String {
        format!("{:#}\n", status::render(&self.generations.shared()))
    }

    fn status_json(&self) -> String {
        format!("{}\n", self.tracker.json(&self.generations, true))
    }

    fn policy(&self) -> String {
        format!("{}\n", self.generations.shared().cache.hot.policy())
    }

    /// Changes the policy of the cache in memory. A thread for blocking work moves the objects, so the pages are served
    /// meanwhile. The runtime waits for this thread when it stops.
    async fn change_policy(self, call: Call) -> Result<String, String> {
        let policy = parse_policy(String::from_utf8_lossy(&call.body).trim())?;
        let shared = self.generations.shared();
        let change = move || shared.cache.change_policy(policy, shared.other_counters());
        let changed = tokio::task::spawn_blocking(change).await;
        let changed = changed.map_err(|_| "the change of the policy panicked\n".to_owned())?;
        let changed = changed.map_err(|error| format!("{error}\n"))?;
        let PolicyChange {
            before,
            kept_objects,
            lost_objects,
        } = changed;
        tracing::info!(from = %call.caller, %before, %policy, kept_objects, lost_objects, "the policy was changed");
        Ok(format!(
            "policy changed from {before} to {policy}: {kept_objects} objects kept, {lost_objects} lost\n\
             set hot.policy = \"{policy}\" to keep it after a restart\n"
        ))
    }

    /// Explains the decisions for a request, or shows the stored responses of a URL.
    async fn inspect(
        self,
        call: Call,
        read: fn(&Shared, &InspectedRequest) -> Result<Value, String>,
    ) -> Answer {
        let query = match InspectedRequest::parse(&call.body) {
            Ok(query) => query,
            Err(error) => return failed(StatusCode::BAD_REQUEST, error),
        };
        let shared = self.generations.shared();
        // The disk is read, and with `all` the heads of all objects.
        match tokio::task::spawn_blocking(move || read(&shared, &query)).await {
            Ok(Ok(answer)) => done(&answer),
            Ok(Err(error)) => failed(StatusCode::BAD_REQUEST, error),
            Err(_) => failed(StatusCode::INTERNAL_SERVER_ERROR, "the inspection failed"),
        }
    }

    /// Reloads the configuration.
    async fn reload(self, call: Call) -> Answer {
        tracing::info!(from = %call.caller, "a reload is requested");
        // A connection to this process may be older than the other process, which would not know of the reload.
        if self.generations.shared().cache.successor.is_set() {
            return failed(StatusCode::SERVICE_UNAVAILABLE, REPLACED);
        }
        // The files are read on a thread for blocking work.
        let reloaded =
            tokio::task::spawn_blocking(move || match self.generations.on_reload.get() {
                Some(reload) => reload(),
                None => Err("this edge cannot reload its configuration".to_owned()),
            });
        match reloaded.await {
            Ok(Ok(changes)) => done(&json!({ "changes": changes })),
            Ok(Err(error)) => failed(StatusCode::BAD_REQUEST, error),
            Err(_) => failed(StatusCode::INTERNAL_SERVER_ERROR, "the reload failed"),
        }
    }

    /// Replaces this process by a new one.
    async fn upgrade(self, call: Call) -> Answer {
        tracing::info!(from = %call.caller, "an upgrade is requested");
        let upgraded =
            tokio::task::spawn_blocking(move || match self.generations.on_upgrade.get() {
                Some(upgrade) => upgrade(),
                None => Err("this edge cannot be upgraded".to_owned()),
            });
        match upgraded.await {
            Ok(Ok(pid)) => done(&json!({ "pid": pid })),
            Ok(Err(error)) => failed(StatusCode::INTERNAL_SERVER_ERROR, error),
            Err(_) => failed(StatusCode::INTERNAL_SERVER_ERROR, "the upgrade failed"),
        }
    }

    /// Carries out a request of the purge API.
    async fn purge(self, call: Call) -> Answer {
        let request = match PurgeRequest::parse(&call.body) {
            Ok(request) => request,
            Err(error) => return failed(StatusCode::BAD_REQUEST, error),
        };
        let cache = Arc::clone(&self.generations.shared().cache);
        if request.dry_run {
            // Reading all objects takes seconds for millions of them.
            let purges: Vec<_> = request.purges().collect();
            let counted = tokio::task::spawn_blocking(move || cache.count_covered(&purges)).await;
            return match counted {
                Ok(Ok(covered)) => {
                    let [memory, disk] = [covered.in_memory, covered.on_disk];
                    done(&json!({ "memory_objects": memory, "disk_objects": disk }))
                }
                Ok(Err(error)) => failed(error.status(), error),
                Err(_) => failed(StatusCode::INTERNAL_SERVER_ERROR, "the count failed"),
            };
        }
        let purges = request.purges().collect();
        match cache.accept_purges(purges, call.caller.to_string()).await {
            Ok(_) => done(&json!({ "accepted": request.scopes.len() })),
            Err(error) => failed(error.status(), error),
        }
    }
}

fn done(answer: &Value) -> Answer {
    (StatusCode::OK, format!("{answer}\n"))
}

fn failed(status: StatusCode, error: impl std::fmt::Display) -> Answer {
    (
        status,
        format!("{}\n", json!({ "error": error.to_string() })),
    )
}

/// Parses a policy. The error lists the rules.
fn parse_policy(text: &str) -> Result<PolicySpec, String> {
    PolicySpec::parse_served(text).map_err(|error: ParsePolicyError| {
        let source = error.source().map(|source| format!(": {source}"));
        let source = source.unwrap_or_default();
        format!("{error}{source}\neviction rules: {SERVED_EVICTION_NAMES}\nadmission rules: {SERVED_ADMISSION_NAMES}\n")
    })
}
