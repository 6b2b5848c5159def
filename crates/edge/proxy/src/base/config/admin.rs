//! The settings of the admin server.

use edgeward_httpd::AdminToken;

use super::{ListenAddress, ListenerTls};

/// The settings of the server of metrics, status and the admin API.
#[derive(Clone, Debug, Default)]
pub struct AdminConfig {
    /// The address. Default: none, because the pages reveal how the cache is used.
    pub address: Option<ListenAddress>,
    /// The certificate, for TLS. Default: none.
    pub tls: Option<ListenerTls>,
    /// Values of `Host` that the server accepts, besides addresses, `localhost` and
    /// [`EdgeConfig::name`](crate::EdgeConfig::name). Default: none.
    pub hosts: Vec<String>,
    /// Tokens with their roles, besides [`PurgeConfig::token`](super::PurgeConfig::token), which has all roles. Default:
    /// none.
    pub tokens: Vec<AdminToken>,
    /// True if metrics, status and policy need a token too. Default false: scrapers of metrics seldom have tokens, and
    /// the address can be one that only they reach.
    pub requires_token: bool,
}
