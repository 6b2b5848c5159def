//! Makes the state of a generation: at the start of an edge, and at each reload.

use std::sync::{Arc, Mutex};

use edgeward_sites::RateLimiter;
use http::HeaderValue;

use super::span_export::{ExportError, SpanExport};
use super::start_error::StartError;
use crate::cache::Cache;
use crate::cache::encoders::Encoders;
use crate::cache::negative::Negative;
use crate::config::live::LiveConfig;
use crate::config::{EdgeConfig, OriginConfig};
use crate::exchange::canonical::Canonicaliser;
use crate::observe::access_log::{AccessLog, LogQueue};
use crate::observe::counters::Counters;
use crate::observe::recent::RecentRequests;
use crate::observe::spans::Sampler;
use crate::origin::Servers;
use crate::path::copies::hits_in_memory;
use crate::path::fleet::Fleet;
use crate::path::worker::{Budgets, Labels, Shared, TraceExports};
use crate::rt::budget::MemoryBudget;
use crate::rt::clock::Clock;
use crate::rt::health::Health;

/// The parts that all generations of an edge share.
pub(super) struct Basis {
    pub(super) cache: Arc<Cache>,
    pub(super) encoders: Arc<Encoders>,
    pub(super) clock: Arc<Clock>,
    pub(super) counters: Vec<Arc<Counters>>,
    pub(super) health: Arc<Health>,
    pub(super) labels: Arc<Labels>,
    pub(super) recent: Arc<RecentRequests>,
    pub(super) trace_exports: Arc<TraceExports>,
}

impl Basis {
    pub(super) fn of(shared: &Shared) -> Self {
        Self {
            cache: Arc::clone(&shared.cache),
            encoders: Arc::clone(&shared.encoders),
            clock: Arc::clone(&shared.clock),
            counters: shared.counters.clone(),
            labels: Arc::clone(&shared.labels),
            health: Arc::clone(&shared.health),
            recent: Arc::clone(&shared.recent),
            trace_exports: Arc::clone(&shared.trace_exports),
        }
    }

    /// Returns the state of a generation. `before` is the generation that it follows.
    pub(super) fn generation(
        self,
        number: u64,
        config: EdgeConfig,
        origins: Vec<Arc<Servers>>,
        log: Option<&AccessLog>,
        before: Option<&Shared>,
    ) -> Shared {
        let limits = &config.limits;
        let named = before.filter(|before| before.config.name == config.name);
        let via_name = named.map(|before| before.canonicaliser.via_name.clone());
        // The random part distinguishes edges of the same name, so that a loop is detected.
        let via_name =
            via_name.unwrap_or_else(|| format!("{}-{:08x}", config.name, random() as u32));
        let budget = |of: fn(&Shared) -> &Arc<MemoryBudget>, max: u64| match before {
            Some(before) => {
                of(before).set_max(max);
                Arc::clone(of(before))
            }
            None => MemoryBudget::new(max, None),
        };
        let limiter_of = |before: &&Shared| {
            before.config.limits.rate_limit_clients_max == limits.rate_limit_clients_max
        };
        let rate_limiter = before.filter(limiter_of).map_or_else(
            || {
                let clients_max = limits.rate_limit_clients_max.get();
                Arc::new(Mutex::new(RateLimiter::new(clients_max)))
            },
            |before| Arc::clone(&before.rate_limiter),
        );
        let sites = config.sites.iter();
        let sites: Vec<_> = sites.map(|(_, s)| Labels::of_site(&s.name)).collect();
        let origins_named: Vec<_> = config.origins.iter().map(|o| o.name.as_str()).collect();
        let now = self.clock.now();
        Shared {
            generation: number,
            encoders: self.encoders,
            budgets: Budgets {
                uploads: budget(
                    |shared| &shared.budgets.uploads,
                    limits.upload_buffers_bytes_max.bytes(),
                ),
                heads: budget(
                    |shared| &shared.budgets.heads,
                    limits.heads_bytes_max.bytes(),
                ),
                connections: budget(
                    |shared| &shared.budgets.connections,
                    limits.connections_bytes_max.bytes(),
                ),
            },
            clock: self.clock,
            cdn_loop: HeaderValue::try_from(via_name.as_str())
                .expect("the name was checked to be a token"),
            via_http11: HeaderValue::try_from(format!("1.1 {via_name}"))
                .expect("the name was checked to be a token"),
            canonicaliser: Canonicaliser::new(&config, via_name),
            origins,
            fleet: Fleet::of(
                &config,
                now,
                hits_in_memory(&self.counters),
                before.and_then(|before| before.fleet.as_deref()),
            )
            .map(Arc::new),
            live: match before {
                Some(_) => Arc::new(LiveConfig::of(&config)),
                None => self.cache.live.config(),
            },
            negative: match before {
                Some(before) if has_same_rules(&before.config, &config) => {
                    Arc::clone(&before.negative)
                }
                _ => Arc::new(Negative::new(&config.negative)),
            },
            cache: self.cache,
            rate_limiter,
            counters: self.counters,
            site_counters: self.labels.sites.resolve(&sites),
            origin_counters: self.labels.origins.resolve(&origins_named),
            labels: self.labels,
            health: self.health,
            recent: self.recent,
            trace_exports: self.trace_exports,
            lost_log_lines: log.map(AccessLog::lost_lines),
            config,
        }
    }
}

/// Returns true if both configurations have the same rules of id filters, with the same filters.
fn has_same_rules(a: &EdgeConfig, b: &EdgeConfig) -> bool {
    has_same_settings(&a.negative, &b.negative)
}

/// Returns true if two values of the configuration are equal. The text of `Debug` has all fields.
pub(super) fn has_same_settings<T: std::fmt::Debug>(a: &T, b: &T) -> bool {
    format!("{a:?}") == format!("{b:?}")
}

/// Returns the servers of all origins. An origin that `before` has with the same settings keeps its servers, and one
/// with the same name the health of the servers that stay.
pub(super) fn servers_of(
    config: &EdgeConfig,
    before: Option<&Shared>,
) -> Result<Vec<Arc<Servers>>, StartError> {
    let servers = config.origins.iter().map(|origin| {
        let known = before.and_then(|before| {
            let mut known = before.config.origins.iter().zip(&before.origins);
            known.find(|(known, _)| known.name == origin.name)
        });
        let servers = match known {
            Some((known, servers)) if is_unchanged(known, origin) => {
                return Ok(Arc::clone(servers));
            }
            Some((_, servers)) => Servers::succeeding(origin, random(), servers),
            None => Servers::new(origin, random()),
        };
        servers.map(Arc::new).map_err(|source| StartError::Origin {
            origin: origin.url().to_string(),
            source,
        })
    });
    servers.collect()
}

/// Returns true if an origin keeps its connections at a reload. Certificates are read again.
fn is_unchanged(before: &OriginConfig, now: &OriginConfig) -> bool {
    before.tls.client.is_none() && before.tls.roots.is_none() && has_same_settings(before, now)
}

/// Starts the access log, with a queue for each worker.
pub(super) fn start_log(
    config: &EdgeConfig,
) -> Result<(Option<Arc<AccessLog>>, Vec<LogQueue>), StartError> {
    let Some(log) = &config.access_log else {
        return Ok((None, Vec::new()));
    };
    let (log, queues) = AccessLog::start(log, config.workers.get())?;
    Ok((Some(Arc::new(log)), queues))
}

/// Starts the export of traces, with a sampler for each worker.
pub(super) fn start_spans(
    config: &EdgeConfig,
    exports: &Arc<TraceExports>,
) -> Result<(Option<Arc<SpanExport>>, Vec<Sampler>), StartError> {
    let Some(tracing) = &config.tracing else {
        return Ok((None, Vec::new()));
    };
    let workers = 0..config.workers.get();
    let (samplers, queues) = workers.map(|_| Sampler::new(tracing, random())).unzip();
    let export = SpanExport::start(tracing, queues, config.name.clone(), Arc::clone(exports));
    let export = export.map_err(|error| match error {
        ExportError::Connector(source) => StartError::Collector {
            collector: tracing.endpoint.to_string(),
            source,
        },
        ExportError::Thread(source) => StartError::Thread {
            what: "the export of spans",
            source,
        },
    })?;
    Ok((Some(Arc::new(export)), samplers))
}

/// Returns a random number, or 0 if the system provides no randomness. The cache works with 0 too.
pub(super) fn random() -> u64 {
    let mut bytes = [0; 8];
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    _ = provider.secure_random.fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
