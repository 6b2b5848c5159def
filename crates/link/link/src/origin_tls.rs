//! The TLS client of an `https` origin behind a gateway.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use thiserror::Error;

use crate::label::HostPort;

/// The certificates of CAs that may sign the certificate of an origin. The certificate must be valid for the host of
/// the origin.
#[derive(Clone, Debug)]
pub struct OriginTls(Arc<ClientConfig>);

/// Why the certificates of CAs cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OriginTlsError {
    /// The file has no certificate, or one that is not valid.
    #[error("{} has no valid certificate of a CA", .0.display())]
    File(PathBuf, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The system has no certificates of CAs.
    #[error("this system has no certificates of CAs")]
    NoSystemRoots,
}

impl OriginTls {
    /// Trusts the CAs in a PEM file, or those of the system if no file is given.
    pub fn new(file: Option<&Path>) -> Result<Self, OriginTlsError> {
        let mut roots = RootCertStore::empty();
        match file {
            Some(path) => {
                let error = |source: Box<dyn std::error::Error + Send + Sync>| {
                    OriginTlsError::File(path.to_owned(), source)
                };
                let certificates = CertificateDer::pem_file_iter(path);
                for certificate in certificates.map_err(|source| error(source.into()))? {
                    let certificate = certificate.map_err(|source| error(source.into()))?;
                    let added = roots.add(certificate);
                    added.map_err(|source| error(source.into()))?;
                }
                if roots.is_empty() {
                    return Err(error("the file has no certificate".into()));
                }
            }
            None => {
                // Roots of the system that rustls cannot parse are skipped.
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    return Err(OriginTlsError::NoSystemRoots);
                }
            }
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }

    /// Returns the name that the certificate of an origin must have.
    pub(crate) fn name(address: &HostPort) -> io::Result<ServerName<'static>> {
        ServerName::try_from(address.host.clone()).map_err(io::Error::other)
    }
}
