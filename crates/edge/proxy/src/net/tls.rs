//! TLS configurations made from files of certificates and keys.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use edgeward_sites::HostTable;
use quinn::crypto::rustls::QuicServerConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::staple::{Staple, StapleError};
use super::tls_expiry::TlsExpiry;
use crate::config::{CertificateSource, CertificateWait, ListenerTls, OriginTls, SiteCertificate};

pub(crate) const ALPN_HTTP2: &[u8] = b"h2";
pub(crate) const ALPN_HTTP1: &[u8] = b"http/1.1";
pub(crate) const ALPN_HTTP3: &[u8] = b"h3";

/// The protocol of a TLS-ALPN-01 challenge (RFC 8737 §4), which ends with its handshake.
pub(crate) const ALPN_CHALLENGE: &[u8] = b"acme-tls/1";

/// The protocols of listeners.
pub(crate) const ALPN_OF_CLIENTS: [&[u8]; 3] = [ALPN_HTTP2, ALPN_HTTP1, ALPN_CHALLENGE];

/// The reason why a TLS configuration cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read, or is not PEM of the expected kind.
    #[error("cannot read a PEM {what} from {}", .path.display())]
    Pem {
        /// The expected kind of object.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the parser.
        source: rustls_pki_types::pem::Error,
    },
    /// The PEM file contains no certificate.
    #[error("{} holds no certificate", .path.display())]
    NoCertificate {
        /// The path of the file.
        path: PathBuf,
    },
    /// rustls refuses certificate and key, for example because the key does not belong to the certificate.
    #[error("certificate {} and key {} cannot be used together", .certificates.display(), .key.display())]
    Refused {
        /// The file of the certificate chain.
        certificates: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// The reason that rustls gives.
        source: rustls::Error,
    },
    /// The OCSP response cannot be sent with the certificate.
    #[error("the OCSP response {} cannot be used", .path.display())]
    Ocsp {
        /// The file of the response.
        path: PathBuf,
        /// The reason.
        source: StapleError,
    },
    /// The system has no root certificate, so no origin can be verified.
    #[error("the system has no root certificates; install ca-certificates or set origin.tls.roots")]
    NoSystemRoots,
    /// A certificate cannot be used as a root.
    #[error("{} holds a certificate that cannot be a root", .path.display())]
    Root {
        /// The path of the file.
        path: PathBuf,
        /// The reason that rustls gives.
        source: rustls::Error,
    },
    /// The authorities of the other nodes' certificates cannot be used.
    #[error("{} cannot verify the certificates of other nodes", .path.display())]
    Authorities {
        /// The path of the file.
        path: PathBuf,
        /// The reason that rustls gives.
        source: VerifierBuilderError,
    },
    /// The crypto provider does not support the protocol versions TLS 1.2 and 1.3.
    #[error("TLS cannot be set up")]
    Setup(#[source] rustls::Error),
    /// The crypto provider does not support the cipher of the first packets of QUIC (RFC 9001 §5.2).
    #[error("QUIC cannot be set up: TLS_AES_128_GCM_SHA256 is missing")]
    NoInitialCipher,
}

/// Returns the configuration of a listener that offers the protocols `alpn`.
pub(crate) fn server_config(
    keys: &Arc<ListenerKeys>,
    alpn: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(keys) as Arc<dyn ResolvesServerCert>);
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// Returns the configuration of the listener for other nodes of a fleet. They speak HTTP/2, and have a certificate of
/// one of the authorities.
pub(crate) fn node_config(
    keys: &Arc<ListenerKeys>,
    authorities: &Path,
) -> Result<ServerConfig, TlsError> {
    let roots = Arc::new(roots(Some(authorities))?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
    let verifier = verifier.map_err(|source| TlsError::Authorities {
        path: authorities.to_owned(),
        source,
    })?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::clone(keys) as Arc<dyn ResolvesServerCert>);
    config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
    Ok(config)
}

/// Returns the configuration of a listener for HTTP/3. Clients send no early data (0-RTT), because rustls refuses it
/// by default.
pub(crate) fn quic_config(keys: &Arc<ListenerKeys>) -> Result<QuicServerConfig, TlsError> {
    let config = server_config(keys, &[ALPN_HTTP3])?;
    // Initial packets have a cipher of their own, which the provider has.
    QuicServerConfig::try_from(config).map_err(|_| TlsError::NoInitialCipher)
}

/// The certificates of sites with their keys, by host, and those that are renewed while the edge runs.
#[derive(Debug, Default)]
pub(crate) struct SiteKeys {
    by_host: HostTable<Arc<ServedKey>>,
    expiry: TlsExpiry,
    renewed: Option<Arc<dyn CertificateSource>>,
}

impl SiteKeys {
    /// Reads the certificates and keys of all sites.
    pub(crate) fn read(
        certificates: &[SiteCertificate],
        renewed: Option<Arc<dyn CertificateSource>>,
    ) -> Result<Self, TlsError> {
        let mut keys = Self {
            renewed,
            ..Self::default()
        };
        for site in certificates {
            let key = Arc::new(ServedKey::read(&site.tls)?);
            keys.expiry = keys.expiry.earliest(key.expiry());
            for host in &site.hosts {
                keys.by_host.insert(host, Arc::clone(&key));
            }
        }
        Ok(keys)
    }
}

/// The certificates of a listener. Clients that name the host of a site by SNI get the certificate of the site, clients
/// that name a renewed certificate get that one, and other clients the certificate of the listener.
#[derive(Debug)]
pub(crate) struct ListenerKeys(RwLock<CurrentKeys>);

#[derive(Clone, Debug)]
struct CurrentKeys {
    own: Option<Arc<ServedKey>>,
    sites: Arc<SiteKeys>,
}

/// A certificate with its key, as handshakes use it.
#[derive(Debug)]
struct ServedKey {
    plain: Arc<CertifiedKey>,
    /// The same with an OCSP response, and the time until which the response may be sent, in seconds since 1970.
    stapled: Option<(Arc<CertifiedKey>, u64)>,
}

impl ServedKey {
    fn read(files: &ListenerTls) -> Result<Self, TlsError> {
        let plain = certified_key(files)?;
        let Some(path) = &files.ocsp else {
            return Ok(Self {
                plain: Arc::new(plain),
                stapled: None,
            });
        };
        let staple = Staple::read(path, &plain.cert[0]).map_err(|source| TlsError::Ocsp {
            path: path.clone(),
            source,
        })?;
        staple.warn(path, seconds_now());
        let stapled = CertifiedKey {
            ocsp: Some(staple.response),
            ..plain.clone()
        };
        Ok(Self {
            plain: Arc::new(plain),
            stapled: Some((Arc::new(stapled), staple.expires_at)),
        })
    }

    /// Returns the certificate for a handshake at `now`, in seconds since 1970.
    fn at(&self, now: u64) -> &Arc<CertifiedKey> {
        match &self.stapled {
            Some((stapled, expires_at)) if now < *expires_at => stapled,
            _ => &self.plain,
        }
    }

    fn expiry(&self) -> TlsExpiry {
        let ocsp_at = self.stapled.as_ref().map(|(_, expires_at)| *expires_at);
        let ocsp_at = ocsp_at.filter(|expires_at| *expires_at < u64::MAX);
        TlsExpiry::of(&self.plain.cert[0], ocsp_at)
    }
}

fn seconds_now() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since_1970.unwrap_or_default().as_secs()
}

impl ListenerKeys {
    /// Without files, the listener has no certificate of its own.
    pub(crate) fn read(
        files: Option<&ListenerTls>,
        sites: &Arc<SiteKeys>,
    ) -> Result<Self, TlsError> {
        Ok(Self(RwLock::new(CurrentKeys {
            own: files.map(ServedKey::read).transpose()?.map(Arc::new),
            sites: Arc::clone(sites),
        })))
    }

    /// Returns when the first certificate and the first OCSP response expire.
    pub(crate) fn expiry(&self) -> TlsExpiry {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let own = keys.own.as_ref().map(|own| own.expiry());
        own.unwrap_or_default().earliest(keys.sites.expiry)
    }

    /// Returns true if handshakes may wait for certificates: the listener has none of its own.
    pub(crate) fn is_on_demand(&self) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let renewed = keys.sites.renewed.as_ref();
        keys.own.is_none() && renewed.is_some_and(|renewed| renewed.is_on_demand())
    }

    /// Demands a certificate for the name that a client sends. `None` if the name has one, or cannot get one.
    pub(crate) fn demand(&self, hello: &ClientHello<'_>) -> Option<CertificateWait> {
        // The issuer validates a name while a client waits for it.
        if is_challenge(hello) {
            return None;
        }
        let name = hello.server_name()?;
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_of_site = keys.sites.by_host.get(name.as_bytes()).is_some();
        if is_of_site || keys.own.is_some() {
            return None;
        }
        keys.sites.renewed.as_ref()?.demand(name)
    }

    /// Replaces the certificates. Connections under way keep theirs.
    pub(crate) fn replace(&self, new: Self) {
        let new = new.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
    }
}

impl ResolvesServerCert for ListenerKeys {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let renewed = keys.sites.renewed.as_ref();
        // rustls has checked the name and converted it to lower case.
        let name = hello.server_name();
        if is_challenge(&hello) {
            return renewed?.of_challenge(name?);
        }
        if let Some(of_site) = name.and_then(|name| keys.sites.by_host.get(name.as_bytes())) {
            return Some(Arc::clone(of_site.at(seconds_now())));
        }
        let of_name = || renewed?.of_name(name?);
        let own = || Some(Arc::clone(keys.own.as_ref()?.at(seconds_now())));
        of_name()
            .or_else(own)
            .or_else(|| renewed?.default_key(name))
    }
}

/// Returns true if a client validates a name: it then offers the protocol of the challenge alone (RFC 8737 §3).
fn is_challenge(hello: &ClientHello<'_>) -> bool {
    let mut protocols = hello.alpn().into_iter().flatten();
    protocols.next() == Some(ALPN_CHALLENGE) && protocols.next().is_none()
}

fn certified_key(files: &ListenerTls) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&files.certificates)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::Pem {
        what: "private key",
        path: files.key.clone(),
        source,
    })?;
    let key = CertifiedKey::from_der(chain, key, &provider());
    key.map_err(|source| TlsError::Refused {
        certificates: files.certificates.clone(),
        key: files.key.clone(),
        source,
    })
}

/// Returns the configuration of connections to an origin. Each connection offers the protocols `alpn`.
pub(crate) fn client_config(tls: &OriginTls, alpn: &[&[u8]]) -> Result<ClientConfig, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let builder = if tls.verify {
        builder.with_root_certificates(roots(tls.roots.as_deref())?)
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
    };
    let mut config = match &tls.client {
        None => builder.with_no_client_auth(),
        Some(files) => builder
            .with_client_auth_cert(certificates(&files.certificates)?, key(&files.key)?)
            .map_err(|source| TlsError::Refused {
                certificates: files.certificates.clone(),
                key: files.key.clone(),
                source,
            })?,
    };
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::Pem {
        what: "private key",
        path: path.to_owned(),
        source,
    })
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
            // Roots of the system that rustls cannot parse are skipped.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(TlsError::NoSystemRoots);
            }
        }
    }
    Ok(store)
}

/// The verifier for `verify = false`: accepts any certificate, but verifies that the peer has the certificate's key.
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

#[cfg(test)]
mod tests {
    use rustls::NamedGroup;

    use super::*;

    #[test]
    fn the_preferred_key_exchange_resists_quantum_computers() {
        let names: Vec<_> = provider()
            .kx_groups
            .iter()
            .map(|group| group.name())
            .collect();
        assert_eq!(names[0], NamedGroup::X25519MLKEM768);
        assert!(names.contains(&NamedGroup::X25519), "{names:?}");
    }
}
