//! A self-signed certificate for a TLS listener.

use std::path::PathBuf;

use edgeward_proxy::config::ListenerTls;

/// A certificate and its key in files.
pub(crate) struct SelfSigned {
    _dir: tempfile::TempDir,
    certificate: PathBuf,
    key: PathBuf,
}

impl SelfSigned {
    /// Generates a certificate for `localhost` and `127.0.0.1`.
    pub(crate) fn new() -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let generated =
            rcgen::generate_simple_self_signed(names).expect("the certificate is valid");
        let dir = tempfile::tempdir().expect("the folder can be created");
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        std::fs::write(&certificate, generated.cert.pem()).expect("the file can be written");
        std::fs::write(&key, generated.signing_key.serialize_pem())
            .expect("the file can be written");
        Self {
            _dir: dir,
            certificate,
            key,
        }
    }

    /// Returns the files for the configuration of a listener.
    pub(crate) fn files(&self) -> ListenerTls {
        ListenerTls {
            certificates: self.certificate.clone(),
            key: self.key.clone(),
            ocsp: None,
        }
    }
}
