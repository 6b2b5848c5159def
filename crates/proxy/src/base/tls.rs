//! Certificates and keys from files into what rustls needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::base::config::{ListenerTls, OriginTls};

pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
pub(crate) const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Why TLS cannot be had with these files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read, or holds something else.
    #[error("{} holds no PEM {what} that can be read", .path.display())]
    Pem {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        source: rustls_pki_types::pem::Error,
    },
    /// The file is fine and has none.
    #[error("{} holds no certificate", .path.display())]
    NoCertificate {
        /// Where none was found.
        path: PathBuf,
    },
    /// rustls refuses: the key is not the certificate's, say.
    #[error("certificate {} and key {} cannot be used together", .certificates.display(), .key.display())]
    Refused {
        /// The chain.
        certificates: PathBuf,
        /// The key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// No root certificate, so no origin could ever be believed.
    #[error("the system has no root certificates; install ca-certificates or set origin.tls.roots")]
    NoSystemRoots,
    /// A root that is none.
    #[error("{} holds a certificate that cannot be a root", .path.display())]
    Root {
        /// Where it stands.
        path: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// The crypto provider and the versions do not fit.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
}

/// For a listener: HTTP/2 or HTTP/1.1, as the client likes best.
pub(crate) fn server_config(files: &ListenerTls) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&files.certificates)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::Pem {
        what: "private key",
        path: files.key.clone(),
        source,
    })?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|source| TlsError::Refused {
            certificates: files.certificates.clone(),
            key: files.key.clone(),
            source,
        })?;
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec(), ALPN_HTTP1.to_vec()];
    Ok(config)
}

/// For an origin, offering these protocols.
pub(crate) fn client_config(tls: &OriginTls, alpn: &[&[u8]]) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let mut config = if tls.verify {
        builder
            .with_root_certificates(roots(tls.roots.as_deref())?)
            .with_no_client_auth()
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
            .with_no_client_auth()
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = |source| TlsError::Pem {
        what: "certificate",
        path: path.to_owned(),
        source,
    };
    let chain = CertificateDer::pem_file_iter(path)
        .map_err(pem)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(pem)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(chain)
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    match file {
        Some(path) => {
            for certificate in certificates(path)? {
                store.add(certificate).map_err(|source| TlsError::Root {
                    path: path.to_owned(),
                    source,
                })?;
            }
        }
        None => {
            // A system's store may hold roots rustls does not read; the others still count.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(TlsError::NoSystemRoots);
            }
        }
    }
    Ok(store)
}

/// `verify = false`: believes everyone, still insists that the peer owns the key it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
