//! The settings of `[[acme]]`: names whose certificates renew themselves.

use std::path::PathBuf;
use std::time::Duration;

use edgeward_acme::Name;

/// One `[[acme]]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AcmeGroup {
    pub(crate) names: Vec<Name>,
    /// The URL that allows or refuses names that clients ask for. `None`: only `names` get certificates.
    pub(crate) on_demand: Option<http::Uri>,
    pub(crate) on_demand_names_per_hour: u32,
    pub(crate) on_demand_queries_per_minute: u32,
    pub(crate) on_demand_pending_max: u32,
    pub(crate) on_demand_names_max: u32,
    pub(crate) on_demand_timeout: Duration,
    /// The URL of the issuer's directory.
    pub(crate) directory: String,
    /// The URL of the issuer that is used after repeated failures of the first.
    pub(crate) fallback_directory: Option<String>,
    pub(crate) contact: Vec<String>,
    pub(crate) challenge: ChallengeKind,
    pub(crate) dns_hook: Option<PathBuf>,
    pub(crate) dns_hook_timeout: Duration,
    pub(crate) profile: Option<String>,
    /// The common name of the root that chains should lead to.
    pub(crate) preferred_chain: Option<String>,
    pub(crate) eab_key_id: Option<String>,
    pub(crate) eab_key_file: Option<PathBuf>,
    pub(crate) fallback_eab_key_id: Option<String>,
    pub(crate) fallback_eab_key_file: Option<PathBuf>,
    /// The PEM file of the roots that the issuers' servers chain to. `None`: the roots of the system.
    pub(crate) ca: Option<PathBuf>,
    /// The folder of keys, certificates and the ledger. All `[[acme]]` have the same one.
    pub(crate) state: PathBuf,
    /// New orders of each account per hour. All `[[acme]]` have the same value.
    pub(crate) orders_per_hour: u32,
}

/// The settings that bind the account at one issuer to an existing one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindingKeys<'a> {
    pub(crate) key_id: Option<&'a String>,
    pub(crate) key_file: Option<&'a PathBuf>,
    /// The paths of the two settings.
    pub(crate) paths: [&'static str; 2],
}

impl AcmeGroup {
    /// Returns the settings of the first issuer, then those of the second one.
    pub(crate) fn bindings(&self) -> [BindingKeys<'_>; 2] {
        [
            BindingKeys {
                key_id: self.eab_key_id.as_ref(),
                key_file: self.eab_key_file.as_ref(),
                paths: ["acme.eab_key_id", "acme.eab_key_file"],
            },
            BindingKeys {
                key_id: self.fallback_eab_key_id.as_ref(),
                key_file: self.fallback_eab_key_file.as_ref(),
                paths: ["acme.fallback_eab_key_id", "acme.fallback_eab_key_file"],
            },
        ]
    }
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
            on_demand: None,
            // A site gains few names in an hour, and Let's Encrypt admits 50 new ones of a domain in a week.
            on_demand_names_per_hour: 20,
            // A service gains few customers in a minute; strangers can ask for any number of names.
            on_demand_queries_per_minute: 60,
            // As many as there are tasks at once.
            on_demand_pending_max: 4,
            on_demand_names_max: 1000,
            // Let's Encrypt validates a name from five places within about ten seconds.
            on_demand_timeout: Duration::from_secs(20),
            directory: LETS_ENCRYPT.to_owned(),
            fallback_directory: None,
            contact: Vec::new(),
            challenge: ChallengeKind::Http,
            dns_hook: None,
            dns_hook_timeout: Duration::from_secs(120),
            profile: None,
            preferred_chain: None,
            eab_key_id: None,
            eab_key_file: None,
            fallback_eab_key_id: None,
            fallback_eab_key_file: None,
            ca: None,
            state: STATE.into(),
            orders_per_hour: 90,
        }
    }
}

const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The folder that the unit of systemd makes for state.
const STATE: &str = "/var/lib/edgeward/acme";
