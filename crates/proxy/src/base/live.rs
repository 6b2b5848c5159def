//! The part of the configuration that changes while the edge serves: sites with their rules, and the rules of caching.
//!
//! A reload replaces the whole value. Each worker compares a version number at each request, and merges the settings of
//! the new value at its next request. A request keeps the settings with which it began.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use edgeward_sites::Sites;

use crate::base::config::{CachingConfig, CompressionConfig, EdgeConfig};
use crate::base::site_urls::SiteUrls;

/// One version of the live configuration.
#[derive(Debug)]
pub(crate) struct LiveConfig {
    pub(crate) sites: Arc<Sites>,
    /// Only the settings that a rule may change are read: `rules` and `stale_if_disconnected`.
    pub(crate) caching: CachingConfig,
    /// The threads and budgets keep the values of the start.
    pub(crate) compression: CompressionConfig,
    pub(crate) site_urls: SiteUrls,
}

impl LiveConfig {
    pub(crate) fn of(config: &EdgeConfig) -> Self {
        Self {
            sites: Arc::clone(&config.sites),
            caching: config.caching.clone(),
            compression: config.compression.clone(),
            site_urls: SiteUrls::new(&config.sites),
        }
    }
}

/// The live configuration, which all threads share.
#[derive(Debug)]
pub(crate) struct Live {
    version: AtomicU64,
    config: RwLock<Arc<LiveConfig>>,
}

impl Live {
    pub(crate) fn new(config: &EdgeConfig) -> Arc<Self> {
        Arc::new(Self {
            version: AtomicU64::new(0),
            config: RwLock::new(Arc::new(LiveConfig::of(config))),
        })
    }

    /// Returns the number of the current version. A caller that knows another number reads the configuration again.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn config(&self) -> Arc<LiveConfig> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&config)
    }

    pub(crate) fn replace(&self, config: LiveConfig) {
        let mut current = self.config.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(config);
        // After the value: a worker that sees the number also sees the value.
        self.version.fetch_add(1, Ordering::Release);
    }
}
