//! The settings of the certificates.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use edgeward_acme::{Limits, Name, NamePlan, OnDemandPlan, Plan, Rate};

use crate::clocks;

/// All certificates that are kept in one folder.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// Names with their issuers and their way of validation.
    pub groups: Vec<NameGroup>,
    /// The folder of the state.
    pub folder: PathBuf,
    /// The limits of orders.
    pub limits: Limits,
    /// Names that are ordered when a client first asks for them.
    pub on_demand: Option<OnDemandSettings>,
}

/// Names that are ordered when a client first asks for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemandSettings {
    /// The position in [`AcmeSettings::groups`] of the group that says how these names are ordered.
    pub group: usize,
    /// The `http` or `https` URL that allows a name by the status 200. The name is added as the parameter `domain`.
    pub url: http::Uri,
    /// New names.
    pub new_names: Rate,
    /// The most queries of the URL in a minute.
    pub queries_per_minute: u32,
    /// The most names that are ordered for the first time at once.
    pub pending_max: usize,
    /// The most names that are kept.
    pub names_max: usize,
    /// The longest wait of a handshake for its certificate.
    pub timeout: Duration,
}

impl AcmeSettings {
    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.groups.iter().flat_map(|group| &group.names)
    }

    /// Returns the group of a name: the one that lists it, or else that of names on demand.
    pub(crate) fn group_of(&self, name: &Name) -> Option<&NameGroup> {
        let mut groups = self.groups.iter();
        let listed = groups.find(|group| group.names.contains(name));
        listed.or_else(|| self.groups.get(self.on_demand.as_ref()?.group))
    }

    /// Returns what the scheduler has to know.
    pub(crate) fn plan(&self) -> Plan {
        let issuers_of = |group: &NameGroup| -> Vec<Box<str>> {
            let issuers = group.issuers.iter();
            issuers.map(|issuer| issuer.directory.clone()).collect()
        };
        let of_group = |group: &NameGroup| {
            let issuers = issuers_of(group);
            let planned = |name: &Name| NamePlan {
                name: name.clone(),
                issuers: issuers.clone(),
            };
            group.names.iter().map(planned).collect::<Vec<_>>()
        };
        Plan {
            names: self.groups.iter().flat_map(of_group).collect(),
            limits: self.limits,
            seed: clocks::machine(),
            on_demand: self.on_demand.as_ref().map(|on_demand| OnDemandPlan {
                issuers: issuers_of(&self.groups[on_demand.group]),
                new_names: on_demand.new_names,
                queries_per_minute: on_demand.queries_per_minute,
                pending_max: on_demand.pending_max,
                names_max: on_demand.names_max,
            }),
        }
    }
}

/// Names that are ordered in the same way. Each name has a certificate of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameGroup {
    /// The names.
    pub names: Vec<Name>,
    /// The issuers: the second one is used after repeated failures of the first.
    pub issuers: Vec<IssuerSettings>,
    /// URLs of contacts, such as `mailto:admin@a.example`.
    pub contacts: Vec<String>,
    /// How the names are validated.
    pub challenge: Challenge,
    /// The profile of the certificates. `None`: the default of the issuer.
    pub profile: Option<String>,
    /// The common name of the root that the chain of a certificate should lead to. `None`: the issuer's default chain.
    pub preferred_chain: Option<String>,
    /// PEM file of the roots that the issuers' servers chain to. `None`: the roots of the system.
    pub roots: Option<PathBuf>,
}

/// An issuer of certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerSettings {
    /// The URL of its directory.
    pub directory: Box<str>,
    /// The key that binds the account to an existing one (RFC 8555 §7.3.4).
    pub binding: Option<AccountBinding>,
}

/// The identifier and the key of an external account.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountBinding {
    /// The identifier of the key.
    pub key_id: String,
    /// The key, decoded.
    pub key: Vec<u8>,
}

impl AccountBinding {
    /// Parses a key in base64url, with or without padding. `None` if it has none.
    pub fn parse(key_id: &str, key: &str) -> Option<Self> {
        let key = URL_SAFE_NO_PAD.decode(key.trim_end_matches('=')).ok()?;
        (!key.is_empty()).then(|| Self {
            key_id: key_id.to_owned(),
            key,
        })
    }
}

/// Does not show the key.
impl fmt::Debug for AccountBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountBinding")
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

/// How an issuer validates names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// A file on port 80 (RFC 8555 §8.3).
    Http,
    /// A certificate on port 443 (RFC 8737).
    TlsAlpn,
    /// A record in DNS (RFC 8555 §8.4), which a program sets.
    Dns {
        /// The program. It is called with `present` or `cleanup`, the name of the record, and its value.
        hook: PathBuf,
        /// The longest run of the program.
        timeout: Duration,
    },
}
