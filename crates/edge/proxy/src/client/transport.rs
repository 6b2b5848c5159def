//! The protocols below HTTP: PROXY headers and TLS.

use std::sync::Arc;

use rustls::ServerConfig;

use crate::base::config::Networks;

/// The protocols below HTTP on a listener's connections.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// The proxies that begin their connections with a PROXY header. `None` if no header is read.
    pub(crate) proxies: Option<Arc<Networks>>,
}
