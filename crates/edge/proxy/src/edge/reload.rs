//! Changes the configuration of a running edge, as a whole or not at all.
//!
//! A reload first makes everything that may fail: it reads certificates, resolves the settings of origins, opens logs
//! and binds new listeners. Then it makes a [generation](super::generations), passes it to each worker and waits until
//! all use it. Requests under way keep their generation.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use edgeward_policy::PolicySpec;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::bind::{BoundListener, bind_more};
use super::certificate_files::{FileStates, credential_states, file_states};
use super::checks::check;
use super::generation::{Basis, has_same_settings, servers_of, start_log, start_spans};
use super::generations::{Generation, Generations};
use super::inherit::InheritedSockets;
use super::start_error::StartError;
use super::worker_thread::{Listeners, Switch};
use crate::config::{Credentials, EdgeConfig, ReadCredentialsError};
use crate::net::descriptors;
use crate::net::tls::{ListenerKeys, SiteKeys, TlsError};
use crate::observe::log::ErrorChain;
use crate::origin::Servers;
use crate::path::worker::Shared;
use crate::rt::panics::lock;

/// The reason why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A site or rule has an origin that does not exist.
    #[error("the site {site} has an origin that does not exist")]
    Origin {
        /// The name of the site.
        site: Box<str>,
    },
    /// A certificate or key is unusable.
    #[error("a certificate cannot be used")]
    Tls {
        /// The cause.
        source: Box<TlsError>,
    },
    /// The credentials of a bucket cannot be used.
    #[error(transparent)]
    Credentials(#[from] ReadCredentialsError),
    /// An edge could not start with this configuration.
    #[error(transparent)]
    Start(#[from] StartError),
}

/// Changes the configuration of a running edge. Made by [`RunningEdge::reloader`](crate::RunningEdge::reloader).
#[derive(Clone)]
pub struct Reloader(Arc<Inner>);

struct Inner {
    generations: Arc<Generations>,
    listeners: watch::Sender<Listeners>,
    switches: Vec<UnboundedSender<Switch>>,
    /// Locked during a reload, so that two reloads follow each other.
    binding: Mutex<Binding>,
}

/// The state of new listeners.
struct Binding {
    /// The number of the next listener.
    next_listener: u64,
    /// True after a new process has got the sockets. It would not know a later one.
    has_passed_sockets: bool,
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reloader")
    }
}

impl Reloader {
    pub(super) fn new(
        generations: &Arc<Generations>,
        listeners: &watch::Sender<Listeners>,
        switches: Vec<UnboundedSender<Switch>>,
    ) -> Self {
        let binding = Mutex::new(Binding {
            next_listener: listeners.borrow().len() as u64,
            has_passed_sockets: false,
        });
        Self(Arc::new(Inner {
            generations: Arc::clone(generations),
            listeners: listeners.clone(),
            switches,
            binding,
        }))
    }

    /// Counts a reload that changed nothing, because the configuration is invalid.
    pub fn count_refused(&self) {
        let shared = self.0.generations.shared();
        shared.other_counters().reloads_refused.increment();
    }

    /// Sets the function that `POST /reload` of the admin server calls. It reads the configuration, calls
    /// [`reload`](Self::reload), and returns the changes or the reason why nothing changed. Only the first call counts.
    pub fn on_request(
        &self,
        reload: impl Fn() -> Result<Vec<String>, String> + Send + Sync + 'static,
    ) {
        _ = self.0.generations.on_reload.set(Box::new(reload));
    }

    /// Passes the sockets to a new process by `copy`. Until [`keep_sockets`](Self::keep_sockets), a reload that opens
    /// others is refused.
    pub(super) fn pass_sockets<T>(&self, copy: impl FnOnce() -> T) -> T {
        let mut binding = lock(&self.0.binding);
        binding.has_passed_sockets = true;
        copy()
    }

    /// The new process has not started.
    pub(super) fn keep_sockets(&self) {
        lock(&self.0.binding).has_passed_sockets = false;
    }

    /// Returns the time between two checks of the files of certificates. Zero: they are not checked.
    pub(super) fn certificate_interval(&self) -> Duration {
        self.0.generations.shared().config.certificate_interval
    }

    /// Reads all certificates again if a file has another state than in `read`. If a certificate cannot be used, all
    /// are kept.
    pub(super) fn reload_changed_certificates(&self, read: &mut FileStates) {
        // A reload reads the files too.
        let _reloading = lock(&self.0.binding);
        let shared = self.0.generations.shared();
        let states = file_states(&shared.config);
        if *read == states {
            return;
        }
        *read = states;
        let listeners = Arc::clone(&self.0.listeners.borrow());
        match read_keys(
            &shared.config,
            &listeners,
            self.0.generations.admin_keys.as_ref(),
        ) {
            Ok(new) => {
                replace_keys(new);
                shared.other_counters().certificates_read.increment();
                tracing::info!("certificates were read again, because a file has changed");
            }
            Err(source) => {
                shared.other_counters().certificates_refused.increment();
                let error = ErrorChain(&source);
                tracing::error!(
                    %error,
                    "changed files of a certificate cannot be used; the edge keeps the earlier certificates"
                );
            }
        }
    }

    /// Reads the credentials of all buckets again if a file has another state than in `read`. If credentials cannot be
    /// used, all are kept.
    pub(super) fn reload_changed_credentials(&self, read: &mut FileStates) {
        let _reloading = lock(&self.0.binding);
        let shared = self.0.generations.shared();
        let states = credential_states(&shared.config);
        if *read == states {
            return;
        }
        *read = states;
        match read_credentials(&shared.origins) {
            Ok(new) => {
                replace_credentials(new);
                shared.other_counters().credentials_read.increment();
                tracing::info!("credentials were read again, because a file has changed");
            }
            Err(source) => {
                shared.other_counters().credentials_refused.increment();
                let error = ErrorChain(&source);
                tracing::error!(
                    %error,
                    "a changed file of credentials cannot be used; the edge keeps the earlier credentials"
                );
            }
        }
    }

    /// Returns the configuration in use, with the limits that it would have if no limit of open files had lowered them.
    pub fn config(&self) -> EdgeConfig {
        EdgeConfig::clone(&self.0.generations.current().wanted)
    }

    /// Applies `config`, except for the settings that [`after_reload`] keeps. Certificates are read from their files
    /// again. Returns when all workers use the new settings. After an error nothing has changed. Requests under way
    /// keep their settings, and connections their certificates.
    pub fn reload(&self, config: &EdgeConfig) -> Result<(), ReloadError> {
        let Inner {
            generations,
            listeners,
            switches,
            binding,
        } = &*self.0;
        let mut binding = lock(binding);
        let before = generations.current();
        let (config, policy) = after_reload(config, &before.shared.config);
        check(&config).map_err(|error| match error {
            StartError::SiteOrigin { site } => ReloadError::Origin { site },
            error => error.into(),
        })?;
        let wanted = Arc::new(config.clone());
        let mut config = config;
        descriptors::fit(&mut config).map_err(StartError::from)?;

        // Everything that may fail.
        let present = Arc::clone(&listeners.borrow());
        // Before this process reads the sockets of UDP, new ones would be bound that no process reads.
        let opens_listeners = !binding.has_passed_sockets && generations.routes.reads_sockets();
        let next_listener = opens_listeners.then_some(binding.next_listener);
        let bound = bind_more(
            &config,
            &present,
            next_listener,
            &mut InheritedSockets::default(),
            &generations.routes,
        )?;
        let tls_error = |source| ReloadError::Tls {
            source: Box::new(source),
        };
        let read =
            read_keys(&config, &bound, generations.admin_keys.as_ref()).map_err(tls_error)?;
        let origins = servers_of(&config, Some(&before.shared))?;
        let credentials = read_credentials(&origins)?;
        let has_same_log = has_same_settings(&before.shared.config.access_log, &config.access_log);
        let (log, log_queues) = match has_same_log {
            true => (before.log.clone(), None),
            false => start_log(&config).map(|(log, queues)| (log, Some(queues)))?,
        };
        let has_same_spans = has_same_settings(&before.shared.config.tracing, &config.tracing);
        let exports = &before.shared.trace_exports;
        let (spans, samplers) = match has_same_spans {
            true => (before.spans.clone(), None),
            false => start_spans(&config, exports).map(|(spans, all)| (spans, Some(all)))?,
        };

        binding.next_listener += bound.len() as u64;
        // Connections to origins do not depend on `connections_max`, which other origins may have lowered.
        let keeps_connections = has_same_settings(&before.wanted.limits, &wanted.limits)
            && before.shared.config.limits.tunnels_max == config.limits.tunnels_max;
        let shared = Basis::of(&before.shared).generation(
            before.shared.generation + 1,
            config,
            origins,
            log.as_deref(),
            Some(&before.shared),
        );
        let shared = Arc::new(shared);
        let cache = &shared.cache;
        cache
            .fill_budget
            .set_max(shared.config.limits.fill_bytes_max.bytes());
        cache.live.replace(Arc::clone(&shared.live));
        replace_keys(read);
        replace_credentials(credentials);
        let (done, switched) = mpsc::channel();
        let mut log_queues = log_queues.map(Vec::into_iter);
        let mut samplers = samplers.map(Vec::into_iter);
        for worker in switches {
            // A worker that has ended switches to nothing.
            _ = worker.send(Switch {
                shared: Arc::clone(&shared),
                log: log_queues.as_mut().map(Iterator::next),
                sampler: samplers.as_mut().map(Iterator::next),
                keeps_connections,
                done: done.clone(),
            });
        }
        drop(done);
        for _ in switches {
            if switched.recv_timeout(SWITCH_MAX).is_err() {
                tracing::warn!("a worker does not use the new configuration yet");
                break;
            }
        }
        listeners.send_replace(Arc::new(bound));
        generations.replace(Generation {
            shared: Arc::clone(&shared),
            wanted,
            log,
            spans,
        });
        shared.other_counters().reloads.increment();
        if let Some(policy) = policy {
            change_policy(&shared, policy);
        }
        Ok(())
    }
}

/// The certificates of a listener, and those that replace them.
type NewKeys = Vec<(Arc<ListenerKeys>, ListenerKeys)>;

/// Reads the certificates of all listeners and of the admin server.
fn read_keys(
    config: &EdgeConfig,
    bound: &[Arc<BoundListener>],
    admin: Option<&Arc<ListenerKeys>>,
) -> Result<NewKeys, TlsError> {
    let sites = SiteKeys::read(&config.site_certificates, config.certificates.clone())?;
    let sites = Arc::new(sites);
    let mut read = Vec::new();
    for (listener, bound) in config.listeners.iter().zip(bound) {
        if let Some(keys) = &bound.keys {
            let new = ListenerKeys::read(listener.tls.as_ref(), &sites)?;
            read.push((Arc::clone(keys), new));
        }
    }
    if let (Some(files), Some(keys)) = (&config.admin.tls, admin) {
        let new = ListenerKeys::read(Some(files), &Arc::default())?;
        read.push((Arc::clone(keys), new));
    }
    Ok(read)
}

fn replace_keys(new: NewKeys) {
    for (keys, new) in new {
        keys.replace(new);
    }
}

/// Credentials, and the servers whose requests they sign.
type NewCredentials = Vec<(Arc<Servers>, Credentials)>;

/// Reads the credentials of all buckets.
fn read_credentials(origins: &[Arc<Servers>]) -> Result<NewCredentials, ReadCredentialsError> {
    let mut read = Vec::new();
    for servers in origins {
        if let Some(signer) = servers.signer() {
            read.push((Arc::clone(servers), signer.read()?));
        }
    }
    Ok(read)
}

fn replace_credentials(new: NewCredentials) {
    for (servers, credentials) in new {
        if let Some(signer) = servers.signer() {
            signer.replace(credentials);
        }
    }
}

fn change_policy(shared: &Shared, policy: PolicySpec) {
    match shared.cache.change_policy(policy, shared.other_counters()) {
        Ok(change) => tracing::info!(
            before = %change.before,
            %policy,
            kept_objects = change.kept_objects,
            lost_objects = change.lost_objects,
            "the policy was changed"
        ),
        Err(error) => tracing::warn!(%error, %policy, "the policy was not changed"),
    }
}

/// Returns the configuration that a reload of `new` has the effect of, and the new policy of memory if it differs. The
/// settings that need another process keep the values of `running`: the threads, the cache with its store, and the
/// admin server.
pub fn after_reload(new: &EdgeConfig, running: &EdgeConfig) -> (EdgeConfig, Option<PolicySpec>) {
    let mut config = new.clone();
    let policy = new.hot.policy;
    config.hot = running.hot.clone();
    let changed = (policy != running.hot.policy).then_some(policy);
    config.hot.policy = policy;
    config.disk.clone_from(&running.disk);
    config.workers = running.workers;
    config.admin.address.clone_from(&running.admin.address);
    config.admin.tls.clone_from(&running.admin.tls);
    config.insight = running.insight.clone();
    config.watcher.clone_from(&running.watcher);
    config.admin.event_streams_max = running.admin.event_streams_max;
    config.metric_labels_max = running.metric_labels_max;
    config.pid_file.clone_from(&running.pid_file);
    config.user.clone_from(&running.user);
    config.overload = running.overload.clone();
    config.watchdog = running.watchdog;
    let (caching, before) = (&mut config.caching, &running.caching);
    caching.hash_seed = before.hash_seed;
    caching.validation_backoff = before.validation_backoff;
    caching.hit_for_miss = before.hit_for_miss;
    caching.collapse_wait_max = before.collapse_wait_max;
    caching.collapse_followers_max = before.collapse_followers_max;
    caching
        .ignored_parameters
        .clone_from(&before.ignored_parameters);
    config.compression.threads = running.compression.threads;
    config.compression.pending_bytes_max = running.compression.pending_bytes_max;
    config.compression.dictionary_bytes_max = running.compression.dictionary_bytes_max;
    config.fleet_purges.clone_from(&running.fleet_purges);
    config.fleet_directory.clone_from(&running.fleet_directory);
    config.purge.log.clone_from(&running.purge.log);
    config.purge.entries_max = running.purge.entries_max;
    config.purge.patterns_max = running.purge.patterns_max;
    (config, changed)
}

/// The longest wait for a worker. A worker serves requests between two waits, and a request takes milliseconds of it.
const SWITCH_MAX: Duration = Duration::from_secs(10);
