//! The resolvers of the names in the URLs of an origin's servers.

use std::io;
use std::sync::Arc;

use crate::config::interfaces::{Resolve, Resolved, UrlName};
use crate::config::{OriginConfig, OriginUrl, Resolution};
use crate::net::dns::{DnsResolver, SystemResolver};

/// The resolvers of an origin.
pub(super) struct Names {
    hosts: Arc<dyn Resolve>,
    /// Resolves the names of SRV records, which the system does not.
    services: Arc<dyn Resolve>,
}

impl Names {
    pub(super) fn new(config: &OriginConfig) -> Self {
        let dns: Arc<dyn Resolve> = Arc::new(DnsResolver {
            servers: config.name_servers.clone(),
            targets_max: config.servers_max.get(),
        });
        let default = match config.resolution {
            Resolution::System => Arc::new(SystemResolver),
            Resolution::Dns => Arc::clone(&dns),
        };
        Self {
            hosts: config.resolver.clone().unwrap_or(default),
            services: config.resolver.clone().unwrap_or(dns),
        }
    }

    /// Returns the targets of the name in the URL, at least one.
    pub(super) async fn resolve(&self, url: &OriginUrl) -> io::Result<Resolved> {
        let url = url.clone();
        let resolver = match url.service {
            Some(_) => Arc::clone(&self.services),
            None => Arc::clone(&self.hosts),
        };
        let resolving = tokio::task::spawn_blocking(move || {
            let name = match &url.service {
                Some(service) => UrlName::Service(service),
                None => UrlName::Host {
                    host: &url.host,
                    port: url.port,
                },
            };
            let resolved = resolver.resolve(&name)?;
            if resolved.targets.is_empty() {
                let text = format!("{url} has no address");
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
            Ok(resolved)
        });
        resolving.await.map_err(io::Error::other)?
    }
}
