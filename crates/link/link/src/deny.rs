//! Certificates that the gateway refuses.
//!
//! A key that was lost or stolen has to be denied, because its certificate is valid until it expires. A deny list is a
//! text file with the SHA-256 fingerprint of one certificate on each line. The gateway reads it again when the file
//! changes, refuses the listed certificates and closes their connections.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;
use thiserror::Error;

/// The SHA-256 digest of a certificate's DER.
pub(crate) type Fingerprint = [u8; 32];

/// Returns the fingerprint of a certificate.
pub(crate) fn fingerprint(certificate: &[u8]) -> Fingerprint {
    let digest = digest::digest(&digest::SHA256, certificate);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Why a deny list cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DenyError {
    /// The file cannot be read.
    #[error("the deny list {} cannot be read", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A line is not a fingerprint.
    #[error("{}, line {line}: not a SHA-256 fingerprint of 64 hexadecimal digits", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
    },
}

/// The certificates that are refused, read from a file.
#[derive(Clone, Debug)]
pub struct DenyList(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    denied: Arc<HashSet<Fingerprint>>,
    version: Version,
}

/// Identifies a version of a file: device, inode, length in bytes, and the time of the last change in seconds and
/// nanoseconds. `None` if the file does not exist.
pub(crate) type Version = Option<(u64, u64, u64, i64, i64)>;

impl DenyList {
    /// The name of the list in a folder of keys.
    pub const FILE: &str = "deny.txt";

    /// Reads the list in a folder of keys. If the folder has none, the list is empty until the file is created.
    pub fn in_keys(folder: &Path) -> Result<Self, DenyError> {
        let path = folder.join(Self::FILE);
        if path.exists() {
            return Self::load(&path);
        }
        Ok(Self(Arc::new(Shared {
            path,
            state: Mutex::new(State {
                denied: Arc::default(),
                version: None,
            }),
        })))
    }

    /// Returns the fingerprints in the text of a list. Lines that are not fingerprints are skipped.
    pub(crate) fn parse(text: &str) -> HashSet<Fingerprint> {
        text.lines()
            .filter_map(|line| parse(digits(line)))
            .collect()
    }

    /// Reads the list.
    pub fn load(path: &Path) -> Result<Self, DenyError> {
        let version = version(path);
        let denied = Arc::new(read(path)?);
        tracing::info!(path = %path.display(), certificates = denied.len(), "deny list read");
        Ok(Self(Arc::new(Shared {
            path: path.to_owned(),
            state: Mutex::new(State { denied, version }),
        })))
    }

    pub(crate) fn denies(&self, fingerprint: &Fingerprint) -> bool {
        self.state().denied.contains(fingerprint)
    }

    /// Reads the file again if it has changed. Returns true if a new list was read. If the new version cannot
    /// be read, the last list stays in force.
    pub(crate) fn refresh(&self) -> bool {
        let new_version = version(&self.0.path);
        if self.state().version == new_version {
            return false;
        }
        let read = read(&self.0.path);
        let mut state = self.state();
        state.version = new_version;
        match read {
            Ok(denied) => {
                tracing::info!(
                    path = %self.0.path.display(),
                    certificates = denied.len(),
                    "deny list read again"
                );
                state.denied = Arc::new(denied);
                true
            }
            Err(error) => {
                let error = edgeward_types::with_causes(&error);
                tracing::error!(
                    error,
                    "the deny list was not read again; the last one stays in force"
                );
                false
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn version(path: &Path) -> Version {
    let found = fs::metadata(path).ok()?;
    Some((
        found.dev(),
        found.ino(),
        found.len(),
        found.mtime(),
        found.mtime_nsec(),
    ))
}

fn read(path: &Path) -> Result<HashSet<Fingerprint>, DenyError> {
    let file = |source| DenyError::File {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let opened = fs::File::open(path).map_err(file)?;
    opened
        .take(LIST_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(file)?;
    if text.len() as u64 == LIST_BYTES_MAX {
        return Err(file(io::ErrorKind::FileTooLarge.into()));
    }
    let mut denied = HashSet::new();
    for (nth, line) in text.lines().enumerate() {
        let digits = digits(line);
        if digits.is_empty() {
            continue;
        }
        let fingerprint = parse(digits).ok_or_else(|| DenyError::Line {
            path: path.to_owned(),
            line: nth + 1,
        })?;
        denied.insert(fingerprint);
    }
    Ok(denied)
}

/// Returns the digits of a line without the comment. Accepts a line as `openssl x509 -fingerprint -sha256` prints it.
fn digits(line: &str) -> &str {
    let line = line.split('#').next().unwrap_or_default().trim();
    line.rsplit_once('=').map_or(line, |(_, digits)| digits)
}

fn parse(digits: &str) -> Option<Fingerprint> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut fingerprint = [0; 32];
    for (byte, pair) in fingerprint.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(fingerprint)
}

/// The limit of the file's length. 4 MiB are enough for 60,000 certificates.
const LIST_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Fingerprints with and without colons, comments and empty lines are read; any other line is refused. A list
    /// that cannot be read again leaves the last one in force.
    #[test]
    fn a_deny_list_has_one_fingerprint_on_each_line() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        let path = folder.path().join("deny");
        let colons = vec!["AB"; 32].join(":");
        let text = format!(
            "# lost on Monday\n\n{}  # edge 7\nsha256 Fingerprint={colons}\n",
            "0f".repeat(32)
        );
        fs::write(&path, text).expect("the file can be written");
        let list = DenyList::load(&path).expect("the deny list is valid");
        assert!(list.denies(&[0x0f; 32]) && list.denies(&[0xab; 32]));
        assert!(!list.denies(&[0; 32]));
        assert!(!list.refresh(), "the file is unchanged");
        fs::write(&path, "no fingerprint\n").expect("the file can be written");
        assert!(!list.refresh());
        assert!(list.denies(&[0xab; 32]), "the last list stays");
        assert!(matches!(
            DenyList::load(&path),
            Err(DenyError::Line { line: 1, .. })
        ));
        fs::write(&path, "").expect("the file can be written");
        assert!(list.refresh());
        assert!(!list.denies(&[0xab; 32]));
        fs::remove_file(&path).expect("the file can be removed");
        assert!(
            !list.refresh(),
            "a missing file leaves the last list in force"
        );
        assert!(matches!(DenyList::load(&path), Err(DenyError::File { .. })));
    }
}
