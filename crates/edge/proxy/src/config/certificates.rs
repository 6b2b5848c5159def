//! The interface to certificates that are renewed while the edge runs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use rustls::sign::CertifiedKey;

/// Certificates that are renewed while the edge runs, and the answers to the challenges of their issuers. Handshakes
/// and requests call these methods, so they must not block.
pub trait CertificateSource: Send + Sync + fmt::Debug {
    /// Returns the issued certificate for a name in SNI, in lower case.
    fn of_name(&self, server_name: &str) -> Option<Arc<CertifiedKey>>;

    /// Returns the certificate if [`of_name`](Self::of_name) has none and the listener has none of its own: a self-signed
    /// one of the name, or that for clients that send no name or an unknown one.
    fn default_key(&self, server_name: Option<&str>) -> Option<Arc<CertifiedKey>>;

    /// Returns the certificate that answers a TLS-ALPN-01 challenge (RFC 8737 §3).
    fn of_challenge(&self, server_name: &str) -> Option<Arc<CertifiedKey>>;

    /// Returns the body that answers an HTTP-01 challenge (RFC 8555 §8.3).
    fn http_answer(&self, token: &str) -> Option<Box<str>>;

    /// Returns true if names get certificates when clients ask for them.
    fn is_on_demand(&self) -> bool;

    /// Demands a certificate for a name in SNI, in lower case, that has none. The future ends when the certificate is
    /// there, or when the client gets none. `None` if the handshake need not wait.
    fn demand(&self, server_name: &str) -> Option<CertificateWait>;

    /// Returns the state, for metrics and status.
    fn facts(&self) -> SourceFacts;
}

/// The wait for a certificate on demand. It is bounded.
pub type CertificateWait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The state of all certificates of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFacts {
    /// The certificates.
    pub certificates: Vec<RenewedCertificate>,
    /// Orders that were begun or continued.
    pub orders: u64,
    /// Certificates that were issued and stored.
    pub stored: u64,
    /// Failed orders by cause.
    pub failures: Vec<(&'static str, u64)>,
    /// True if this process orders certificates, and not another one with the same state.
    pub has_lease: bool,
    /// Handshakes for names that had no certificate, by their outcome.
    pub demands: Vec<(&'static str, u64)>,
    /// The names that were added because clients asked for them.
    pub names_on_demand: u64,
}

/// The state of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewedCertificate {
    /// The name for which it is issued.
    pub name: String,
    /// Its end, in seconds since 1970. `None`: it is not issued yet.
    pub not_after_at: Option<u64>,
    /// The time of the next order, in seconds since 1970. `None`: a limit forbids every order.
    pub next_order_at: Option<u64>,
    /// Failed orders since the last success.
    pub failures: u32,
}
