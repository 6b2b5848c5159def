//! The files of certificates, keys and credentials, with their states.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::config::{CredentialsSource, EdgeConfig, ListenerTls};

/// The state of a file. `None` if it cannot be read.
type FileState = Option<(i64, i64, u64, u64)>;

/// Files with their states.
pub(super) type FileStates = Vec<(PathBuf, FileState)>;

/// Returns the files of certificates and keys with their states.
pub(super) fn file_states(config: &EdgeConfig) -> FileStates {
    let of_listeners = config
        .listeners
        .iter()
        .filter_map(|listener| listener.tls.as_ref());
    let of_sites = config.site_certificates.iter().map(|site| &site.tls);
    let files = |tls: &ListenerTls| {
        let files = [&tls.certificates, &tls.key].into_iter().chain(&tls.ocsp);
        files.cloned().collect::<Vec<_>>()
    };
    let of_all = of_listeners.chain(of_sites).chain(&config.admin.tls);
    let paths = of_all.flat_map(files);
    paths.map(|path| (path.clone(), state_of(&path))).collect()
}

/// Returns the files of the credentials of buckets with their states.
pub(super) fn credential_states(config: &EdgeConfig) -> FileStates {
    let buckets = config
        .origins
        .iter()
        .filter_map(|origin| origin.s3.as_deref());
    let paths = buckets.filter_map(|bucket| match &bucket.credentials {
        CredentialsSource::File { path, .. } => Some(path),
        CredentialsSource::Environment(_) => None,
    });
    paths.map(|path| (path.clone(), state_of(path))).collect()
}

fn state_of(path: &Path) -> FileState {
    let metadata = std::fs::metadata(path).ok()?;
    let (secs, nanos) = (metadata.mtime(), metadata.mtime_nsec());
    Some((secs, nanos, metadata.len(), metadata.ino()))
}
