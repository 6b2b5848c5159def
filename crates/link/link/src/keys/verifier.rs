//! Verifies the certificate of a connecting edge, and records it.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::deny::DenyList;
use crate::identity::Identity;

/// The certificate that the peer of one connection has presented, also if the handshake refused it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Presented(Arc<Mutex<Option<Identity>>>);

impl Presented {
    /// Returns the identity in the presented certificate.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let presented = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        presented.clone()
    }

    /// Returns a verifier that accepts the certificates that `inner` accepts and `deny` does not contain.
    pub(super) fn verifier(
        &self,
        inner: Arc<dyn ClientCertVerifier>,
        deny: Option<DenyList>,
    ) -> Verifier {
        Verifier {
            inner,
            deny,
            presented: self.clone(),
        }
    }
}

/// The check of the deny list belongs to the handshake, because the edge then gets the TLS alert
/// `certificate_revoked`, which states the reason.
#[derive(Debug)]
pub(super) struct Verifier {
    inner: Arc<dyn ClientCertVerifier>,
    deny: Option<DenyList>,
    presented: Presented,
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let identity = Identity::of(end_entity);
        let is_denied = self
            .deny
            .as_ref()
            .is_some_and(|deny| deny.denies(identity.fingerprint_bytes()));
        let presented = &self.presented.0;
        *presented.lock().unwrap_or_else(PoisonError::into_inner) = Some(identity);
        let verified = self
            .inner
            .verify_client_cert(end_entity, intermediates, now)?;
        if is_denied {
            return Err(CertificateError::Revoked.into());
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
