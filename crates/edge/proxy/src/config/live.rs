//! The part of the configuration that the cache reads too: sites with their rules, and the rules of caching.
//!
//! Each generation of an edge has one value. The cache, which all generations share, has the newest.

use std::sync::{Arc, PoisonError, RwLock};

use edgeward_sites::Sites;
use edgeward_types::ByteSize;

use super::caching::CachingConfig;
use super::compression::CompressionConfig;
use super::edge::EdgeConfig;
use super::s3::Buckets;
use super::site_urls::SiteUrls;

/// One version of the live configuration.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    pub(crate) sites: Arc<Sites>,
    /// Only the settings that a rule may change are read: `rules` and `stale_if_disconnected`.
    pub(crate) caching: CachingConfig,
    /// The threads and budgets keep the values of the start.
    pub(crate) compression: CompressionConfig,
    /// The largest request body of requests whose rules state none.
    pub(crate) request_body_bytes_max: Option<ByteSize>,
    pub(crate) site_urls: SiteUrls,
    /// The bucket of each origin.
    pub(crate) buckets: Buckets,
}

impl LiveConfig {
    pub(crate) fn of(config: &EdgeConfig) -> Self {
        let buckets: Buckets = config.origins.iter().map(|o| o.s3.clone()).collect();
        Self {
            sites: Arc::clone(&config.sites),
            caching: config.caching.clone(),
            compression: config.compression.clone(),
            request_body_bytes_max: config.limits.request_body_bytes_max,
            site_urls: SiteUrls::new(&config.sites, &buckets),
            buckets,
        }
    }
}

/// The newest live configuration.
#[derive(Debug)]
pub(crate) struct Live(RwLock<Arc<LiveConfig>>);

impl Live {
    pub(crate) fn new(config: Arc<LiveConfig>) -> Self {
        Self(RwLock::new(config))
    }

    pub(crate) fn config(&self) -> Arc<LiveConfig> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, config: Arc<LiveConfig>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }
}
