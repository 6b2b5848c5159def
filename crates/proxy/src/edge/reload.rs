//! Changes the configuration of a running edge.

use std::sync::Arc;

use edgeward_sites::{Settings, Sites};

use crate::base::config::EdgeConfig;
use crate::base::live::LiveConfig;
use crate::base::tls::{ListenerKeys, SiteKeys, TlsError};
use crate::path::worker::Shared;

/// The reason why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// A site or rule has an origin that the running edge lacks.
    #[error(
        "the site {site} has an origin that was added or moved since the start; restart to use it"
    )]
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
}

/// Changes the configuration of a running edge. Made by [`RunningEdge::reloader`](crate::RunningEdge::reloader).
#[derive(Clone)]
pub struct Reloader {
    shared: Arc<Shared>,
    /// The certificates of the listeners, in the order of the configuration. `None` for a listener without TLS.
    listener_keys: Vec<Option<Arc<ListenerKeys>>>,
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reloader")
    }
}

impl Reloader {
    pub(super) fn new(shared: Arc<Shared>, listener_keys: Vec<Option<Arc<ListenerKeys>>>) -> Self {
        Self {
            shared,
            listener_keys,
        }
    }

    pub(super) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Counts a reload that changed nothing, because the configuration is invalid.
    pub fn count_refused(&self) {
        self.shared.counters[0].reloads_refused.increment();
    }

    /// Sets the function that `POST /reload` of the admin server calls. It reads the configuration, calls
    /// [`reload`](Self::reload), and returns the changes or the reason why nothing changed. Only the first call counts.
    pub fn on_request(
        &self,
        reload: impl Fn() -> Result<Vec<String>, String> + Send + Sync + 'static,
    ) {
        _ = self.shared.on_reload.set(Box::new(reload));
    }

    /// Applies the live part of `config`: sites, rules, the rules of caching, and certificates, which are read from
    /// their files again. After an error nothing has changed. Requests under way keep their settings, and connections
    /// their certificates. All other settings keep the values of the start.
    pub fn reload(&self, config: &EdgeConfig) -> Result<(), ReloadError> {
        // Settings have indices of origins, so they are valid only for the origins of the start.
        let names = |config: &EdgeConfig| -> Vec<String> {
            config
                .origins
                .iter()
                .map(|origin| origin.name.clone())
                .collect()
        };
        let (started, new) = (names(&self.shared.config), names(config));
        let same = started.iter().zip(&new).take_while(|(a, b)| a == b).count();
        check_sites(&config.sites, same).map_err(|site| ReloadError::Origin { site })?;
        let tls_error = |source| ReloadError::Tls {
            source: Box::new(source),
        };
        let sites = Arc::new(SiteKeys::read(&config.site_certificates).map_err(tls_error)?);
        let mut read = Vec::new();
        for (listener, keys) in config.listeners.iter().zip(&self.listener_keys) {
            if let (Some(files), Some(keys)) = (&listener.tls, keys) {
                read.push((keys, ListenerKeys::read(files, &sites).map_err(tls_error)?));
            }
        }
        for (keys, new) in read {
            keys.replace(new);
        }
        self.shared.live.replace(LiveConfig::of(config));
        self.shared.counters[0].reloads.increment();
        Ok(())
    }
}

/// Checks that sites and rules use only the first `origins` origins. Otherwise returns the name of a site.
pub(super) fn check_sites(sites: &Sites, origins: usize) -> Result<(), Box<str>> {
    let has_origin = |settings: &Settings| settings.origin.is_none_or(|origin| origin < origins);
    for (_, site) in sites.iter() {
        let rules = site.rules().iter().map(|rule| &rule.settings);
        if !rules.chain([&site.settings]).all(has_origin) {
            return Err(site.name.clone());
        }
    }
    Ok(())
}
