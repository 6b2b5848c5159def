//! The settings of `[[acme]]`: names whose certificates renew themselves.

use std::path::PathBuf;
use std::time::Duration;

use edgeward_acme::Name;

/// One `[[acme]]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcmeGroup {
    pub(crate) names: Vec<Name>,
    /// The URL of the issuer's directory.
    pub(crate) directory: String,
    /// The URL of the issuer that is used after repeated failures of the first.
    pub(crate) fallback_directory: Option<String>,
    pub(crate) contact: Vec<String>,
    pub(crate) challenge: ChallengeKind,
    pub(crate) dns_hook: Option<PathBuf>,
    pub(crate) dns_hook_timeout: Duration,
    pub(crate) profile: Option<String>,
    pub(crate) eab_key_id: Option<String>,
    pub(crate) eab_key_file: Option<PathBuf>,
    /// The PEM file of the roots that the issuers' servers chain to. `None`: the roots of the system.
    pub(crate) ca: Option<PathBuf>,
    /// The folder of keys, certificates and the ledger. All `[[acme]]` have the same one.
    pub(crate) state: PathBuf,
    /// New orders of each account per hour. All `[[acme]]` have the same value.
    pub(crate) orders_per_hour: u32,
}

/// How an issuer validates names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChallengeKind {
    Http,
    TlsAlpn,
    Dns,
}

impl Default for AcmeGroup {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            directory: LETS_ENCRYPT.to_owned(),
            fallback_directory: None,
            contact: Vec::new(),
            challenge: ChallengeKind::Http,
            dns_hook: None,
            dns_hook_timeout: Duration::from_secs(120),
            profile: None,
            eab_key_id: None,
            eab_key_file: None,
            ca: None,
            state: STATE.into(),
            orders_per_hour: 90,
        }
    }
}

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The folder that the unit of systemd makes for state.
const STATE: &str = "/var/lib/edgeward/acme";
