//! The identity of an endpoint: a private CA, a certificate for each endpoint, and the *store key*, which is the key of
//! chunk hashes.
//!
//! No public CA is trusted: an endpoint is accepted if it has a certificate of the link's own CA. The gateway has a
//! server certificate and each edge a client certificate, so an edge cannot impersonate the gateway. Only TLS 1.3 is
//! used, and AES-128-GCM is preferred, because processors have instructions for it.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use thiserror::Error;

use edgeward_dedup::id::IdKey;

use crate::deny;

/// The TLS configuration of an endpoint, as a server and as a client.
#[derive(Clone, Debug)]
pub struct Keys {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

/// Why keys cannot be loaded or generated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeysError {
    /// A file cannot be read or written.
    #[error("{} cannot be used", .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file does not contain what its name promises, for example a certificate.
    #[error("{} does not contain a {what}", .path.display())]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// The expected content, for example `certificate`.
        what: &'static str,
    },
    /// The certificate and the private key do not match.
    #[error("the certificate and key in {} cannot be used together", .path.display())]
    Refused {
        /// The folder.
        path: PathBuf,
        /// The error of the TLS library.
        source: rustls::Error,
    },
    /// The CA certificate is not valid.
    #[error("the CA in {} cannot be used", .path.display())]
    Authority {
        /// The folder.
        path: PathBuf,
        /// The error of the TLS library.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The certificates could not be created.
    #[error("certificates cannot be created")]
    Generate(#[from] rcgen::Error),
    /// The system's random number generator failed.
    #[error("cannot read the system's random number generator")]
    Random(#[source] io::Error),
}

impl Keys {
    /// Reads the folder of an endpoint that [`generate_keys`] created: the certificates, and the key of chunk hashes.
    pub fn load(folder: &Path) -> Result<(Self, IdKey), KeysError> {
        let authority = folder.join(CA);
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(&authority)? {
            roots
                .add(certificate)
                .map_err(|source| KeysError::Authority {
                    path: folder.to_owned(),
                    source: source.into(),
                })?;
        }
        let chain = read_certificates(&folder.join(CERTIFICATE))?;
        let key = folder.join(KEY);
        warn_if_readable_by_others(&key);
        let key = PrivateKeyDer::from_pem_file(&key)
            .map_err(|error| pem_error(&key, PRIVATE_KEY, error))?;
        let rejected = |source| KeysError::Refused {
            path: folder.to_owned(),
            source,
        };
        let roots = Arc::new(roots);
        let provider = crypto_provider();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let verifier = verifier.build().map_err(|source| KeysError::Authority {
            path: folder.to_owned(),
            source: source.into(),
        })?;
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)
            .map_err(rejected)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key.clone_key())
            .map_err(rejected)?;
        // Session tickets are disabled: connections last for days, so resumption saves little, and the key of the
        // tickets would be one more secret.
        server.send_tls13_tickets = 0;
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.max_fragment_size = Some(RECORD_BYTES + HEADER_BYTES);
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(VERSIONS)
            .map_err(rejected)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(rejected)?;
        client.resumption = rustls::client::Resumption::disabled();
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.max_fragment_size = Some(RECORD_BYTES + HEADER_BYTES);
        let keys = Self {
            server: Arc::new(server),
            client: Arc::new(client),
        };
        Ok((keys, load_store_key(&folder.join(STORE_KEY))?))
    }
}

/// Returns the name in the certificate of every gateway. It does not depend on the host name of the gateway.
pub(crate) fn gateway_name() -> ServerName<'static> {
    ServerName::try_from(GATEWAY_NAME).expect("the name is valid")
}

/// Returns the SHA-256 fingerprint of the first certificate in a file, in the format of a deny list.
pub fn certificate_fingerprint(path: &Path) -> Result<String, KeysError> {
    let chain = read_certificates(path)?;
    let first = chain
        .first()
        .expect("a file without a certificate is refused");
    Ok(edgeward_types::to_hex(&deny::fingerprint(first)))
}

/// Reads the key of chunk hashes: 64 hexadecimal digits.
pub fn load_store_key(path: &Path) -> Result<IdKey, KeysError> {
    let file = |source| KeysError::File {
        path: path.to_owned(),
        source,
    };
    warn_if_readable_by_others(path);
    let mut text = String::new();
    let opened = fs::File::open(path).map_err(file)?;
    opened.take(1024).read_to_string(&mut text).map_err(file)?;
    let digits = text.trim();
    let mut key = [0; 32];
    let invalid = || KeysError::Content {
        path: path.to_owned(),
        what: "store key of 64 hexadecimal digits",
    };
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(invalid());
    }
    for (byte, pair) in key.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| invalid())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
    }
    Ok(IdKey::new(key))
}

/// Creates a CA, and the folders `gateway/` and `edge/`, each with all files that [`Keys::load`] reads. The CA's
/// private key stays in `ca/`; it is needed only for certificates of further endpoints.
///
/// The certificates do not expire. If one of the files exists, the function fails and does not overwrite it.
pub fn generate_keys(folder: &Path) -> Result<(), KeysError> {
    let authority_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "edgeward link CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, &authority_key)?;
    let store_key = edgeward_types::to_hex(&crate::random::<32>().map_err(KeysError::Random)?);
    let authority_folder = folder.join("ca");
    make_folder(&authority_folder)?;
    write(&authority_folder.join(CA), &authority.pem(), false)?;
    write(
        &authority_folder.join(KEY),
        &authority_key.serialize_pem(),
        true,
    )?;
    let endpoints = [
        ("gateway", GATEWAY_NAME, ExtendedKeyUsagePurpose::ServerAuth),
        ("edge", EDGE_NAME, ExtendedKeyUsagePurpose::ClientAuth),
    ];
    for (endpoint, name, purpose) in endpoints {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        let certificate = params.signed_by(&key, &authority)?;
        let folder = folder.join(endpoint);
        make_folder(&folder)?;
        write(&folder.join(CA), &authority.pem(), false)?;
        write(&folder.join(CERTIFICATE), &certificate.pem(), false)?;
        write(&folder.join(KEY), &key.serialize_pem(), true)?;
        write(&folder.join(STORE_KEY), &format!("{store_key}\n"), true)?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> Result<(), KeysError> {
    fs::create_dir_all(path).map_err(|source| KeysError::File {
        path: path.to_owned(),
        source,
    })
}

fn write(path: &Path, text: &str, secret: bool) -> Result<(), KeysError> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(if secret { 0o600 } else { 0o644 })
        .open(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
    written.map_err(|source| KeysError::File {
        path: path.to_owned(),
        source,
    })
}

fn warn_if_readable_by_others(path: &Path) {
    let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "other users can read this key: run chmod 600");
    }
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeysError> {
    let read = |error| pem_error(path, "certificate", error);
    let chain = CertificateDer::pem_file_iter(path)
        .map_err(read)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(read)?;
    if chain.is_empty() {
        return Err(pem_error(
            path,
            "certificate",
            rustls_pki_types::pem::Error::NoItemsFound,
        ));
    }
    Ok(chain)
}

fn pem_error(path: &Path, what: &'static str, error: rustls_pki_types::pem::Error) -> KeysError {
    let path = path.to_owned();
    match error {
        rustls_pki_types::pem::Error::Io(source) => KeysError::File { path, source },
        _ => KeysError::Content { path, what },
    }
}

/// Returns AWS-LC with the cipher suites of TLS 1.3, AES with a key of 128 bits first: it is the fastest.
fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..aws_lc_rs::default_provider()
    })
}

/// The number of plaintext bytes in a TLS record. rustls allocates one vector to encrypt a record and one to decrypt
/// it. With header, content type and tag, the record has 14 KiB, jemalloc's largest small size class. jemalloc keeps
/// freed allocations of this class in a cache per thread, so they are usually still in the processor's cache.
/// Records of 16 KiB, the maximum, would be allocated from memory that all threads share.
pub(crate) const RECORD_BYTES: usize = (14 << 10) - HEADER_BYTES - 1 - 16;

/// The length of a record's header. Each record also adds a content type of 1 byte and a tag of 16 bytes (RFC 8446,
/// section 5.2). The header counts towards `max_fragment_size` of rustls.
const HEADER_BYTES: usize = 5;

static VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// The protocol name of the link in TLS. A server for another protocol is rejected even if its certificate is of the
/// same CA.
const ALPN: &[u8] = b"edgeward-link/1";

const GATEWAY_NAME: &str = "gateway.link.edgeward";
const EDGE_NAME: &str = "edge.link.edgeward";

const CA: &str = "ca.pem";
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";
const STORE_KEY: &str = "store.key";
const PRIVATE_KEY: &str = "private key";

#[cfg(test)]
mod tests {
    use super::*;

    /// Generated keys can be loaded, both endpoints compute the same chunk ids, secret files are readable by their
    /// owner only, and no file is overwritten.
    #[test]
    fn generated_keys_are_loaded() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        generate_keys(folder.path()).expect("the keys can be generated");
        let [gateway, edge] = ["gateway", "edge"].map(|endpoint| {
            let (_, store_key) =
                Keys::load(&folder.path().join(endpoint)).expect("the keys are valid");
            store_key.check()
        });
        assert_eq!(gateway, edge);
        for secret in ["ca/key.pem", "gateway/key.pem", "edge/store.key"] {
            let found = fs::metadata(folder.path().join(secret)).expect("the file exists");
            assert_eq!(found.permissions().mode() & 0o777, 0o600, "{secret}");
        }
        assert!(matches!(
            generate_keys(folder.path()),
            Err(KeysError::File { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists
        ));
    }

    #[test]
    fn store_keys_are_64_digits() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let path = folder.path().join("store.key");
        for (text, is_valid) in [
            ("ab".repeat(32), true),
            (format!("{}\n", "0F".repeat(32)), true),
            ("ab".repeat(31), false),
            ("+b".repeat(32), false),
            (String::new(), false),
        ] {
            fs::write(&path, &text).expect("the file can be written");
            assert_eq!(load_store_key(&path).is_ok(), is_valid, "{text:?}");
        }
    }
}
