//! The public handle of a client. Lookups never wait for the background thread's I/O.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgeward_filter::client::{Answer, Client, ClientConfig, Reason};
use edgeward_filter::{FilterInfo, IdError, IdHash, IdHasher};
use tokio::sync::watch;

use crate::config::FilterConfig;
use crate::counters::{Counters, Counts};
use crate::fetch::Fetcher;
use crate::refresh::Refresh;
use crate::stored_snapshot::StoredSnapshot;
use crate::tls::{self, TlsError};

/// Downloads the filter of a published set of ids, keeps it up to date on its own thread, and looks up ids. The thread
/// stops when the client is dropped.
pub struct FilterClient {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// The state that callers and the background thread share.
pub(crate) struct Shared {
    pub(crate) config: Arc<FilterConfig>,
    /// The lock is held for a lookup, or while a checked file is applied, but never during I/O.
    client: RwLock<Client<Bytes>>,
    pub(crate) counters: Arc<Counters>,
    last_error: Mutex<Option<String>>,
    /// Incremented after each poll (requests for the manifest and its new deltas) and each attempt to download a
    /// snapshot, also if it failed. Wakes [`FilterClient::wait_until`].
    pub(crate) changes: watch::Sender<u64>,
}

/// Why a client did not start. An unreachable publisher is not an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The thread or its runtime cannot be created.
    #[error("cannot create the client's thread")]
    Thread(#[source] std::io::Error),
}

/// The status of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// True while the filter is fresh, so that lookups may return [`Answer::Absent`].
    pub fresh: bool,
    /// The time until the filter becomes stale, if the client receives nothing further from the publisher.
    pub fresh_for: Duration,
    /// The properties of the filter in use; `None` before the first snapshot.
    pub facts: Option<FilterInfo>,
    /// The number of ids added since the snapshot.
    pub overlay_ids: usize,
    /// The serial number of the newest manifest; it increases with each manifest.
    pub serial: u64,
    /// Counters since the start.
    pub counts: Counts,
    /// The last error of a poll (requests for the manifest and its new deltas), of the download of a snapshot, or of
    /// storing it. A later success does not clear it.
    pub last_error: Option<String>,
}

impl FilterClient {
    /// Starts the client; returns at once.
    pub fn start(config: FilterConfig) -> Result<Self, StartError> {
        let tls = tls::connector(&config)?;
        let config = Arc::new(config);
        let mut client_config =
            ClientConfig::new(config.url.set(), config.trust.clone(), config.max_staleness);
        client_config.clock_error = config.clock_error;
        client_config.snapshot_bytes_max = config.snapshot_bytes_max;
        client_config.overlay_ids_max = config.overlay_ids_max;
        let mut client = Client::new(client_config);
        let stored = config
            .snapshot_folder
            .clone()
            .map(|folder| StoredSnapshot::new(&folder, config.url.set()));
        if let Some(stored) = &stored {
            stored.restore(&mut client, (config.clock)(), config.snapshot_bytes_max);
        }
        let shared = Arc::new(Shared {
            config: Arc::clone(&config),
            client: RwLock::new(client),
            counters: Arc::default(),
            last_error: Mutex::default(),
            changes: watch::Sender::new(0),
        });
        let fetcher = Fetcher::new(config, tls, Arc::clone(&shared.counters));
        let (stop, mut stopping) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::Thread)?;
        let refresh = Refresh::new(Arc::clone(&shared), stored);
        let thread = std::thread::Builder::new()
            .name("edgeward-filter".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = refresh.run(fetcher) => {}
                        _ = stopping.wait_for(|stop| *stop) => {}
                    }
                });
            })
            .map_err(StartError::Thread)?;
        Ok(Self {
            shared,
            stop,
            thread: Some(thread),
        })
    }

    /// Looks up an id in any text form that the set's [`IdForm`](crate::IdForm) allows. A text that is not an id which
    /// every origin reads alike ([`IdHasher::hash_query`]) gets [`Answer::Ask`].
    pub fn answer(&self, id: impl AsRef<[u8]>) -> Answer {
        self.try_answer(id).unwrap_or(Answer::Ask(Reason::NotAnId))
    }

    /// Like [`Self::answer`], but fails if the text is not an id which every origin reads alike.
    pub fn try_answer(&self, id: impl AsRef<[u8]>) -> Result<Answer, IdError> {
        self.lookup(|hasher| hasher.hash_query(id.as_ref()))
    }

    /// Like [`Self::try_answer`], for an id of arbitrary bytes ([`IdHasher::hash_query_bytes`]).
    pub fn try_answer_bytes(&self, id: &[u8]) -> Result<Answer, IdError> {
        self.lookup(|hasher| hasher.hash_query_bytes(id))
    }

    /// Hashes and looks up an id under one lock, so that both use the same filter. If the filter has another
    /// form of ids than the configured one, it is not used, and the answer is [`Answer::Ask`]: no decision.
    fn lookup(
        &self,
        hash: impl FnOnce(IdHasher) -> Result<IdHash, IdError>,
    ) -> Result<Answer, IdError> {
        let client = self.shared.read();
        let expected_form = self.shared.config.form;
        match client.hasher() {
            Some(hasher) if expected_form.is_none_or(|form| form == hasher.form) => {
                Ok(client.answer(self.shared.now(), hash(hasher)?))
            }
            _ => Ok(Answer::Ask(Reason::NoFilter)),
        }
    }

    /// Returns false only if no request for the id is needed, because the id does not exist.
    pub fn may_exist(&self, id: impl AsRef<[u8]>) -> bool {
        self.answer(id) != Answer::Absent
    }

    /// The form of the ids and the seed of their hash. `None` before the first snapshot.
    pub fn hasher(&self) -> Option<IdHasher> {
        self.shared.read().hasher()
    }

    /// The status of the client.
    pub fn status(&self) -> Status {
        let client = self.shared.read();
        let now = (self.shared.config.clock)();
        let last_error = self.shared.last_error.lock();
        Status {
            fresh: client.is_fresh(now) && client.active_snapshot().is_some(),
            fresh_for: client.fresh_for(now),
            facts: client.info(),
            overlay_ids: client.active_snapshot().map_or(0, |(_, ids)| ids),
            serial: client.serial(),
            counts: self.shared.counters.read(),
            last_error: last_error.unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Waits until `condition` returns true for the status. Returns false after `time_max`, or if no runtime can be
    /// created for the wait. A program calls this at its start if it prefers a late start to lookups that cannot
    /// be decided. Must not be called within an async runtime.
    pub fn wait_until(&self, time_max: Duration, condition: impl Fn(&Status) -> bool) -> bool {
        let until = Instant::now() + time_max;
        let mut changes = self.shared.changes.subscribe();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        let Ok(runtime) = runtime else {
            return false;
        };
        loop {
            if condition(&self.status()) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            // The filter also becomes stale when its deadline passes, and `changes` does not report this.
            let pause = left.min(CHECK_INTERVAL);
            _ = runtime.block_on(async { tokio::time::timeout(pause, changes.changed()).await });
        }
    }

    /// Waits until the filter is fresh. Returns false after `time_max`.
    pub fn wait_fresh(&self, time_max: Duration) -> bool {
        self.wait_until(time_max, |status| status.fresh)
    }
}

impl Drop for FilterClient {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the filter client's thread panicked");
        }
    }
}

impl fmt::Debug for FilterClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterClient")
            .field("url", &self.shared.config.url)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Ignores lock poisoning, because a panic leaves the state as it was after the last complete change.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Client<Bytes>> {
        self.client.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Client<Bytes>> {
        self.client.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> edgeward_filter::client::Now {
        (self.config.clock)()
    }

    pub(crate) fn record_error(&self, what: &str, error: &dyn fmt::Display) {
        let text = format!("{what}: {error}");
        tracing::debug!(set = self.config.url.set(), "{text}");
        let mut last = self
            .last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Some(text);
    }

    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

const CHECK_INTERVAL: Duration = Duration::from_millis(20);
