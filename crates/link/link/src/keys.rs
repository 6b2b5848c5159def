//! The keys of an endpoint: the certificate of a private CA, its private key, and the *store key*, which is the key of
//! chunk hashes.
//!
//! No public CA is trusted: an endpoint is accepted if it has a certificate of the link's own CA. The gateway has a
//! server certificate and each edge a client certificate, so an edge cannot impersonate the gateway. Only TLS 1.3 is
//! used, and AES-128-GCM is preferred, because processors have instructions for it.
//!
//! A running endpoint reads its folder again when a file changes ([`Keys::refresh`]). Connections that are made later
//! use the new certificate, and accept the CAs of the new `ca.pem`.

mod folder;
mod verifier;

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use thiserror::Error;

use edgeward_dedup::id::IdKey;

use crate::deny::{self, DenyList};
use crate::identity::{GATEWAY_NAME, Identity};

pub(crate) use folder::date;
pub use folder::{Certificate, KeyFolder, KeyFolderError, generate_keys};
pub(crate) use verifier::Presented;

/// The TLS keys of an endpoint. Clones share the keys, and see the new ones when one of them reads the folder again.
#[derive(Clone, Debug)]
pub struct Keys(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    loaded: Arc<LoadedKeys>,
    /// The versions of [`FILES`] when they were last read.
    versions: [deny::Version; 3],
    /// The time of the last warning that the certificate expires soon.
    warned_at: Option<Instant>,
}

/// One reading of the folder.
pub(crate) struct LoadedKeys {
    verifier: Arc<dyn ClientCertVerifier>,
    key: Arc<SingleCertAndKey>,
    provider: Arc<CryptoProvider>,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) identity: Identity,
}

impl std::fmt::Debug for LoadedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedKeys")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Why the keys of an endpoint cannot be loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeysError {
    /// A file cannot be read.
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
}

impl Keys {
    /// Reads the folder of an endpoint that [`generate_keys`] created: the certificates, and the key of chunk hashes.
    pub fn load(folder: &Path) -> Result<(Self, IdKey), KeysError> {
        let versions = versions(folder);
        let loaded = Arc::new(LoadedKeys::read(folder)?);
        let keys = Self(Arc::new(Shared {
            folder: folder.to_owned(),
            state: Mutex::new(State {
                loaded,
                versions,
                warned_at: None,
            }),
        }));
        keys.warn_before_expiry();
        Ok((keys, load_store_key(&folder.join(STORE_KEY))?))
    }

    /// Returns the identity of this endpoint.
    pub fn identity(&self) -> Identity {
        self.current().identity.clone()
    }

    pub(crate) fn current(&self) -> Arc<LoadedKeys> {
        Arc::clone(&self.state().loaded)
    }

    /// Reads the folder again if a file has changed. If the new files cannot be used, the last keys stay in use. Warns
    /// once a day if the certificate expires soon.
    pub fn refresh(&self) {
        let folder = &self.0.folder;
        let versions = versions(folder);
        if self.state().versions != versions {
            let read = LoadedKeys::read(folder);
            let mut state = self.state();
            match read {
                Ok(loaded) => {
                    tracing::info!(
                        folder = %folder.display(),
                        endpoint = loaded.identity.name(),
                        fingerprint = loaded.identity.fingerprint(),
                        "keys read again; new connections use them"
                    );
                    state.loaded = Arc::new(loaded);
                    state.warned_at = None;
                    state.versions = versions;
                }
                // A copy may be incomplete now, and complete at the next call: a certificate and its key are two
                // files. The error is logged once for each version of the files.
                Err(error) => {
                    state.versions = versions;
                    tracing::warn!(
                        folder = %folder.display(),
                        error = edgeward_types::with_causes(&error),
                        "the keys were not read again; the last ones stay in use"
                    );
                }
            }
        }
        self.warn_before_expiry();
    }

    fn warn_before_expiry(&self) {
        let mut state = self.state();
        let identity = &state.loaded.identity;
        let Some(days) = identity.days_left(SystemTime::now()) else {
            return;
        };
        let is_due = state
            .warned_at
            .is_none_or(|warned_at| warned_at.elapsed() > WARNING_INTERVAL);
        if days >= KeyFolder::WARNING_DAYS || !is_due {
            return;
        }
        let endpoint = identity.name();
        if days < 0 {
            tracing::error!(
                endpoint,
                "the certificate of this endpoint has expired: run `edgeward link keys renew {endpoint}` at the folder \
                 of the CA, and copy the endpoint's folder here"
            );
        } else {
            tracing::warn!(
                endpoint,
                days,
                "the certificate of this endpoint expires soon: run `edgeward link keys renew {endpoint}` at the \
                 folder of the CA, and copy the endpoint's folder here"
            );
        }
        state.warned_at = Some(Instant::now());
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadedKeys {
    fn read(folder: &Path) -> Result<Self, KeysError> {
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
        let identity = Identity::of(chain.first().expect("a file without one is refused"));
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
        let certified = CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider);
        let certified = certified.map_err(rejected)?;
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)
            .map_err(rejected)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(rejected)?;
        client.resumption = Resumption::disabled();
        client.alpn_protocols = vec![ALPN.to_vec()];
        client.max_fragment_size = Some(RECORD_BYTES + HEADER_BYTES);
        Ok(Self {
            verifier,
            key: Arc::new(certified.into()),
            provider,
            client: Arc::new(client),
            identity,
        })
    }

    /// Returns the configuration of one accepted connection. The handshake refuses the certificates of the deny list,
    /// and records in `presented` which certificate the peer has, for messages about a refused peer.
    pub(crate) fn server(
        &self,
        deny: Option<DenyList>,
        presented: &Presented,
    ) -> Result<ServerConfig, rustls::Error> {
        let verifier = presented.verifier(Arc::clone(&self.verifier), deny);
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(VERSIONS)?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::clone(&self.key) as _);
        // Session tickets are disabled: connections last for days, so resumption saves little, and the key of the
        // tickets would be one more secret.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.max_fragment_size = Some(RECORD_BYTES + HEADER_BYTES);
        Ok(server)
    }
}

/// Reads the folder again when it changes, until the task is aborted.
pub(crate) async fn watch_keys(keys: Keys) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let keys = keys.clone();
        _ = tokio::task::spawn_blocking(move || keys.refresh()).await;
    }
}

fn versions(folder: &Path) -> [deny::Version; 3] {
    FILES.map(|name| deny::version(&folder.join(name)))
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

const CA: &str = "ca.pem";
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";
const STORE_KEY: &str = "store.key";
const PRIVATE_KEY: &str = "private key";

/// The files that are read again when one of them changes.
const FILES: [&str; 3] = [CA, CERTIFICATE, KEY];

/// The interval at which a running endpoint checks whether its keys have changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The interval between two warnings that the certificate of this endpoint expires.
const WARNING_INTERVAL: Duration = Duration::from_secs(86400);

#[cfg(test)]
mod tests {
    use super::*;

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
