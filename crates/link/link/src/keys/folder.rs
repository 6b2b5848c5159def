//! The folder of a link's CA, in which an operator creates, renews and revokes the certificates of endpoints.
//!
//! The folder has a folder `ca` with the CA, and one folder for each endpoint, with all files that [`Keys::load`]
//! reads. Only the folders of endpoints are copied to other machines. A copy of each certificate stays in `ca/issued`,
//! so that certificates can be listed and revoked after the folders of endpoints were removed.
//!
//! The certificate of the CA does not expire. The certificates of endpoints do.
//!
//! [`Keys::load`]: super::Keys::load

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use thiserror::Error;
use x509_cert::der::Decode as _;

use super::{CA, CERTIFICATE, KEY, KeysError, STORE_KEY, read_certificates};
use crate::deny::DenyList;
use crate::identity::{EndpointName, GATEWAY_NAME, Identity};

/// The folder of a link's CA.
#[derive(Clone, Debug)]
pub struct KeyFolder(PathBuf);

/// A certificate that the CA of a [`KeyFolder`] has signed.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The name of the endpoint, its fingerprint and its end.
    pub identity: Identity,
    /// True if the certificate is on the deny list of the folder.
    pub is_revoked: bool,
}

/// Why the operation on a [`KeyFolder`] failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KeyFolderError {
    /// A file cannot be read or written.
    #[error("{} cannot be used", .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file of the folder has the wrong content.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The folder has no CA.
    #[error("{} has no CA", .0.display())]
    NoAuthority(PathBuf),
    /// No folder of an endpoint has a store key.
    #[error("{} has no store key", .0.display())]
    NoStoreKey(PathBuf),
    /// The folder has a certificate with this name.
    #[error("an endpoint has the name `{0}` already")]
    NameTaken(EndpointName),
    /// The folder has no certificate with this name.
    #[error("no certificate has the name `{0}`")]
    UnknownName(EndpointName),
    /// A folder of an edge cannot have this name.
    #[error("`{0}` cannot be the name of an edge")]
    ReservedName(EndpointName),
    /// The certificate of a gateway cannot be revoked, because edges have no deny list.
    #[error("the certificate of `{0}` cannot be revoked: only gateways read the deny list")]
    NoEdge(EndpointName),
    /// The private key of the CA does not belong to a certificate in `ca.pem`.
    #[error("the CA in {} has another key", .0.display())]
    OtherAuthority(PathBuf),
    /// A certificate still in use was signed by the old CA.
    #[error("the certificate of `{0}` is signed by the old CA")]
    OldAuthorityInUse(String),
    /// The certificates could not be created.
    #[error("certificates cannot be created")]
    Generate(#[from] rcgen::Error),
    /// The system's random number generator failed.
    #[error("cannot read the system's random number generator")]
    Random(#[source] io::Error),
}

/// Creates a CA, and the folders `gateway/` and `edge/`, each with all files that [`Keys::load`] reads. The
/// certificates expire after [`KeyFolder::DAYS`].
///
/// If one of the files exists, the function fails and does not overwrite it.
///
/// [`Keys::load`]: super::Keys::load
pub fn generate_keys(folder: &Path) -> Result<(), KeyFolderError> {
    KeyFolder::create(folder, &[EndpointName::edge()], KeyFolder::DAYS).map(|_| ())
}

impl KeyFolder {
    /// The default validity of certificates in days. Three years are the usual life of a machine, and long enough that
    /// an operator who renews once a year is never late.
    pub const DAYS: u32 = 3 * 365;

    /// An endpoint warns if its certificate expires within this number of days.
    pub const WARNING_DAYS: i64 = 30;

    /// Creates the folder with a CA, a gateway, and the edges with these names.
    pub fn create(path: &Path, edges: &[EndpointName], days: u32) -> Result<Self, KeyFolderError> {
        let folder = Self(path.to_owned());
        edges.iter().try_for_each(check_edge_name)?;
        let authority = folder.0.join("ca");
        make_folder(&authority.join(ISSUED))?;
        let (certificate, key) = new_authority()?;
        write_new(&authority.join(CA), &certificate, 0o644)?;
        write_new(&authority.join(KEY), &key, 0o600)?;
        let store_key =
            edgeward_types::to_hex(&crate::random::<32>().map_err(KeyFolderError::Random)?);
        write_new(&authority.join(STORE_KEY), &format!("{store_key}\n"), 0o600)?;
        let gateway = GATEWAY.parse().expect("the name has only letters");
        folder.issue(&gateway, days, write_new)?;
        folder.write_deny_list(DENY_HEADER)?;
        for edge in edges {
            folder.add(edge, days)?;
        }
        Ok(folder)
    }

    /// Uses an existing folder.
    pub fn open(path: &Path) -> Result<Self, KeyFolderError> {
        if path.join("ca").join(CA).is_file() {
            Ok(Self(path.to_owned()))
        } else {
            Err(KeyFolderError::NoAuthority(path.to_owned()))
        }
    }

    /// Creates the folder of another edge.
    pub fn add(&self, edge: &EndpointName, days: u32) -> Result<(), KeyFolderError> {
        check_edge_name(edge)?;
        if self.0.join(edge.as_str()).exists() || !self.certificates_of(edge)?.is_empty() {
            return Err(KeyFolderError::NameTaken(edge.clone()));
        }
        self.issue(edge, days, write_new)
    }

    /// Creates a new key and certificate for an endpoint that has one, and writes them to its folder. The old
    /// certificate stays valid until it expires or is revoked. Returns the number of revoked certificates with this
    /// name, which stay revoked.
    pub fn renew(&self, endpoint: &EndpointName, days: u32) -> Result<usize, KeyFolderError> {
        let certificates = self.certificates_of(endpoint)?;
        if certificates.is_empty() {
            return Err(KeyFolderError::UnknownName(endpoint.clone()));
        }
        self.issue(endpoint, days, replace)?;
        let revoked = certificates.iter().filter(|known| known.is_revoked);
        Ok(revoked.count())
    }

    /// Adds the certificates of an edge to the deny list, and returns those that were not on it.
    pub fn revoke(&self, edge: &EndpointName) -> Result<Vec<Certificate>, KeyFolderError> {
        if edge.as_str() == GATEWAY {
            return Err(KeyFolderError::NoEdge(edge.clone()));
        }
        let certificates = self.certificates_of(edge)?;
        if certificates.is_empty() {
            return Err(KeyFolderError::UnknownName(edge.clone()));
        }
        let mut text = self.deny_list()?;
        // The last line of a list that was edited by hand may have no end. If it is a comment, a fingerprint appended
        // to it would not count.
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let today = date(now());
        let mut revoked = Vec::new();
        for certificate in certificates {
            if !certificate.is_revoked {
                let fingerprint = certificate.identity.fingerprint();
                text.push_str(&format!("{fingerprint}  # {edge}, revoked {today}\n"));
                revoked.push(certificate);
            }
        }
        self.write_deny_list(&text)?;
        Ok(revoked)
    }

    /// Returns all certificates that the folder knows, by name, the one that expires last first.
    pub fn certificates(&self) -> Result<Vec<Certificate>, KeyFolderError> {
        let mut files = Vec::new();
        let issued = self.0.join("ca").join(ISSUED);
        if issued.is_dir() {
            files.extend(entries(&issued)?);
        }
        // Earlier versions did not keep copies in `issued`.
        for folder in entries(&self.0)? {
            files.push(folder.join(CERTIFICATE));
        }
        let deny_list = DenyList::parse(&self.deny_list()?);
        let mut certificates: Vec<Certificate> = Vec::new();
        for file in files.iter().filter(|file| file.is_file()) {
            let chain = read_certificates(file)?;
            let identity = Identity::of(chain.first().expect("a file without one is refused"));
            let is_known = certificates
                .iter()
                .any(|known| known.identity.fingerprint() == identity.fingerprint());
            if !is_known {
                certificates.push(Certificate {
                    is_revoked: deny_list.contains(identity.fingerprint_bytes()),
                    identity,
                });
            }
        }
        certificates.sort_by_key(|certificate| {
            let identity = &certificate.identity;
            let expires_at = identity.expires_at().unwrap_or(u64::MAX);
            (identity.name(), std::cmp::Reverse(expires_at))
        });
        Ok(certificates)
    }

    /// Begins a change of the CA: creates a new one, which signs from now on, and writes both CAs to the folders of the
    /// endpoints. Endpoints that have both accept certificates of either.
    pub fn begin_new_authority(&self) -> Result<(), KeyFolderError> {
        let authority = self.0.join("ca");
        let (mut certificates, key) = new_authority()?;
        certificates.push_str(&self.read(&authority.join(CA))?);
        replace(&authority.join(CA), &certificates, 0o644)?;
        replace(&authority.join(KEY), &key, 0o600)?;
        self.write_authorities(&certificates)
    }

    /// Ends a change of the CA: endpoints accept only certificates of the new CA. Fails if the newest certificate of an
    /// endpoint is of the old one.
    pub fn end_new_authority(&self) -> Result<(), KeyFolderError> {
        let path = self.0.join("ca").join(CA);
        let authorities = read_certificates(&path)?;
        let newest = authorities.first().expect("a file without one is refused");
        for folder in self.endpoint_folders()? {
            let chain = read_certificates(&folder.join(CERTIFICATE))?;
            let certificate = chain.first().expect("a file without one is refused");
            if !is_signed_by(certificate, newest) {
                let name = Identity::of(certificate).name();
                return Err(KeyFolderError::OldAuthorityInUse(name));
            }
        }
        let text = self.read(&path)?;
        let end = text
            .find(PEM_END)
            .map_or(text.len(), |at| at + PEM_END.len());
        let newest = format!("{}\n", &text[..end]);
        replace(&path, &newest, 0o644)?;
        self.write_authorities(&newest)
    }

    /// Signs a certificate for an endpoint, and writes the files of its folder with `write`.
    fn issue(
        &self,
        name: &EndpointName,
        days: u32,
        write: fn(&Path, &str, u32) -> Result<(), KeyFolderError>,
    ) -> Result<(), KeyFolderError> {
        let authority = self.0.join("ca");
        let authorities = self.read(&authority.join(CA))?;
        let issuer = self.issuer()?;
        let is_gateway = name.as_str() == GATEWAY;
        let (dns_name, purpose) = if is_gateway {
            (GATEWAY_NAME.to_owned(), ExtendedKeyUsagePurpose::ServerAuth)
        } else {
            (name.dns_name(), ExtendedKeyUsagePurpose::ClientAuth)
        };
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![dns_name])?;
        let common_name = name.as_str();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        // The validity begins in 1975, the default of rcgen, because the clock of an endpoint may be slow.
        params.not_after =
            date_time_ymd(1970, 1, 1) + Duration::from_secs(now() + u64::from(days) * 86400);
        let certificate = params.signed_by(&key, &issuer)?;
        let identity = Identity::of(certificate.der());
        let store_key = self.store_key()?;
        let folder = self.0.join(name.as_str());
        make_folder(&folder)?;
        write(&folder.join(CA), &authorities, 0o644)?;
        write(&folder.join(KEY), &key.serialize_pem(), 0o600)?;
        write(&folder.join(CERTIFICATE), &certificate.pem(), 0o644)?;
        write(&folder.join(STORE_KEY), &store_key, 0o600)?;
        let issued = authority.join(ISSUED);
        make_folder(&issued)?;
        let file = format!("{name}-{}.pem", &identity.fingerprint()[..16]);
        write_new(&issued.join(file), &certificate.pem(), 0o644)
    }

    /// Returns the CA that signs: the first one in `ca.pem`, with the key of the folder.
    fn issuer(&self) -> Result<Issuer<'static, KeyPair>, KeyFolderError> {
        let authority = self.0.join("ca");
        let key = KeyPair::from_pem(&self.read(&authority.join(KEY))?)?;
        let path = authority.join(CA);
        let authorities = read_certificates(&path)?;
        let newest = authorities.first().expect("a file without one is refused");
        let wrong = || KeyFolderError::OtherAuthority(authority.clone());
        let parsed = x509_cert::Certificate::from_der(newest).map_err(|_| wrong())?;
        let certificate = &parsed.tbs_certificate;
        let public_key = certificate
            .subject_public_key_info
            .subject_public_key
            .raw_bytes();
        if public_key != key.public_key_raw() {
            return Err(wrong());
        }
        Ok(Issuer::new(authority_params(&common_name(&parsed))?, key))
    }

    fn certificates_of(&self, name: &EndpointName) -> Result<Vec<Certificate>, KeyFolderError> {
        let mut certificates = self.certificates()?;
        // Earlier versions put no name of their own into the certificates of `edge`.
        certificates.retain(|certificate| match certificate.identity.own_name() {
            Some(known) => known == name,
            None => name.as_str() == "edge",
        });
        Ok(certificates)
    }

    /// Returns the text of the store key. Earlier versions kept it only in the folders of endpoints.
    fn store_key(&self) -> Result<String, KeyFolderError> {
        let mut folders = vec![self.0.join("ca")];
        folders.extend(entries(&self.0)?);
        let path = folders.iter().map(|folder| folder.join(STORE_KEY));
        match path.into_iter().find(|path| path.is_file()) {
            Some(path) => self.read(&path),
            None => Err(KeyFolderError::NoStoreKey(self.0.clone())),
        }
    }

    /// Writes the certificates of CAs to the folders of all endpoints.
    fn write_authorities(&self, certificates: &str) -> Result<(), KeyFolderError> {
        for folder in self.endpoint_folders()? {
            replace(&folder.join(CA), certificates, 0o644)?;
        }
        Ok(())
    }

    fn endpoint_folders(&self) -> Result<Vec<PathBuf>, KeyFolderError> {
        let mut folders = entries(&self.0)?;
        folders.retain(|folder| folder.join(CERTIFICATE).is_file());
        Ok(folders)
    }

    fn deny_list(&self) -> Result<String, KeyFolderError> {
        let path = self.0.join("ca").join(DenyList::FILE);
        if path.exists() {
            self.read(&path)
        } else {
            Ok(DENY_HEADER.to_owned())
        }
    }

    /// Writes the deny list to `ca`, and a copy to the folder of the gateway.
    fn write_deny_list(&self, text: &str) -> Result<(), KeyFolderError> {
        for folder in ["ca", GATEWAY] {
            let folder = self.0.join(folder);
            make_folder(&folder)?;
            replace(&folder.join(DenyList::FILE), text, 0o644)?;
        }
        Ok(())
    }

    fn read(&self, path: &Path) -> Result<String, KeyFolderError> {
        fs::read_to_string(path).map_err(|source| file_error(path, source))
    }
}

/// Refuses a name whose folder is not that of an edge.
fn check_edge_name(edge: &EndpointName) -> Result<(), KeyFolderError> {
    if ["ca", GATEWAY].contains(&edge.as_str()) {
        return Err(KeyFolderError::ReservedName(edge.clone()));
    }
    Ok(())
}

/// Returns the certificate and the private key of a new CA in PEM.
fn new_authority() -> Result<(String, String), KeyFolderError> {
    let key = KeyPair::generate()?;
    // Two CAs of one link have different names, so that a certificate states which of them has signed it.
    let number = crate::random::<4>().map_err(KeyFolderError::Random)?;
    let name = format!("edgeward link CA {}", edgeward_types::to_hex(&number));
    let certificate = CertifiedIssuer::self_signed(authority_params(&name)?, &key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn authority_params(name: &str) -> Result<CertificateParams, KeyFolderError> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

/// Returns the common name of a CA.
fn common_name(certificate: &x509_cert::Certificate) -> String {
    let subject = certificate.tbs_certificate.subject.to_string();
    subject.strip_prefix("CN=").unwrap_or(&subject).to_owned()
}

/// Returns true if the certificate names `authority` as its issuer.
fn is_signed_by(certificate: &[u8], authority: &[u8]) -> bool {
    let [certificate, authority] = [certificate, authority].map(x509_cert::Certificate::from_der);
    match (certificate, authority) {
        (Ok(certificate), Ok(authority)) => {
            certificate.tbs_certificate.issuer == authority.tbs_certificate.subject
        }
        _ => false,
    }
}

/// Returns the paths in a folder, in the order of their names.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, KeyFolderError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        let mut paths = fs::read_dir(folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort_unstable();
        Ok(paths)
    };
    read().map_err(|source| file_error(folder, source))
}

fn make_folder(path: &Path) -> Result<(), KeyFolderError> {
    fs::create_dir_all(path).map_err(|source| file_error(path, source))
}

/// Writes a file that must not exist.
fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), KeyFolderError> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
    written.map_err(|source| file_error(path, source))
}

/// Writes a file, or replaces it in one step, so that a running endpoint never reads a part of it.
fn replace(path: &Path, text: &str, mode: u32) -> Result<(), KeyFolderError> {
    let unfinished = path.with_extension("new");
    _ = fs::remove_file(&unfinished);
    write_new(&unfinished, text, mode)?;
    fs::rename(&unfinished, path).map_err(|source| file_error(path, source))
}

fn file_error(path: &Path, source: io::Error) -> KeyFolderError {
    KeyFolderError::File {
        path: path.to_owned(),
        source,
    }
}

/// Returns the time in seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Returns the date of a time in seconds since 1970, such as `2026-11-29`.
pub(crate) fn date(seconds: u64) -> String {
    let time = date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    time.date().to_string()
}

/// The folder in `ca` with a copy of each certificate.
const ISSUED: &str = "issued";

/// The name of the gateway, and of its folder.
const GATEWAY: &str = "gateway";

const PEM_END: &str = "-----END CERTIFICATE-----";

const DENY_HEADER: &str = "\
# Certificates that the gateway refuses, written by `edgeward link keys revoke`.
# Copy this file to the gateway's folder of keys; a running gateway reads it again.
";

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::fs::PermissionsExt as _;

    use super::super::Keys;

    fn name(text: &str) -> EndpointName {
        text.parse().expect("the name is valid")
    }

    fn new_folder() -> (tempfile::TempDir, KeyFolder) {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let keys = KeyFolder::create(&folder.path().join("keys"), &[name("edge")], 30);
        (folder, keys.expect("the keys can be generated"))
    }

    /// Returns the name and the revocation of each certificate.
    fn listed(keys: &KeyFolder) -> Vec<(String, bool)> {
        let certificates = keys.certificates().expect("the folder can be read");
        let row = |certificate: Certificate| (certificate.identity.name(), certificate.is_revoked);
        certificates.into_iter().map(row).collect()
    }

    /// Generated keys can be loaded, all endpoints compute the same chunk ids, secret files are readable by their
    /// owner only, and no file is overwritten.
    #[test]
    fn generated_keys_are_loaded() {
        let (_temporary, keys) = new_folder();
        keys.add(&name("paris"), 30).expect("the edge is added");
        let checks = ["gateway", "edge", "paris"].map(|endpoint| {
            let (loaded, store_key) =
                Keys::load(&keys.0.join(endpoint)).expect("the keys are valid");
            assert_eq!(loaded.identity().name(), endpoint);
            let days_left = loaded.identity().days_left(SystemTime::now());
            assert!(matches!(days_left, Some(29 | 30)), "{days_left:?}");
            store_key.check()
        });
        assert!(checks[0] == checks[1] && checks[0] == checks[2]);
        for secret in [
            "ca/key.pem",
            "ca/store.key",
            "gateway/key.pem",
            "paris/store.key",
        ] {
            let found = fs::metadata(keys.0.join(secret)).expect("the file exists");
            assert_eq!(found.permissions().mode() & 0o777, 0o600, "{secret}");
        }
        assert!(matches!(
            generate_keys(&keys.0),
            Err(KeyFolderError::File { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists
        ));
    }

    /// A revoked edge is on the deny list of the gateway, also if its folder was removed; other edges are not. A name
    /// cannot be used twice.
    #[test]
    fn edges_are_added_listed_and_revoked_by_name() {
        let (_temporary, keys) = new_folder();
        keys.add(&name("paris"), 30).expect("the edge is added");
        for taken in ["paris", "edge"] {
            let added = keys.add(&name(taken), 30);
            assert!(
                matches!(added, Err(KeyFolderError::NameTaken(_))),
                "{taken}"
            );
        }
        for reserved in ["ca", "gateway"] {
            let added = keys.add(&name(reserved), 30);
            assert!(
                matches!(added, Err(KeyFolderError::ReservedName(_))),
                "{reserved}"
            );
        }
        let valid = |name: &str| (name.to_owned(), false);
        assert_eq!(
            listed(&keys),
            [valid("edge"), valid("gateway"), valid("paris")]
        );
        let gateway = keys.revoke(&name("gateway"));
        assert!(matches!(gateway, Err(KeyFolderError::NoEdge(_))));
        // An operator may have written a last line without an end.
        let mut text = keys.deny_list().expect("the deny list is readable");
        text.push_str("# paris was stolen");
        keys.write_deny_list(&text)
            .expect("the deny list can be written");
        fs::remove_dir_all(keys.0.join("paris")).expect("the folder can be removed");
        let revoked = keys.revoke(&name("paris")).expect("the edge is known");
        assert_eq!(revoked.len(), 1);
        let again = keys.revoke(&name("paris")).expect("the edge is known");
        assert!(again.is_empty(), "it is on the list already");
        assert_eq!(
            listed(&keys),
            [valid("edge"), valid("gateway"), ("paris".to_owned(), true)]
        );
        let list = DenyList::load(&keys.0.join("gateway").join(DenyList::FILE));
        let list = list.expect("the deny list is valid");
        assert!(list.denies(revoked[0].identity.fingerprint_bytes()));
        let unknown = keys.revoke(&name("rome"));
        assert!(matches!(unknown, Err(KeyFolderError::UnknownName(_))));
    }

    /// A running endpoint uses the renewed certificate. A certificate without its key leaves the last one in use.
    #[test]
    fn renewed_keys_are_read_again() {
        let (_temporary, keys) = new_folder();
        let folder = keys.0.join("edge");
        let (loaded, _) = Keys::load(&folder).expect("the keys are valid");
        let before = loaded.identity();
        keys.renew(&name("edge"), 60).expect("the edge is known");
        loaded.refresh();
        let renewed = loaded.identity();
        let days_left = renewed.days_left(SystemTime::now());
        assert!(matches!(days_left, Some(59 | 60)), "{days_left:?}");
        assert_ne!(before, renewed);
        assert_eq!(listed(&keys).len(), 3, "the old certificate is valid too");

        let other = keys.0.join("gateway").join(CERTIFICATE);
        fs::copy(other, folder.join(CERTIFICATE)).expect("the file can be copied");
        loaded.refresh();
        assert_eq!(loaded.identity(), renewed);
        let unknown = keys.renew(&name("rome"), 60);
        assert!(matches!(unknown, Err(KeyFolderError::UnknownName(_))));
    }

    /// A revoked edge gets a valid certificate by `renew`, and its old one stays revoked.
    #[test]
    fn a_revoked_edge_is_renewed_under_its_name() {
        let (_temporary, keys) = new_folder();
        assert!(matches!(keys.renew(&name("edge"), 30), Ok(0)));
        keys.revoke(&name("edge")).expect("the edge is known");
        assert!(matches!(keys.renew(&name("edge"), 60), Ok(2)));
        let of_edge = listed(&keys).into_iter().filter(|(name, _)| name == "edge");
        let is_revoked: Vec<_> = of_edge.map(|(_, is_revoked)| is_revoked).collect();
        assert_eq!(is_revoked, [false, true, true]);
    }

    /// A folder is created with the given edges only. A name that is not that of an edge creates nothing.
    #[test]
    fn a_folder_is_created_with_the_given_edges() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let path = folder.path().join("keys");
        let refused = KeyFolder::create(&path, &[name("oslo"), name("ca")], 30);
        assert!(matches!(refused, Err(KeyFolderError::ReservedName(_))));
        assert!(!path.exists());
        let keys = KeyFolder::create(&path, &[name("oslo"), name("berlin")], 30);
        let keys = keys.expect("the keys can be generated");
        let names = listed(&keys).into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["berlin", "gateway", "oslo"]);
    }

    /// A change of the CA ends only when each endpoint has a certificate of the new CA.
    #[test]
    fn a_change_of_the_ca_ends_when_all_certificates_are_renewed() {
        let (_temporary, keys) = new_folder();
        let authorities = |keys: &KeyFolder| {
            let read = read_certificates(&keys.0.join("edge").join(CA));
            read.expect("the file has certificates").len()
        };
        keys.begin_new_authority().expect("the CA is created");
        assert_eq!(authorities(&keys), 2);
        for endpoint in ["edge", "gateway"] {
            let ended = keys.end_new_authority();
            assert!(
                matches!(&ended, Err(KeyFolderError::OldAuthorityInUse(name)) if name == endpoint),
                "{ended:?}"
            );
            keys.renew(&name(endpoint), 30)
                .expect("the endpoint is known");
        }
        keys.end_new_authority()
            .expect("all certificates are renewed");
        assert_eq!(authorities(&keys), 1);
        keys.add(&name("paris"), 30).expect("the new CA signs");
    }
}
