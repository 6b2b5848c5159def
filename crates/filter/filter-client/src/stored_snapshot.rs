//! The newest snapshot on disk, so that a client needs to fetch only deltas after a restart.
//!
//! Stored files are checked like files from the network: the manifest by its signature, the snapshot by its
//! digest. A stored manifest makes the filter fresh only if its date is recent enough.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use edgeward_filter::LINE_BYTES_MAX;
use edgeward_filter::client::{Client, Now};

/// The paths of the manifest and the snapshot.
#[derive(Clone, Debug)]
pub(crate) struct StoredSnapshot {
    manifest: PathBuf,
    snapshot: PathBuf,
}

impl StoredSnapshot {
    pub(crate) fn new(folder: &Path, set: &str) -> Self {
        Self {
            manifest: folder.join(format!("{set}.manifest")),
            snapshot: folder.join(format!("{set}.ids")),
        }
    }

    /// Gives the stored manifest and snapshot to the client, which verifies them.
    pub(crate) fn restore(&self, client: &mut Client<Bytes>, now: Now, snapshot_bytes_max: u64) {
        let Ok(manifest_line) = read(&self.manifest, LINE_BYTES_MAX as u64) else {
            return;
        };
        let accepted = client
            .accept_manifest(now, &manifest_line)
            .map_err(|error| error.to_string())
            .and_then(|()| {
                let bytes = read(&self.snapshot, snapshot_bytes_max);
                let bytes = bytes.map_err(|error| error.to_string())?;
                let accepted = client.accept_snapshot(now, Bytes::from(bytes));
                accepted.map_err(|error| error.to_string())
            });
        if let Err(error) = accepted {
            tracing::info!(error, "stored snapshot not used");
        }
    }

    /// Stores a snapshot and its manifest.
    pub(crate) fn save(&self, manifest_line: &[u8], snapshot: &[u8]) -> io::Result<()> {
        // The snapshot is written first. After a crash between the two writes, the old manifest lists another
        // digest, so the snapshot is refused at the next start.
        write(&self.snapshot, snapshot)?;
        write(&self.manifest, manifest_line)
    }
}

fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary_path = path.as_os_str().to_owned();
    temporary_path.push(".part");
    let mut file = File::create(&temporary_path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary_path, path)
}
