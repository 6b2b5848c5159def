//! Takes the certificates of certbot's folder over.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use edgeward_acme::Name;
use rustls_pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use crate::certificates::StoredCertificate;
use crate::load::certificate_path;
use crate::settings::AcmeSettings;
use crate::store::{FolderStore, StateStore as _};

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The certificates of certbot.
    pub certificates: Vec<ImportedCertificate>,
    /// The names that still have no certificate.
    pub missing: Vec<Name>,
}

/// A certificate of certbot, and the names that use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedCertificate {
    /// The name of its folder in `live`.
    pub lineage: String,
    /// The names to which this certificate was copied.
    pub names: Vec<Name>,
    /// The reason why it cannot be used.
    pub error: Option<String>,
}

/// The reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The folder has no certificates of certbot.
    #[error("{} cannot be read: it must be the folder of certbot, such as /etc/letsencrypt", .path.display())]
    Folder {
        /// The folder `live`.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another process orders certificates.
    #[error("an edge uses the folder of the certificates: stop it, import, and start it again")]
    InUse,
    /// The folder of the state cannot be written.
    #[error("the folder of the certificates cannot be written")]
    State(#[source] io::Error),
}

/// Copies the certificates in `folder/live` for the names of `settings` that they are issued for, unless the state has
/// one that ends later. The account is not taken over: certbot's keys are RSA keys as a rule.
pub fn import_certbot(settings: &AcmeSettings, folder: &Path) -> Result<Import, ImportError> {
    let store = FolderStore::new(&settings.folder);
    let _lease = store
        .lease()
        .map_err(ImportError::State)?
        .ok_or(ImportError::InUse)?;
    let path = folder.join("live");
    let entries = fs::read_dir(&path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|source| ImportError::Folder {
        path: path.clone(),
        source,
    })?;
    let mut imported = Vec::new();
    for lineage in entries
        .iter()
        .map(fs::DirEntry::path)
        .filter(|path| path.is_dir())
    {
        let mut result = ImportedCertificate {
            lineage: lineage
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            names: Vec::new(),
            error: None,
        };
        match read(&lineage) {
            Ok((pem, stored, subjects)) => {
                for name in settings.names().filter(|name| subjects.contains(name)) {
                    let path = certificate_path(name);
                    let present = store.load(&path).map_err(ImportError::State)?;
                    let present = present.and_then(|pem| StoredCertificate::parse(&pem).ok());
                    let end = present.map_or(0, |present| present.validity.not_after_at);
                    if end < stored.validity.not_after_at {
                        store.store(&path, &pem).map_err(ImportError::State)?;
                        result.names.push(name.clone());
                    }
                }
            }
            Err(error) => result.error = Some(error.to_string()),
        }
        imported.push(result);
    }
    imported.sort_by(|a, b| a.lineage.cmp(&b.lineage));
    let mut missing = Vec::new();
    for name in settings.names() {
        if store
            .load(&certificate_path(name))
            .map_err(ImportError::State)?
            .is_none()
        {
            missing.push(name.clone());
        }
    }
    Ok(Import {
        certificates: imported,
        missing,
    })
}

/// Reads the key and the chain of a lineage, and the names for which the certificate is issued.
fn read(lineage: &Path) -> io::Result<(Vec<u8>, StoredCertificate, Vec<Name>)> {
    let mut pem = fs::read(lineage.join("privkey.pem"))?;
    pem.extend_from_slice(b"\n");
    pem.extend_from_slice(&fs::read(lineage.join("fullchain.pem"))?);
    let stored = StoredCertificate::parse(&pem)?;
    let subjects = subjects(&stored.key.cert[0]);
    Ok((pem, stored, subjects))
}

/// Returns the names and addresses of a certificate.
fn subjects(certificate: &CertificateDer<'_>) -> Vec<Name> {
    let Ok(certificate) = Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let Ok(Some((_, alternatives))) = certificate.tbs_certificate.get::<SubjectAltName>() else {
        return Vec::new();
    };
    let name = |general: &GeneralName| match general {
        GeneralName::DnsName(name) => name.as_str().parse().ok(),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            let v6 = || <[u8; 16]>::try_from(bytes).map(IpAddr::from);
            v4.or_else(|_| v6()).ok().map(Name::Ip)
        }
        _ => None,
    };
    alternatives.0.iter().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::symlink;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use crate::settings::NameGroup;
    use crate::{Challenge, IssuerSettings};

    /// Writes a lineage as certbot does: files in `archive`, and links to them in `live`.
    fn write_lineage(folder: &Path, lineage: &str, names: &[&str], end_year: i32) {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("valid names");
        params.not_after = date_time_ymd(end_year, 1, 1);
        let certificate = params.self_signed(&key).expect("a certificate");
        let (archive, live) = (
            folder.join("archive").join(lineage),
            folder.join("live").join(lineage),
        );
        fs::create_dir_all(&archive).expect("made");
        fs::create_dir_all(&live).expect("made");
        for (file, text) in [
            ("privkey", key.serialize_pem()),
            ("fullchain", certificate.pem()),
        ] {
            fs::write(archive.join(format!("{file}1.pem")), text).expect("written");
            let target = format!("../../archive/{lineage}/{file}1.pem");
            symlink(target, live.join(format!("{file}.pem"))).expect("linked");
        }
    }

    fn settings(folder: &Path, names: &[&str]) -> AcmeSettings {
        AcmeSettings {
            groups: vec![NameGroup {
                names: names
                    .iter()
                    .map(|name| name.parse().expect("valid"))
                    .collect(),
                issuers: vec![IssuerSettings {
                    directory: "https://127.0.0.1:9/dir".into(),
                    binding: None,
                }],
                contacts: Vec::new(),
                challenge: Challenge::Http,
                profile: None,
                preferred_chain: None,
                roots: None,
            }],
            folder: folder.join("state"),
            limits: Default::default(),
            on_demand: None,
        }
    }

    #[test]
    fn the_certificate_that_ends_last_is_imported_for_each_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let certbot = folder.path().join("letsencrypt");
        write_lineage(
            &certbot,
            "a.example",
            &["a.example", "www.a.example", "192.0.2.1"],
            2090,
        );
        write_lineage(
            &certbot,
            "a.example-0001",
            &["a.example", "*.b.example"],
            2080,
        );
        fs::create_dir_all(certbot.join("live/broken")).expect("made");
        fs::write(certbot.join("live/README"), "certbot").expect("written");
        let settings = settings(
            folder.path(),
            &["a.example", "*.b.example", "192.0.2.1", "c.example"],
        );
        let mut names: Vec<(String, Vec<String>)> = Vec::new();
        let import = import_certbot(&settings, &certbot).expect("imported");
        assert_eq!(import.missing, ["c.example".parse().expect("valid")]);
        for imported in import.certificates {
            assert_eq!(imported.error.is_some(), imported.lineage == "broken");
            names.push((
                imported.lineage,
                imported.names.iter().map(Name::to_string).collect(),
            ));
        }
        let texts = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        // The order of folders is arbitrary, so the other certificate of a.example may have been imported first.
        names
            .iter_mut()
            .for_each(|(_, names)| names.retain(|name| name != "a.example"));
        assert_eq!(
            names,
            [
                ("a.example".to_owned(), texts(&["192.0.2.1"])),
                ("a.example-0001".to_owned(), texts(&["*.b.example"])),
                ("broken".to_owned(), texts(&[])),
            ]
        );
        let store = FolderStore::new(&settings.folder);
        let pem = store
            .load("certificates/a.example.pem")
            .expect("readable")
            .expect("imported");
        let stored = StoredCertificate::parse(&pem).expect("valid");
        assert_eq!(stored.validity.not_after_at, 3_786_912_000);
        let again = import_certbot(&settings, &certbot).expect("imported");
        assert!(
            again
                .certificates
                .iter()
                .all(|imported| imported.names.is_empty())
        );
    }

    #[test]
    fn nothing_is_imported_while_an_edge_has_the_lease() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = settings(folder.path(), &["a.example"]);
        let missing = import_certbot(&settings, folder.path());
        assert!(matches!(missing, Err(ImportError::Folder { .. })));
        let _lease = FolderStore::new(&settings.folder).lease().expect("tried");
        let refused = import_certbot(&settings, folder.path());
        assert!(matches!(refused, Err(ImportError::InUse)));
    }
}
