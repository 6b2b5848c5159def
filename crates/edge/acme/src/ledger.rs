//! The history on which decisions about orders depend. It is persisted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::name::Name;
use crate::plan::Plan;
use crate::reading::Reading;
use crate::renewal::{SuggestedWindow, Validity, window_query_delay};

/// The history of all issuers and names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    version: u32,
    /// The clocks when the times of the ledger were last compared with them.
    pub(crate) reading: Option<Reading>,
    pub(crate) issuers: BTreeMap<Box<str>, IssuerRecord>,
    pub(crate) names: BTreeMap<Name, NameRecord>,
    /// The times of the newest names on demand.
    #[serde(default)]
    pub(crate) demands: Vec<u64>,
}

/// The history of one issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerRecord {
    /// The times of the newest orders.
    pub orders: Vec<u64>,
    /// Failures for which the issuer is to blame.
    pub backoff: Backoff,
}

/// The history of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRecord {
    /// Failures of the name's orders.
    pub backoff: Backoff,
    /// The times of the newest failed validations.
    pub failed_validations: Vec<u64>,
    /// The times of the newest certificates.
    pub issued: Vec<u64>,
    /// The order under way.
    pub pending: Option<PendingOrder>,
    /// The certificate in use.
    pub certificate: Option<CertificateRecord>,
    /// True after an operator has demanded a renewal, until it succeeds.
    pub renewal_requested: bool,
    /// The last error, for the operator. A success removes it.
    pub last_error: Option<Box<str>>,
    /// When the name was added because a client asked for it. `None` if only the configuration may have it.
    #[serde(default)]
    pub demanded_at: Option<u64>,
    /// Refusals of the renewal by the operator's program since it last gave another answer.
    #[serde(default)]
    pub refusals: u32,
    /// The time of the first of them.
    #[serde(default)]
    pub refused_since: u64,
}

/// An order under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingOrder {
    /// The issuer.
    pub issuer: Box<str>,
    /// The URL of the order. `None` until the issuer has answered.
    pub url: Option<Box<str>>,
    /// When the order was started.
    pub started_at: u64,
    /// How often a new process has continued the order.
    pub resumes: u32,
    /// True once the request for a certificate may have reached the issuer.
    #[serde(default)]
    pub is_finalized: bool,
}

/// A certificate in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRecord {
    /// The time for which it is valid.
    pub validity: Validity,
    /// When this process stored it.
    pub stored_at: u64,
    /// The issuer. `None` if the certificate was imported.
    pub issuer: Option<Box<str>>,
    /// The identifier of the certificate in queries of its window (RFC 9773 §4.1).
    pub window_id: Option<Box<str>>,
    /// The window that the issuer suggests.
    pub window: Option<SuggestedWindow>,
    /// When the window is queried next.
    pub window_query_at: u64,
}

/// The reason why bytes are no ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The bytes are no JSON of the expected form.
    #[error("the ledger cannot be parsed")]
    Json(#[from] serde_json::Error),
    /// A newer version of the program wrote the ledger.
    #[error("the ledger has version {0}, but this program knows version {LEDGER_VERSION}")]
    Version(u32),
}

/// The version of the format.
pub const LEDGER_VERSION: u32 = 1;

impl Default for Ledger {
    fn default() -> Self {
        Self {
            version: LEDGER_VERSION,
            reading: None,
            issuers: BTreeMap::new(),
            names: BTreeMap::new(),
            demands: Vec::new(),
        }
    }
}

impl Ledger {
    /// Parses a ledger.
    pub fn parse(bytes: &[u8]) -> Result<Self, LedgerError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = serde_json::from_slice(bytes)?;
        if version != LEDGER_VERSION {
            return Err(LedgerError::Version(version));
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    /// Returns the ledger as JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("a ledger has only strings as keys")
    }

    /// Returns the records of names.
    pub const fn names(&self) -> &BTreeMap<Name, NameRecord> {
        &self.names
    }

    /// Returns the records of issuers by the URLs of their directories.
    pub const fn issuers(&self) -> &BTreeMap<Box<str>, IssuerRecord> {
        &self.issuers
    }

    /// Returns the names that clients have asked for.
    pub fn demanded(&self) -> impl Iterator<Item = &Name> {
        let demanded = self
            .names
            .iter()
            .filter(|(_, record)| record.demanded_at.is_some());
        demanded.map(|(name, _)| name)
    }

    /// Moves all times of this machine by `seconds`. Times that an issuer states do not move.
    pub(crate) fn shift(&mut self, seconds: i64) {
        self.each_time(|at| *at = at.saturating_add_signed(seconds));
        for certificate in self
            .names
            .values_mut()
            .filter_map(|record| record.certificate.as_mut())
        {
            let at = &mut certificate.window_query_at;
            *at = at.saturating_add_signed(seconds);
        }
    }

    /// Moves times of the future to `now`. A wait that has begun then ends after its whole length at the latest.
    pub(crate) fn end_future(&mut self, now: u64) {
        self.each_time(|at| *at = (*at).min(now));
        let latest = now.saturating_add(window_query_delay(None));
        for certificate in self
            .names
            .values_mut()
            .filter_map(|record| record.certificate.as_mut())
        {
            certificate.window_query_at = certificate.window_query_at.min(latest);
        }
    }

    fn each_time(&mut self, change: impl Fn(&mut u64)) {
        for issuer in self.issuers.values_mut() {
            issuer.orders.iter_mut().for_each(&change);
            change(&mut issuer.backoff.failed_at);
        }
        self.demands.iter_mut().for_each(&change);
        for record in self.names.values_mut() {
            record.demanded_at.iter_mut().for_each(&change);
            change(&mut record.refused_since);
            record.failed_validations.iter_mut().for_each(&change);
            record.issued.iter_mut().for_each(&change);
            change(&mut record.backoff.failed_at);
            if let Some(pending) = &mut record.pending {
                change(&mut pending.started_at);
            }
            if let Some(certificate) = &mut record.certificate {
                change(&mut certificate.stored_at);
            }
        }
    }

    /// Drops times that limits no longer need, and the records of names that are not in use and have no history. Names
    /// on demand stay even while the plan has none: their certificates are used again when it has them again.
    pub(crate) fn trim(&mut self, plan: &Plan, now: u64, is_used: impl Fn(&Name) -> bool) {
        let limits = &plan.limits;
        if let Some(on_demand) = &plan.on_demand {
            on_demand.new_names.trim(&mut self.demands, now);
        }
        for issuer in self.issuers.values_mut() {
            limits.orders_per_issuer.trim(&mut issuer.orders, now);
        }
        for record in self.names.values_mut() {
            limits
                .failures_per_name
                .trim(&mut record.failed_validations, now);
            limits.certificates_per_name.trim(&mut record.issued, now);
        }
        self.names.retain(|name, record| {
            is_used(name)
                || record.demanded_at.is_some()
                || !record.failed_validations.is_empty()
                || !record.issued.is_empty()
                || record.backoff.ends_at(now) > now
        });
        self.issuers
            .retain(|_, issuer| !issuer.orders.is_empty() || issuer.backoff.failures > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_of_another_version_is_refused() {
        let text = String::from_utf8(Ledger::default().to_bytes()).expect("JSON is UTF-8");
        assert!(Ledger::parse(text.as_bytes()).is_ok());
        let newer = text.replace("\"version\": 1", "\"version\": 2");
        assert!(matches!(
            Ledger::parse(newer.as_bytes()),
            Err(LedgerError::Version(2))
        ));
        assert!(matches!(Ledger::parse(b"{"), Err(LedgerError::Json(_))));
    }
}
