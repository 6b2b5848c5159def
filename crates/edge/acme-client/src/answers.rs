//! The published answers to challenges.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The answers that are published now. Threads of the edge read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(Arc<RwLock<Published>>);

#[derive(Debug, Default)]
struct Published {
    /// The key authorization of each token (RFC 8555 §8.3).
    http: HashMap<Box<str>, Box<str>>,
    /// The certificate for each name in SNI (RFC 8737 §3).
    tls: HashMap<Box<str>, Arc<CertifiedKey>>,
}

/// An answer. It is published until it is dropped.
#[derive(Debug)]
pub(crate) struct PublishedAnswer {
    answers: Answers,
    key: AnswerKey,
}

#[derive(Debug)]
enum AnswerKey {
    Http(Box<str>),
    Tls(Box<str>),
}

impl Drop for PublishedAnswer {
    fn drop(&mut self) {
        let mut published = self
            .answers
            .0
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        match &self.key {
            AnswerKey::Http(token) => _ = published.http.remove(token),
            AnswerKey::Tls(name) => _ = published.tls.remove(name),
        }
    }
}

impl Answers {
    pub(crate) fn publish_http(&self, token: &str, authorization: &str) -> PublishedAnswer {
        let mut published = self.0.write().unwrap_or_else(PoisonError::into_inner);
        published.http.insert(token.into(), authorization.into());
        self.published(AnswerKey::Http(token.into()))
    }

    /// `name` is the name in SNI, `subject` the name or address in the certificate.
    pub(crate) fn publish_tls(
        &self,
        name: &str,
        subject: &str,
        digest: &[u8],
    ) -> Result<PublishedAnswer, CertificateError> {
        let key = Arc::new(validation_key(subject, digest)?);
        let mut published = self.0.write().unwrap_or_else(PoisonError::into_inner);
        published.tls.insert(name.into(), key);
        Ok(self.published(AnswerKey::Tls(name.into())))
    }

    fn published(&self, key: AnswerKey) -> PublishedAnswer {
        PublishedAnswer {
            answers: self.clone(),
            key,
        }
    }

    /// Returns the key authorization of a token.
    pub(crate) fn http(&self, token: &str) -> Option<Box<str>> {
        let published = self.0.read().unwrap_or_else(PoisonError::into_inner);
        published.http.get(token).cloned()
    }

    /// Returns the certificate that answers a challenge for this name in SNI.
    pub(crate) fn tls(&self, name: &str) -> Option<Arc<CertifiedKey>> {
        let published = self.0.read().unwrap_or_else(PoisonError::into_inner);
        published.tls.get(name).cloned()
    }
}

/// The reason why a certificate cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CertificateError {
    #[error("the certificate cannot be made")]
    Make(#[from] rcgen::Error),
    #[error("the certificate cannot be used")]
    Use(#[from] rustls::Error),
}

/// Returns the certificate of a TLS-ALPN-01 challenge: self-signed, with the digest of the key authorization
/// (RFC 8737 §3).
fn validation_key(subject: &str, digest: &[u8]) -> Result<CertifiedKey, CertificateError> {
    let mut params = CertificateParams::new([subject.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    self_signed(&params, &KeyPair::generate()?)
}

/// Returns a certificate for a name that has none yet, so that the port answers handshakes.
pub(crate) fn placeholder(subject: &str, key: &KeyPair) -> Result<CertifiedKey, CertificateError> {
    self_signed(&CertificateParams::new([subject.to_owned()])?, key)
}

fn self_signed(
    params: &CertificateParams,
    key: &KeyPair,
) -> Result<CertifiedKey, CertificateError> {
    let certificate = params.self_signed(key)?;
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = default_provider().key_provider.load_private_key(key)?;
    // `from_der` parses the certificate, and refuses the critical extension of RFC 8737.
    Ok(CertifiedKey::new(chain, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_published_until_it_is_dropped() {
        let answers = Answers::default();
        let http = answers.publish_http("token", "token.thumbprint");
        assert_eq!(answers.http("token").as_deref(), Some("token.thumbprint"));
        assert_eq!(answers.http("other"), None);
        drop(http);
        assert_eq!(answers.http("token"), None);
        let name = "1.0.0.127.in-addr.arpa";
        let tls = answers
            .publish_tls(name, "127.0.0.1", &[7; 32])
            .expect("the certificate is made");
        assert!(answers.tls(name).is_some());
        drop(tls);
        assert!(answers.tls(name).is_none());
    }
}
