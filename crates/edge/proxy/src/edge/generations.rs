//! The generations of an edge: the state of the start, and a new state for each reload.
//!
//! A request keeps the generation with which it began, with its settings, its connections to the origins and its log.
//! All generations share the cache and the counters. A generation ends when its last request has ended.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use serde_json::{Value, json};
use tokio::sync::watch;

use super::acme_metrics;
use super::span_export::SpanExport;
use super::worker_thread::Listeners;
use crate::client::h3::routes::Routes;
use crate::config::EdgeConfig;
use crate::net::tls::ListenerKeys;
use crate::net::tls_expiry::TlsExpiry;
use crate::observe::access_log::AccessLog;
use crate::path::worker::Shared;
use crate::rt::panics::lock;

/// Reads the configuration again and applies it. Returns the changes, or the reason why nothing changed.
type ReloadFn = Box<dyn Fn() -> Result<Vec<String>, String> + Send + Sync>;

/// Replaces this process by a new one, and returns the id of the new one.
type UpgradeFn = Box<dyn Fn() -> Result<u32, String> + Send + Sync>;

/// The state of one generation, with the threads that serve it. Successive generations may have the same threads.
#[derive(Clone)]
pub(super) struct Generation {
    pub(super) shared: Arc<Shared>,
    /// The configuration before its limits were lowered to what the limit of open files leaves.
    pub(super) wanted: Arc<EdgeConfig>,
    pub(super) log: Option<Arc<AccessLog>>,
    pub(super) spans: Option<Arc<SpanExport>>,
}

/// All generations of an edge.
pub(super) struct Generations {
    current: RwLock<Generation>,
    /// The generations that were replaced and may still have requests.
    retired: Mutex<Vec<Generation>>,
    pub(super) on_reload: OnceLock<ReloadFn>,
    pub(super) on_upgrade: OnceLock<UpgradeFn>,
    /// The certificate of the admin server. `None` without TLS.
    pub(super) admin_keys: Option<Arc<ListenerKeys>>,
    listeners: watch::Receiver<Listeners>,
    /// The endpoints of HTTP/3.
    pub(super) routes: Arc<Routes>,
}

impl Generations {
    pub(super) fn new(
        first: Generation,
        admin_keys: Option<Arc<ListenerKeys>>,
        listeners: watch::Receiver<Listeners>,
        routes: Arc<Routes>,
    ) -> Arc<Self> {
        Arc::new(Self {
            current: RwLock::new(first),
            retired: Mutex::default(),
            on_reload: OnceLock::new(),
            on_upgrade: OnceLock::new(),
            admin_keys,
            listeners,
            routes,
        })
    }

    /// Returns true if a listener has HTTP/3.
    pub(super) fn has_http3(&self) -> bool {
        let listeners = Arc::clone(&self.listeners.borrow());
        listeners.iter().any(|listener| listener.http3.is_some())
    }

    /// Returns when the first certificate and the first OCSP response of listeners, sites and admin server expire.
    pub(super) fn tls_expiry(&self) -> TlsExpiry {
        let of_source = TlsExpiry {
            certificate_at: acme_metrics::earliest_end(
                self.shared().config.certificates.as_deref(),
            ),
            ocsp_at: None,
        };
        let listeners = Arc::clone(&self.listeners.borrow());
        let of_listeners = listeners
            .iter()
            .filter_map(|listener| listener.keys.as_ref());
        of_listeners
            .chain(&self.admin_keys)
            .map(|keys| keys.expiry())
            .fold(of_source, TlsExpiry::earliest)
    }

    /// Returns when the certificates of each listener and of the admin server expire, as JSON.
    pub(super) fn certificates(&self) -> Value {
        let listeners = Arc::clone(&self.listeners.borrow());
        let of_listeners = listeners.iter().filter_map(|listener| {
            let keys = listener.keys.as_ref()?;
            Some((format!("listener {}", listener.addr), keys))
        });
        let of_admin = self.admin_keys.iter();
        let of_admin = of_admin.map(|keys| ("admin server".to_owned(), keys));
        let rows = of_listeners.chain(of_admin).map(|(of, keys)| {
            let expiry = keys.expiry();
            json!({ "of": of, "not_after": expiry.certificate_at, "ocsp_next_update": expiry.ocsp_at })
        });
        rows.collect()
    }

    pub(super) fn current(&self) -> Generation {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    /// Returns the state of the newest generation.
    pub(super) fn shared(&self) -> Arc<Shared> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.shared)
    }

    pub(super) fn replace(&self, new: Generation) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, new);
        drop(current);
        lock(&self.retired).push(old);
    }

    /// Ends the generations without requests. Their logs are written to the end.
    pub(super) fn end_unused(&self) {
        let is_used = |generation: &mut Generation| Arc::strong_count(&generation.shared) > 1;
        let unused: Vec<_> = lock(&self.retired)
            .extract_if(.., |generation| !is_used(generation))
            .collect();
        drop(unused); // without the lock, because a log is written to its end
    }

    /// Ends the logs of all generations, after the last request.
    pub(super) fn close(&self) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let ended = (current.log.take(), current.spans.take());
        drop(current);
        drop(ended);
        lock(&self.retired).clear();
    }

    /// Opens the files of the access log again.
    pub(super) fn reopen_log(&self) {
        if let Some(reopener) = self.current().log.and_then(|log| log.reopener()) {
            reopener.reopen();
        }
    }
}

/// Opens the file of the access log again by its path. This is needed after a log rotation has renamed the open file.
#[derive(Clone)]
pub struct LogReopener(pub(super) Arc<Generations>);

impl LogReopener {
    /// Asks the log thread to reopen the file, and returns at once. Lines queued before this call go to the old file.
    /// Without an access log, nothing happens.
    pub fn reopen(&self) {
        self.0.reopen_log();
    }

    /// Returns true if there is an access log.
    pub fn has_log(&self) -> bool {
        self.0.current().log.is_some()
    }
}

impl std::fmt::Debug for LogReopener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LogReopener")
    }
}
