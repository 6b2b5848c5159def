//! The identity of an endpoint: the name, the fingerprint and the end of its certificate.
//!
//! The CA of a link signs a certificate for each edge, with the name of the edge in it. A gateway identifies an edge by
//! this name, so an edge stays the same peer when its certificate is renewed. Certificates of earlier versions have no
//! name of their own; such an edge is identified by its certificate.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::deny::{self, Fingerprint};
use crate::keys::date;

/// The identity of an endpoint, read from its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    name: Option<EndpointName>,
    fingerprint: Fingerprint,
    /// The last second of the certificate's validity, in seconds since 1970.
    not_after: u64,
    key: IdentityKey,
}

/// The bytes by which a gateway identifies an endpoint, in memory and in the names of knowledge files: the name in its
/// certificate, or the certificate if it has no name.
pub(crate) type IdentityKey = Arc<[u8]>;

impl Identity {
    /// Reads a certificate in DER. A certificate that this parser refuses although the TLS library accepted it has no
    /// name and no known end.
    pub(crate) fn of(certificate: &[u8]) -> Self {
        let parsed = Certificate::from_der(certificate).ok();
        let not_after = parsed.as_ref().map(|parsed| {
            let not_after = parsed.tbs_certificate.validity.not_after;
            not_after.to_unix_duration().as_secs()
        });
        let name = parsed.as_ref().and_then(name_in);
        let key = match &name {
            Some(name) => [b"name:", name.0.as_bytes()].concat().into(),
            None => certificate.into(),
        };
        Self {
            name,
            key,
            fingerprint: deny::fingerprint(certificate),
            not_after: not_after.unwrap_or(u64::MAX),
        }
    }

    /// Returns the name of the endpoint: `gateway`, the name of an edge, or for a certificate without a name the first
    /// 16 digits of its fingerprint.
    pub fn name(&self) -> String {
        match &self.name {
            Some(name) => name.0.clone(),
            None => self.fingerprint()[..16].to_owned(),
        }
    }

    /// Returns the name in the certificate, or `None` for an edge's certificate that an earlier version created.
    pub(crate) fn own_name(&self) -> Option<&EndpointName> {
        self.name.as_ref()
    }

    /// Returns the SHA-256 fingerprint of the certificate in hexadecimal digits, as in a deny list.
    pub fn fingerprint(&self) -> String {
        edgeward_types::to_hex(&self.fingerprint)
    }

    pub(crate) fn fingerprint_bytes(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// Returns the end of the certificate's validity in seconds since 1970, or `None` if it does not expire.
    pub fn expires_at(&self) -> Option<u64> {
        (self.not_after < NEVER).then_some(self.not_after)
    }

    /// Returns the date on which the certificate expires, such as `2029-11-28`, or `None` if it does not expire.
    pub fn expires_on(&self) -> Option<String> {
        self.expires_at().map(date)
    }

    /// Returns the whole days until the certificate expires, negative if it has expired, or `None` if it does not
    /// expire.
    pub fn days_left(&self, now: SystemTime) -> Option<i64> {
        let now = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.as_secs());
        let seconds = i128::from(self.expires_at()?) - i128::from(now);
        i64::try_from(seconds.div_euclid(i128::from(DAY.as_secs()))).ok()
    }

    /// Returns true if the certificate has expired.
    pub(crate) fn has_expired(&self, now: SystemTime) -> bool {
        self.days_left(now).is_some_and(|days| days < 0)
    }

    pub(crate) fn key(&self) -> &IdentityKey {
        &self.key
    }
}

/// The name of an endpoint in its certificate: lower-case letters, digits and hyphens, at most 63 characters (a label
/// of DNS, RFC 1035, section 2.3.4).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointName(String);

/// Returned if a text cannot be the name of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not a name: use 1 to 63 lower-case letters, digits and hyphens, such as paris-2")]
pub struct ParseNameError(String);

impl std::str::FromStr for EndpointName {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        let is_valid = (1..=63).contains(&text.len())
            && !text.starts_with('-')
            && !text.ends_with('-')
            && text
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseNameError(text.chars().take(80).collect()))
        }
    }
}

impl std::fmt::Display for EndpointName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl EndpointName {
    /// The name of the edge of a new link for which the operator gives no name.
    pub fn edge() -> Self {
        Self("edge".to_owned())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the DNS name in the certificate of the edge with this name.
    pub(crate) fn dns_name(&self) -> String {
        format!("{}{EDGE_SUFFIX}", self.0)
    }
}

/// Finds the name of an endpoint among the DNS names of a certificate.
fn name_in(certificate: &Certificate) -> Option<EndpointName> {
    let names = certificate.tbs_certificate.get::<SubjectAltName>().ok()??.1;
    names.0.iter().find_map(|name| {
        let GeneralName::DnsName(name) = name else {
            return None;
        };
        match name.as_str() {
            GATEWAY_NAME => "gateway".parse().ok(),
            name => name.strip_suffix(EDGE_SUFFIX)?.parse().ok(),
        }
    })
}

/// The DNS name in the certificate of every gateway.
pub(crate) const GATEWAY_NAME: &str = "gateway.link.edgeward";

/// The end of the DNS name in the certificate of an edge. Certificates of earlier versions have the name
/// `edge.link.edgeward` without a label before it.
const EDGE_SUFFIX: &str = ".edge.link.edgeward";

/// A certificate that ends after the year 2200 does not expire: earlier versions chose the year 4096.
const NEVER: u64 = 230 * 365 * 86400;

const DAY: Duration = Duration::from_secs(86400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_of_dns() {
        let longest = "a".repeat(63);
        for name in ["paris", "paris-2", "7", &longest] {
            assert!(name.parse::<EndpointName>().is_ok(), "{name}");
        }
        let too_long = "a".repeat(64);
        for name in [
            "", "Paris", "-a", "a-", "a.b", "a/b", "..", "a b", &too_long,
        ] {
            assert!(name.parse::<EndpointName>().is_err(), "{name}");
        }
    }

    /// The last second of the validity is day 0, and the next one has a negative number of days.
    #[test]
    fn days_left_are_counted_to_the_last_second() {
        let identity = |not_after| Identity {
            name: None,
            fingerprint: [7; 32],
            not_after,
            key: Arc::default(),
        };
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (not_after, days) in [
            (1_000_000 + 86_400, Some(1)),
            (1_000_000 + 86_399, Some(0)),
            (1_000_000, Some(0)),
            (999_999, Some(-1)),
            (NEVER - 1, Some(83_938)),
            (NEVER, None),
        ] {
            assert_eq!(identity(not_after).days_left(now), days, "{not_after}");
            assert_eq!(
                identity(not_after).has_expired(now),
                days.is_some_and(|days| days < 0)
            );
        }
        assert_eq!(identity(0).name(), "0707070707070707");
    }
}
