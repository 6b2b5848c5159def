//! The served files: the files that the manifest lists, and recent files of earlier manifests. The earlier files are
//! for clients that fetched an earlier manifest.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use edgeward_filter::Digest;
use edgeward_filter::journal::Journal;

use crate::config::PublishLimits;
use crate::content::{File, FileKind};

/// The served files. At most two snapshots are served: the newest, and the one before.
#[derive(Default)]
pub(super) struct Files {
    by_digest: HashMap<Digest, Arc<File>>,
    /// Files that are no longer listed, oldest first.
    superseded: VecDeque<Digest>,
    /// The bytes of the deltas in `superseded`; see [`counted_bytes`].
    superseded_bytes: usize,
}

impl Files {
    pub(super) fn served(&self) -> HashMap<Digest, Arc<File>> {
        self.by_digest.clone()
    }

    /// Adds the files that the manifest lists now. Drops the oldest files that are no longer listed, until the limits
    /// are met.
    pub(super) fn update(
        &mut self,
        snapshot: Option<&Arc<File>>,
        journal: &Journal,
        limits: &PublishLimits,
    ) {
        let mut listed = HashSet::new();
        if let Some(snapshot) = snapshot {
            listed.insert(snapshot.sha256);
            let file = Arc::clone(snapshot);
            self.by_digest.entry(snapshot.sha256).or_insert(file);
        }
        for delta in journal.deltas() {
            let digest = delta.entry.sha256;
            listed.insert(digest);
            self.by_digest.entry(digest).or_insert_with(|| {
                File::new(FileKind::Delta, digest, Bytes::from(delta.bytes.clone()))
            });
        }
        for (digest, file) in &self.by_digest {
            if !listed.contains(digest) && !self.superseded.contains(digest) {
                self.superseded.push_back(*digest);
                self.superseded_bytes += counted_bytes(file);
            }
        }
        let snapshots = |files: &HashMap<Digest, Arc<File>>| {
            let is_snapshot = |file: &&Arc<File>| file.kind == FileKind::Snapshot;
            files.values().filter(is_snapshot).count()
        };
        while self.superseded.len() > limits.superseded_files_max
            || self.superseded_bytes > limits.superseded_bytes_max
            // Keep the newest snapshot, and the previous snapshot for clients that are fetching it.
            || snapshots(&self.by_digest) > 2
        {
            let oldest_snapshot = self.superseded.iter().position(|digest| {
                snapshots(&self.by_digest) > 2
                    && self
                        .by_digest
                        .get(digest)
                        .is_some_and(|file| file.kind == FileKind::Snapshot)
            });
            let Some(digest) = self.superseded.remove(oldest_snapshot.unwrap_or(0)) else {
                break;
            };
            if let Some(file) = self.by_digest.remove(&digest) {
                self.superseded_bytes -= counted_bytes(&file);
            }
        }
    }
}

/// Returns the bytes of a superseded file that count towards `superseded_bytes_max`. A snapshot counts as 0 bytes,
/// because the number of snapshots is limited.
fn counted_bytes(file: &File) -> usize {
    match file.kind {
        FileKind::Snapshot => 0,
        FileKind::Delta => file.content.len(),
    }
}
