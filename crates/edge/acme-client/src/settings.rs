//! The settings of the certificates.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use edgeward_acme::{Limits, Name, NamePlan, Plan};

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
}

impl AcmeSettings {
    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.groups.iter().flat_map(|group| &group.names)
    }

    /// Returns what the scheduler has to know.
    pub(crate) fn plan(&self) -> Plan {
        let of_group = |group: &NameGroup| {
            let issuers: Vec<Box<str>> = group
                .issuers
                .iter()
                .map(|issuer| issuer.directory.clone())
                .collect();
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
