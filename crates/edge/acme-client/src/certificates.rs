//! The certificates and answers that handshakes and requests read.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use edgeward_acme::{DemandOutcome, Failure, Name, Validity};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::AuthorityKeyIdentifier;

use crate::answers::Answers;
use crate::demand::DemandGate;

/// The certificates and answers. Threads of the edge read them, and no call waits for the network.
#[derive(Debug, Default)]
pub struct Certificates {
    pub(crate) answers: Answers,
    keys: RwLock<Arc<KeyTable>>,
    facts: Mutex<Vec<CertificateFacts>>,
    pub(crate) counts: Counts,
    /// The way to demand names. `None` if only configured names get certificates.
    gate: RwLock<Option<DemandGate>>,
}

/// The state of one name's certificate, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The name.
    pub name: String,
    /// The end of the certificate, in seconds since 1970. `None`: the name has only a self-signed certificate.
    pub not_after_at: Option<u64>,
    /// The time of the next order. `None` if a limit forbids every order.
    pub next_order_at: Option<u64>,
    /// Failures since the last success.
    pub failures: u32,
}

/// Counts of orders since the process started.
#[derive(Debug, Default)]
pub struct Counts {
    pub(crate) orders: AtomicU64,
    pub(crate) stored: AtomicU64,
    pub(crate) failures: [AtomicU64; Failure::LABELS.len()],
    pub(crate) has_lease: AtomicBool,
    demands: [AtomicU64; DemandOutcome::LABELS.len()],
    pub(crate) on_demand: AtomicU64,
}

impl Counts {
    /// Returns the orders that were begun or continued.
    pub fn orders(&self) -> u64 {
        self.orders.load(Ordering::Relaxed)
    }

    /// Returns the certificates that were stored.
    pub fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// Returns the failed orders by cause.
    pub fn failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self
            .failures
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        Failure::LABELS.into_iter().zip(counts)
    }

    /// Returns the handshakes for names that had no certificate, by their outcome.
    pub fn demands(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self
            .demands
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        DemandOutcome::LABELS.into_iter().zip(counts)
    }

    /// Returns the names on demand.
    pub fn on_demand(&self) -> u64 {
        self.on_demand.load(Ordering::Relaxed)
    }

    pub(crate) fn count_demand(&self, outcome: DemandOutcome) {
        self.demands[outcome.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true while this process orders certificates, and not another one with the same folder.
    pub fn has_lease(&self) -> bool {
        self.has_lease.load(Ordering::Relaxed)
    }
}

impl Certificates {
    /// Returns the issued certificate for a name in SNI: that of the name, or of the wildcard above it.
    pub fn of_name(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        self.keys().of_name(server_name).cloned()
    }

    /// Returns the certificate if [`of_name`](Self::of_name) has none: the self-signed one of the name or of the wildcard
    /// above it. Clients that send no name or an unknown one get that of the first address, or of the first name. With
    /// certificates on demand, clients that send an unknown name get none.
    pub fn default_key(&self, server_name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let keys = self.keys();
        if server_name.is_some_and(|name| !keys.has_any(name)) && self.is_on_demand() {
            return None;
        }
        keys.default_key(server_name).cloned()
    }

    /// Returns the certificate that answers a TLS-ALPN-01 challenge (RFC 8737).
    pub fn of_challenge(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        self.answers.tls(server_name)
    }

    /// Returns the body that answers an HTTP-01 challenge (RFC 8555 §8.3).
    pub fn http_answer(&self, token: &str) -> Option<Box<str>> {
        self.answers.http(token)
    }

    /// Returns the state of each name.
    pub fn facts(&self) -> Vec<CertificateFacts> {
        self.facts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the counts of orders.
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn set_facts(&self, facts: Vec<CertificateFacts>) {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = facts;
    }

    pub(crate) fn keys(&self) -> Arc<KeyTable> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_keys(&self, table: KeyTable) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }

    pub(crate) fn remove_keys(&self, names: &[Name]) {
        let mut table = KeyTable::clone(&self.keys());
        names.iter().for_each(|name| table.remove(name));
        self.set_keys(table);
    }

    pub(crate) fn gate(&self) -> Option<DemandGate> {
        self.gate
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_gate(&self, gate: Option<DemandGate>) {
        *self.gate.write().unwrap_or_else(PoisonError::into_inner) = gate;
    }
}

/// Certificates by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyTable {
    exact: HashMap<Box<str>, TableKey>,
    /// By the name without its first label.
    wildcards: HashMap<Box<str>, TableKey>,
    default: Option<Arc<CertifiedKey>>,
    default_is_address: bool,
}

/// A certificate that handshakes use.
#[derive(Clone, Debug)]
pub(crate) struct TableKey {
    pub(crate) key: Arc<CertifiedKey>,
    /// False for a self-signed one, which is used only if nothing else answers.
    pub(crate) is_issued: bool,
}

impl KeyTable {
    /// Adds or replaces the certificate of a name. The first address, or else the first name, is the default.
    pub(crate) fn insert(&mut self, name: &Name, new: TableKey) {
        let key = Arc::clone(&new.key);
        let previous = match name {
            Name::Dns(name) => self.exact.insert(name.clone(), new),
            Name::Wildcard(name) => self.wildcards.insert(name.clone(), new),
            Name::Ip(address) => self.exact.insert(address.to_string().into(), new),
        };
        let is_address = name.is_address();
        let replaces_default = match (&self.default, &previous) {
            (None, _) => true,
            (Some(default), Some(previous)) if Arc::ptr_eq(default, &previous.key) => true,
            _ => is_address && !self.default_is_address,
        };
        if replaces_default {
            self.default = Some(key);
            self.default_is_address = is_address;
        }
    }

    /// Removes the certificate of a name. If it was the default, the first address, or else the first name, of the
    /// alphabet becomes the default.
    fn remove(&mut self, name: &Name) {
        let removed = match name {
            Name::Dns(name) => self.exact.remove(name),
            Name::Wildcard(name) => self.wildcards.remove(name),
            Name::Ip(address) => self.exact.remove(&*address.to_string()),
        };
        let is_default = |key: &TableKey| {
            let default = self.default.as_ref();
            default.is_some_and(|default| Arc::ptr_eq(default, &key.key))
        };
        if removed.is_some_and(|key| is_default(&key)) {
            let rank = |name: &str, is_wildcard: bool| {
                let is_name = name.parse::<IpAddr>().is_err();
                (is_name, is_wildcard, name.to_owned())
            };
            let exact = self
                .exact
                .iter()
                .map(|(name, key)| (rank(name, false), key));
            let wildcards = self
                .wildcards
                .iter()
                .map(|(name, key)| (rank(name, true), key));
            let first = exact.chain(wildcards).min_by(|(a, _), (b, _)| a.cmp(b));
            let default = first.map(|((is_name, ..), key)| (Arc::clone(&key.key), !is_name));
            (self.default, self.default_is_address) =
                default.map_or((None, false), |(key, is_address)| (Some(key), is_address));
        }
    }

    /// Returns true if a name, or the wildcard above it, has any certificate.
    pub(crate) fn has_any(&self, server_name: &str) -> bool {
        self.candidates(server_name).next().is_some()
    }

    /// Returns the certificate of a name itself.
    pub(crate) fn of_planned(&self, name: &Name) -> Option<&TableKey> {
        match name {
            Name::Dns(name) => self.exact.get(name),
            Name::Wildcard(name) => self.wildcards.get(name),
            Name::Ip(address) => self.exact.get(&*address.to_string()),
        }
    }

    fn of_name(&self, server_name: &str) -> Option<&Arc<CertifiedKey>> {
        let issued = self.candidates(server_name).find(|found| found.is_issued);
        issued.map(|found| &found.key)
    }

    fn default_key(&self, server_name: Option<&str>) -> Option<&Arc<CertifiedKey>> {
        let of_name = server_name.and_then(|name| self.candidates(name).next());
        of_name.map(|found| &found.key).or(self.default.as_ref())
    }

    /// Returns the certificate of a name, then that of the wildcard above it.
    fn candidates(&self, server_name: &str) -> impl Iterator<Item = &TableKey> {
        let parent = server_name.split_once('.').map(|(_, parent)| parent);
        let above = parent.and_then(|parent| self.wildcards.get(parent));
        self.exact.get(server_name).into_iter().chain(above)
    }
}

/// A certificate with its key, as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct StoredCertificate {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) validity: Validity,
    /// Its identifier in queries of windows. `None` if the certificate lacks the field that it is made of.
    pub(crate) window_id: Option<Box<str>>,
}

impl StoredCertificate {
    /// Parses a PEM file with a chain and its key.
    pub(crate) fn parse(pem: &[u8]) -> io::Result<Self> {
        let invalid = |why: &dyn std::fmt::Display| {
            io::Error::new(io::ErrorKind::InvalidData, why.to_string())
        };
        let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| invalid(&error))?;
        let leaf = chain
            .first()
            .ok_or_else(|| invalid(&"the file has no certificate"))?;
        let parsed = Certificate::from_der(leaf).map_err(|error| invalid(&error))?;
        let validity = &parsed.tbs_certificate.validity;
        let validity = Validity {
            not_before_at: validity.not_before.to_unix_duration().as_secs(),
            not_after_at: validity.not_after.to_unix_duration().as_secs(),
        };
        let window_id = window_id(&parsed);
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|error| invalid(&error))?;
        // This fails if the key does not belong to the certificate.
        let key = CertifiedKey::from_der(chain, key, &default_provider());
        Ok(Self {
            key: Arc::new(key.map_err(|error| invalid(&error))?),
            validity,
            window_id,
        })
    }
}

/// Returns the common name of the root that a chain leads to: the issuer of its last certificate.
pub(crate) fn root_name(pem: &str) -> Option<String> {
    let last = CertificateDer::pem_slice_iter(pem.as_bytes())
        .last()?
        .ok()?;
    let certificate = Certificate::from_der(&last).ok()?;
    let issuer = &certificate.tbs_certificate.issuer.0;
    let mut attributes = issuer.iter().flat_map(|part| part.0.iter());
    let name = attributes.find(|attribute| attribute.oid == COMMON_NAME)?;
    // UTF8String and PrintableString, the types of RFC 5280 §4.1.2.4, have the same bytes.
    String::from_utf8(name.value.value().to_vec()).ok()
}

/// Returns the identifier of a certificate (RFC 9773 §4.1): its authority's key and its serial number.
fn window_id(certificate: &Certificate) -> Option<Box<str>> {
    let certificate = &certificate.tbs_certificate;
    let mut extensions = certificate.extensions.iter().flatten();
    let authority = extensions.find(|extension| extension.extn_id == AUTHORITY_KEY_ID)?;
    let authority = AuthorityKeyIdentifier::from_der(authority.extn_value.as_bytes()).ok()?;
    let authority = URL_SAFE_NO_PAD.encode(authority.key_identifier?.as_bytes());
    let serial = URL_SAFE_NO_PAD.encode(certificate.serial_number.as_bytes());
    Some(format!("{authority}.{serial}").into())
}

/// `commonName` (X.520).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

const AUTHORITY_KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");

#[cfg(test)]
mod tests {
    use super::*;

    use rcgen::KeyPair;

    use crate::answers::placeholder;

    fn key(subject: &str) -> Arc<CertifiedKey> {
        let key = KeyPair::generate().expect("a key");
        Arc::new(placeholder(subject, &key).expect("a certificate"))
    }

    fn insert(table: &mut KeyTable, name: &str, key: &Arc<CertifiedKey>, is_issued: bool) {
        let key = Arc::clone(key);
        let name = name.parse().expect("the name is valid");
        table.insert(&name, TableKey { key, is_issued });
    }

    #[test]
    fn a_name_has_its_own_certificate_or_that_of_the_wildcard_above() {
        let mut table = KeyTable::default();
        let names = [
            "a.example",
            "*.a.example",
            "b.a.example",
            "127.0.0.1",
            "::1",
        ];
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        for (name, key) in names.iter().zip(&keys) {
            insert(&mut table, name, key, true);
        }
        let index = |name: &str| {
            let found = table.of_name(name)?;
            keys.iter().position(|key| Arc::ptr_eq(key, found))
        };
        assert_eq!(index("a.example"), Some(0));
        assert_eq!(index("b.a.example"), Some(2));
        assert_eq!(index("c.a.example"), Some(1));
        assert_eq!(index("d.c.a.example"), None);
        assert_eq!(index("example"), None);
        let default = table.default.as_ref().expect("a default");
        assert!(Arc::ptr_eq(default, &keys[3]), "the first address");
        let renewed = key("127.0.0.1");
        insert(&mut table, "127.0.0.1", &renewed, true);
        assert!(Arc::ptr_eq(
            table.default.as_ref().expect("a default"),
            &renewed
        ));
    }

    #[test]
    fn another_certificate_becomes_the_default_when_the_default_is_removed() {
        let names = ["d.example", "c.example", "*.b.example", "::1", "10.0.0.1"];
        let keys = names.map(key);
        let mut table = KeyTable::default();
        for (name, key) in names.iter().zip(&keys) {
            insert(&mut table, name, key, true);
        }
        let removals = [
            ("c.example", Some("::1")),
            ("::1", Some("10.0.0.1")),
            ("10.0.0.1", Some("d.example")),
            ("d.example", Some("*.b.example")),
            ("*.b.example", None),
        ];
        for (removed, expected) in removals {
            table.remove(&removed.parse().expect("the name is valid"));
            let default = table.default_key(None).map(|default| {
                let index = keys.iter().position(|key| Arc::ptr_eq(key, default));
                names[index.expect("a key of this table")]
            });
            assert_eq!(default, expected, "{removed}");
        }
        let new = key("d.example");
        insert(&mut table, "d.example", &new, true);
        let address = key("10.0.0.1");
        insert(&mut table, "10.0.0.1", &address, true);
        assert!(Arc::ptr_eq(
            table.default_key(None).expect("a default"),
            &address
        ));
    }

    #[test]
    fn a_self_signed_certificate_is_used_only_if_no_other_one_answers() {
        let mut table = KeyTable::default();
        let [of_name, of_wildcard, issued] = ["b.a.example", "*.a.example", "*.a.example"].map(key);
        insert(&mut table, "b.a.example", &of_name, false);
        insert(&mut table, "*.a.example", &of_wildcard, false);
        let is = |found: Option<&Arc<CertifiedKey>>, key| {
            found.is_some_and(|found| Arc::ptr_eq(found, key))
        };
        assert!(table.of_name("b.a.example").is_none());
        assert!(table.of_name("c.a.example").is_none());
        assert!(is(table.default_key(Some("b.a.example")), &of_name));
        assert!(is(table.default_key(Some("c.a.example")), &of_wildcard));
        assert!(is(table.default_key(Some("example")), &of_name));
        assert!(is(table.default_key(None), &of_name));
        insert(&mut table, "*.a.example", &issued, true);
        assert!(is(table.of_name("b.a.example"), &issued));
    }

    /// The identifier of RFC 9773 §4.1, whose serial number has its highest bit set.
    #[test]
    fn the_identifier_of_a_certificate_is_that_of_the_rfc() {
        use rcgen::{CertificateParams, IsCa, Issuer, KeyIdMethod, SerialNumber};

        const AUTHORITY: [u8; 20] = [
            0x69, 0x88, 0x5b, 0x6b, 0x87, 0x46, 0x40, 0x41, 0xe1, 0xb3, 0x7b, 0x84, 0x7b, 0xa0,
            0xae, 0x2c, 0xde, 0x01, 0xc8, 0xd4,
        ];
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.key_identifier_method = KeyIdMethod::PreSpecified(AUTHORITY.to_vec());
        let issuer = Issuer::new(authority, KeyPair::generate().expect("a key"));
        let mut params = CertificateParams::new(["a.example".to_owned()]).expect("a name");
        params.serial_number = Some(SerialNumber::from_slice(&[0x87, 0x65, 0x43, 0x21]));
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &issuer).expect("signed");
        let pem = format!("{}{}", key.serialize_pem(), signed.pem());
        let stored = StoredCertificate::parse(pem.as_bytes()).expect("valid");
        assert_eq!(
            stored.window_id.as_deref(),
            Some("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE")
        );
        let other = KeyPair::generate().expect("a key");
        let pem = format!("{}{}", other.serialize_pem(), signed.pem());
        StoredCertificate::parse(pem.as_bytes()).expect_err("the key of another certificate");
    }
}
