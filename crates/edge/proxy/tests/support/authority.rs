//! An authority that issues certificates of nodes.

use std::path::PathBuf;

use edgeward_proxy::config::CertificateFiles;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// An authority with its certificate in a file.
pub(crate) struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate for `127.0.0.1`, and its key, in files.
pub(crate) struct Issued {
    folder: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "fleet");
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("the file is written");
        Self { folder, issuer }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    pub(crate) fn issue(&self) -> Issued {
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let issued = Issued {
            folder: tempfile::tempdir().expect("a folder"),
        };
        let CertificateFiles {
            certificates,
            key: key_file,
        } = issued.files();
        std::fs::write(certificates, certificate.pem()).expect("the file is written");
        std::fs::write(key_file, key.serialize_pem()).expect("the file is written");
        issued
    }
}

impl Issued {
    pub(crate) fn files(&self) -> CertificateFiles {
        CertificateFiles {
            certificates: self.folder.path().join("node.pem"),
            key: self.folder.path().join("node.key"),
        }
    }
}
