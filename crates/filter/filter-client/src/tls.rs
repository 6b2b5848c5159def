//! TLS connections to an `https` publisher.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio_rustls::TlsConnector;

use crate::config::FilterConfig;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read, has no certificate, or has a certificate that is not a valid root.
    #[error("{} is not a PEM file of valid root certificates", .path.display())]
    Roots {
        /// The path of the file.
        path: PathBuf,
    },
    /// The system has no root certificates, so no publisher could be verified.
    #[error("the system has no root certificates; install ca-certificates or configure a file")]
    NoSystemRoots,
    /// The URL's host is not valid as a server name.
    #[error("`{name}` is not a host name or IP address")]
    Name {
        /// The host.
        name: String,
    },
    /// The crypto provider does not support the protocol versions.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

/// Returns the connector and the server name for TLS. Returns `None` for plain HTTP.
pub(crate) fn connector(
    config: &FilterConfig,
) -> Result<Option<(TlsConnector, ServerName<'static>)>, TlsError> {
    if !config.url.tls {
        return Ok(None);
    }
    let name = config.url.host.clone();
    let server_name = ServerName::try_from(name.clone()).map_err(|_| TlsError::Name { name })?;
    let client = client_config(config.roots.as_deref())?;
    Ok(Some((TlsConnector::from(Arc::new(client)), server_name)))
}

/// Returns the configuration of a client of HTTP/1.1. The server's certificate must chain to a root certificate of the
/// PEM file `roots_file`, or of the system without a file.
pub fn client_config(roots_file: Option<&Path>) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_root_certificates(roots(roots_file)?)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(client)
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let Some(path) = file else {
        // The system's store may contain certificates that rustls cannot parse; the others are used.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if store.is_empty() {
            return Err(TlsError::NoSystemRoots);
        }
        return Ok(store);
    };
    let certificates = CertificateDer::pem_file_iter(path);
    let unusable = || TlsError::Roots {
        path: path.to_owned(),
    };
    for certificate in certificates.map_err(|_| unusable())? {
        let added = certificate
            .ok()
            .and_then(|certificate| store.add(certificate).ok());
        added.ok_or_else(unusable)?;
    }
    if store.is_empty() {
        return Err(unusable());
    }
    Ok(store)
}
