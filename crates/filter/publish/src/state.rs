//! The state that survives a restart: the journal and the newest snapshot. Two numbers must never decrease: the
//! epoch of snapshots and the number of the last manifest.
//!
//! ```text
//! lock                 locked by the publisher that uses the folder; in a copy of the folder it has another inode
//! state.json           set, hash seed, lineage, digest of the snapshot; replaced atomically by rename
//! journal.log          consecutive deltas in the format of docs/reference/filter-format.md
//! snapshot-EPOCH.ids   the snapshot whose digest is in state.json
//! changes.json         the position of the changes query: see the module `position`
//! ```
//!
//! An id is journaled when its record is on the device. Only then does the publisher acknowledge it to the client that
//! posted it. The ids of a truncated last record were never acknowledged, so this record is dropped. An invalid record
//! before a valid one means that acknowledged ids were lost. The journal then keeps only the ids before the invalid
//! record, and needs a new scan (see below).
//!
//! **Each start begins a new lineage.** A lineage is a random number that names one history of the journal. The
//! folder may have been restored from a backup, which the publisher cannot always detect. In the old lineage
//! the publisher would then give the same journal numbers to different ids, and clients that already have these
//! numbers would never fetch the new ids.
//!
//! Ids that were acknowledged after the backup are lost, but the clients that posted them may still commit
//! them. If the folder is a copy or its journal is damaged, the publisher therefore needs a scan that began at
//! least `commit_within` after the start; only then does the journal count as complete. `commit_within` is the
//! longest time between the acknowledgement and the commit of an id. The lock file of a copy has another inode
//! or creation time than `state.json` records.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use edgeward_filter::complete::Coverage;
use edgeward_filter::delta::Delta;
use edgeward_filter::journal::Journal;
use edgeward_filter::manifest::Snapshot;
use edgeward_filter::{Digest, Filter, IdHash, IdHasher};
use serde::{Deserialize, Serialize};

/// The state folder, locked.
#[derive(Debug)]
pub(crate) struct StateFolder {
    folder: PathBuf,
    /// The contents of `state.json`.
    stored: StateFile,
    log: File,
    /// The length of the valid records of the log.
    log_bytes: u64,
    /// True after a failed write, when the position of the log's end is unknown. The log must be rewritten before
    /// the next append.
    log_end_unknown: bool,
    _lock: File,
}

/// The state read from the folder.
pub(crate) struct Restored {
    pub(crate) folder: StateFolder,
    pub(crate) journal: Journal,
    /// The content of the newest snapshot, if it is valid.
    pub(crate) snapshot: Option<Bytes>,
    /// A stored position of the changes query is valid if it has one of these lineages. If ids were lost, the list is
    /// empty, so that no stored position is valid.
    pub(crate) earlier_lineages: Vec<u64>,
    /// True if the journal or the snapshot is damaged, so that acknowledged ids were lost.
    pub(crate) damaged: bool,
    /// True if the folder is a copy, for example restored from a backup.
    pub(crate) copied: bool,
    /// True if acknowledged ids may be missing: at this start or an earlier one, `damaged` or `copied` was true,
    /// or the configured [`Coverage`] had changed. A complete scan clears this state.
    pub(crate) may_miss_acknowledged_ids: bool,
}

/// The contents of `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFile {
    version: u32,
    set: String,
    /// The form of the ids: `text`, `uuid` or `integer`.
    form: String,
    hash_seed: u64,
    /// The current lineage of the journal.
    lineage: u64,
    /// The previous lineage. The journal on disk has this lineage or `lineage`.
    #[serde(default)]
    lineage_before: u64,
    /// The identity of the lock file. The lock file of a restored folder has another identity.
    #[serde(default)]
    lock: Option<String>,
    /// The configured [`Coverage`] (scans, posts or a feed) when this file was written. If the operator changes it,
    /// acknowledged ids may be missing.
    #[serde(default)]
    covered_by: Option<String>,
    /// True while clients may still commit ids that were acknowledged but are not in the journal.
    #[serde(default, rename = "may_miss_posts")]
    may_miss_acknowledged_ids: bool,
    /// The upper bound of the manifest numbers that are used until this file is written again.
    serial_max: u64,
    /// The epoch of the newest snapshot. Each snapshot has a higher epoch than the previous one.
    epoch: u64,
    /// The description of the newest snapshot, with its digest.
    snapshot: Option<Snapshot>,
}

impl StateFolder {
    /// Opens or creates the state folder.
    pub(crate) fn open(
        folder: &Path,
        set: &str,
        hasher: IdHasher,
        coverage: Coverage,
        wall_ms: u64,
    ) -> Result<Restored, StateError> {
        let failed = |source| StateError::Io {
            folder: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let lock = File::create(folder.join("lock")).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(StateError::InUse {
                    folder: folder.to_owned(),
                });
            }
            Err(fs::TryLockError::Error(source)) => return Err(failed(source)),
        }
        let stored = match fs::read(folder.join(STATE)) {
            Ok(bytes) => Some(read_state(folder, &bytes, set, hasher)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let log = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(folder.join(LOG))
            .map_err(failed)?;
        let bytes = fs::read(folder.join(LOG)).map_err(failed)?;
        let (deltas, valid_bytes, damaged) = read_log(&bytes);
        let is_new = stored.is_none();
        let lock_identity = identity(&lock).map_err(failed)?;
        let covered_by = format!("{coverage:?}");
        let identity_and_coverage =
            |stored: &StateFile| (stored.lock.clone(), stored.covered_by.clone());
        let current = (Some(lock_identity.clone()), Some(covered_by.clone()));
        let has_changed = stored
            .as_ref()
            .is_some_and(|stored| identity_and_coverage(stored) != current);
        let copied = stored
            .as_ref()
            .and_then(|stored| stored.lock.as_ref())
            .is_some_and(|lock| *lock != lock_identity);
        let mut stored = stored.unwrap_or_else(|| StateFile {
            version: VERSION,
            set: set.to_owned(),
            form: hasher.form.name().to_owned(),
            hash_seed: hasher.seed,
            lineage: random_lineage(),
            lineage_before: 0,
            lock: None,
            covered_by: None,
            may_miss_acknowledged_ids: false,
            serial_max: 0,
            epoch: wall_ms / 1000,
            snapshot: None,
        });
        // The first manifest number after a start is at least the current time in milliseconds since 1970. It
        // therefore exceeds all numbers used before the folder was lost or restored from a backup, unless the
        // publisher made a thousand manifests per second.
        stored.serial_max = stored.serial_max.max(wall_ms);
        stored.version = VERSION;
        (stored.lock, stored.covered_by) = (Some(lock_identity), Some(covered_by));
        let accepted = [stored.lineage, stored.lineage_before];
        let mut state = Self {
            folder: folder.to_owned(),
            stored,
            log,
            log_bytes: valid_bytes,
            log_end_unknown: true,
            _lock: lock,
        };
        let snapshot = state.read_snapshot();
        let listed_snapshot = snapshot
            .is_some()
            .then_some(state.stored.snapshot)
            .flatten();
        let journal_lineage = deltas
            .first()
            .map_or(state.stored.lineage, |delta| delta.lineage);
        let journal = (!damaged && accepted.contains(&journal_lineage))
            .then(|| {
                let serial = state.stored.serial_max;
                Journal::resume(
                    set,
                    journal_lineage,
                    serial,
                    hasher.seed,
                    listed_snapshot,
                    deltas.clone(),
                )
            })
            .flatten();
        let complete = journal.is_some() && (is_new || state.stored.snapshot == listed_snapshot);
        state.stored.lineage_before = journal_lineage;
        state.stored.lineage = random_lineage();
        let lineage = state.stored.lineage;
        let journal = match journal {
            Some(journal) => journal.with_lineage(lineage),
            None => {
                state.stored.snapshot = None;
                let ids = deltas.iter().flat_map(|delta| delta.ids()).copied();
                let ids: Vec<IdHash> = ids.collect();
                let mut journal = Journal::new(set, lineage, state.stored.serial_max, hasher.seed);
                journal.append(ids);
                journal
            }
        };
        state.stored.may_miss_acknowledged_ids |= has_changed || !complete;
        let may_miss_acknowledged_ids = state.stored.may_miss_acknowledged_ids;
        state.reserve_more(journal.serial()).map_err(failed)?;
        // This also removes a truncated record at the end of the log.
        state.rewrite_log(&journal).map_err(failed)?;
        Ok(Restored {
            snapshot: journal.snapshot().is_some().then_some(snapshot).flatten(),
            folder: state,
            journal,
            earlier_lineages: if complete {
                accepted.to_vec()
            } else {
                Vec::new()
            },
            damaged: !complete,
            copied,
            may_miss_acknowledged_ids,
        })
    }

    pub(crate) const fn epoch(&self) -> u64 {
        self.stored.epoch
    }

    /// Ensures that no manifest number up to `serial` is used again after a restart. Writes the state once in a
    /// few thousand calls, and when `state.json` was deleted.
    pub(crate) fn reserve(&mut self, serial: u64) -> io::Result<()> {
        if serial < self.stored.serial_max && !self.is_missing() {
            return Ok(());
        }
        self.reserve_more(serial)
    }

    fn reserve_more(&mut self, serial: u64) -> io::Result<()> {
        let stored = StateFile {
            serial_max: serial + SERIALS_RESERVED,
            ..self.stored.clone()
        };
        self.write_state(stored)
    }

    /// Records that no acknowledged id is missing any more.
    pub(crate) fn clear_may_miss_acknowledged_ids(&mut self) -> io::Result<()> {
        if !self.stored.may_miss_acknowledged_ids {
            return Ok(());
        }
        let stored = StateFile {
            may_miss_acknowledged_ids: false,
            ..self.stored.clone()
        };
        self.write_state(stored)
    }

    fn is_missing(&self) -> bool {
        !self.folder.join(STATE).exists()
    }

    /// Appends a record and syncs it to the device.
    pub(crate) fn append(&mut self, record: &[u8]) -> io::Result<()> {
        if self.log_end_unknown {
            return Err(io::Error::other(
                "the end of the journal is unknown after a failed write",
            ));
        }
        let written = self
            .log
            .seek(SeekFrom::Start(self.log_bytes))
            .and_then(|_| self.log.write_all(record))
            .and_then(|()| self.log.sync_data());
        match written {
            Ok(()) => self.log_bytes += record.len() as u64,
            // After a failed write or sync, the bytes on the device are unknown.
            Err(_) => self.log_end_unknown = true,
        }
        written
    }

    pub(crate) const fn is_log_end_unknown(&self) -> bool {
        self.log_end_unknown
    }

    /// Replaces the log by the current deltas of the journal.
    pub(crate) fn rewrite_log(&mut self, journal: &Journal) -> io::Result<()> {
        let path = self.folder.join(LOG);
        let temporary_path = self.folder.join("journal.log.part");
        let mut log = File::create(&temporary_path)?;
        let mut bytes = 0;
        for delta in journal.deltas() {
            log.write_all(&delta.bytes)?;
            bytes += delta.bytes.len() as u64;
        }
        log.sync_all()?;
        fs::rename(&temporary_path, &path)?;
        sync_folder(&self.folder)?;
        self.log = log;
        self.log_bytes = bytes;
        self.log_end_unknown = false;
        Ok(())
    }

    /// Writes a snapshot before it is published. Changes no other file.
    pub(crate) fn write_snapshot(folder: &Path, epoch: u64, bytes: &[u8]) -> io::Result<()> {
        write_atomically(folder, &snapshot_name(epoch), bytes)
    }

    /// Records a snapshot as the newest and deletes the previous one.
    pub(crate) fn record_snapshot(&mut self, snapshot: Snapshot) -> io::Result<()> {
        let old = self.stored.snapshot;
        let stored = StateFile {
            epoch: snapshot.epoch,
            snapshot: Some(snapshot),
            ..self.stored.clone()
        };
        self.write_state(stored)?;
        if let Some(old) = old.filter(|old| old.epoch != snapshot.epoch) {
            // The previous snapshot is no longer used. If the deletion fails, the file only takes space.
            _ = fs::remove_file(self.folder.join(snapshot_name(old.epoch)));
        }
        Ok(())
    }

    fn write_state(&mut self, stored: StateFile) -> io::Result<()> {
        let text =
            serde_json::to_string_pretty(&stored).expect("numbers and strings can be encoded");
        write_atomically(&self.folder, STATE, text.as_bytes())?;
        self.stored = stored;
        Ok(())
    }

    /// Reads the snapshot that `state.json` lists. Returns `None` if the file does not match its digest.
    fn read_snapshot(&self) -> Option<Bytes> {
        let listed_snapshot = self.stored.snapshot?;
        let path = self.folder.join(snapshot_name(listed_snapshot.epoch));
        let bytes = fs::read(&path).ok()?;
        let is_valid = Digest::compute(&bytes) == listed_snapshot.sha256
            && Filter::open_trusted(&bytes[..]).is_ok();
        if !is_valid {
            tracing::warn!(path = %path.display(), "stored snapshot is corrupt; the next scan replaces it");
        }
        is_valid.then(|| Bytes::from(bytes))
    }
}

fn read_state(
    folder: &Path,
    bytes: &[u8],
    set: &str,
    hasher: IdHasher,
) -> Result<StateFile, StateError> {
    let stored: StateFile =
        serde_json::from_slice(bytes).map_err(|source| StateError::Unreadable {
            path: folder.join(STATE),
            source,
        })?;
    let (found, configured) = (
        (stored.set.as_str(), stored.form.as_str(), stored.hash_seed),
        (set, hasher.form.name(), hasher.seed),
    );
    if found != configured || !(1..=VERSION).contains(&stored.version) {
        return Err(StateError::OtherPublisher {
            folder: folder.to_owned(),
            stored: format!("set {}, {} ids, hash seed {}", found.0, found.1, found.2),
        });
    }
    Ok(stored)
}

/// Reads the records of a log. Returns the valid records at the start of the log, the offset at which they end, and
/// true if the log has valid records after an invalid one.
///
/// A crash truncates only the last record. A valid record after an invalid one therefore means that acknowledged ids
/// are missing. The search tries every offset, because the length of the invalid record may be corrupt too.
pub fn read_log(bytes: &[u8]) -> (Vec<Delta>, u64, bool) {
    let mut deltas = Vec::new();
    let mut offset = 0;
    while let Some((delta, length)) = parse_record(&bytes[offset..]) {
        deltas.push(delta);
        offset += length;
    }
    let rest = bytes.get(offset + 1..).unwrap_or_default();
    let ids_lost = (0..rest.len()).any(|start| parse_record(&rest[start..]).is_some());
    (deltas, offset as u64, ids_lost)
}

/// Returns the record at the start of `bytes`, and its length.
fn parse_record(bytes: &[u8]) -> Option<(Delta, usize)> {
    let length = usize::try_from(Delta::stated_bytes(bytes)?).ok()?;
    let delta = Delta::from_bytes(bytes.get(..length)?).ok()?;
    Some((delta, length))
}

pub(crate) fn write_atomically(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary_path = folder.join(format!("{name}.part"));
    let mut file = File::create(&temporary_path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary_path, folder.join(name))?;
    sync_folder(folder)
}

/// Syncs the folder, so that a rename survives a crash of the machine.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns inode and creation time of a file. A copy on the same file system has another inode. A reused inode
/// has another creation time.
fn identity(file: &File) -> io::Result<String> {
    let metadata = file.metadata()?;
    let created = metadata.created().ok();
    let created = created.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let created = created.map_or(0, |since| since.as_nanos());
    Ok(format!("{}-{created}", metadata.ino()))
}

fn snapshot_name(epoch: u64) -> String {
    format!("snapshot-{epoch}.ids")
}

/// Returns a random number of 53 bits, which every JSON reader reads exactly.
fn random_lineage() -> u64 {
    let mut random = [0; 8];
    // On Linux this call waits until the system has gathered randomness, and does not fail.
    _ = rustix::rand::getrandom(&mut random[..], rustix::rand::GetRandomFlags::empty());
    u64::from_le_bytes(random) >> 11
}

const STATE: &str = "state.json";
const LOG: &str = "journal.log";
/// The version of `state.json`. Version 1 lacked the fields that have a default value in [`StateFile`].
const VERSION: u32 = 2;

/// The number of manifests between two writes of the state.
const SERIALS_RESERVED: u64 = 4096;

/// Why a state folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The file system returned an error.
    #[error("cannot use the state folder {}", .folder.display())]
    Io {
        /// The path of the folder.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another publisher uses the folder. Two publishers of one journal would contradict each other.
    #[error("the state folder {} is in use by another publisher", .folder.display())]
    InUse {
        /// The path of the folder.
        folder: PathBuf,
    },
    /// The file is not a valid state, for example because an operator edited it.
    #[error("cannot read {}", .path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The folder belongs to another set, or ids are hashed differently now.
    #[error("the state folder {} belongs to another publisher: {stored}; use another folder", .folder.display())]
    OtherPublisher {
        /// The path of the folder.
        folder: PathBuf,
        /// The set of the folder, the form of its ids and their hash seed, as text for the message.
        stored: String,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn open(folder: &Path) -> Restored {
        let hasher = IdHasher::default();
        let opened = StateFolder::open(folder, "resource", hasher, Coverage::Posts, 1_000_000);
        opened.expect("the state folder opens")
    }

    fn append_ids(restored: &mut Restored, ids: std::ops::Range<u64>) {
        let head = restored.journal.head();
        let ids: Vec<_> = ids.map(IdHash).collect();
        let lineage = restored.folder.stored.lineage;
        let record = Delta::new(lineage, head, head + 1, 0, ids.clone()).to_bytes();
        restored
            .folder
            .append(&record)
            .expect("the record is written");
        restored.journal.append(ids);
    }

    fn ids(restored: &Restored) -> Vec<u64> {
        let mut ids: Vec<_> = restored.journal.delta_ids().map(|id| id.0).collect();
        ids.sort_unstable();
        ids
    }

    /// Method: truncate the log at every length and open the folder again. All complete records are read, and the
    /// lineage is new.
    #[test]
    fn a_truncated_last_record_is_dropped_and_the_others_are_kept() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let mut restored = open(folder.path());
        let lineage = restored.folder.stored.lineage;
        append_ids(&mut restored, 0..10);
        append_ids(&mut restored, 10..13);
        drop(restored);
        let log_bytes = fs::read(folder.path().join(LOG)).expect("the log is read");
        let state = fs::read(folder.path().join(STATE)).expect("the state is read");
        // The first record has a header of 64 bytes and ten ids of 8 bytes.
        let first = 64 + 80;
        for cut in 0..=log_bytes.len() {
            fs::write(folder.path().join(LOG), &log_bytes[..cut]).expect("the file is written");
            fs::write(folder.path().join(STATE), &state).expect("the file is written");
            let restored = open(folder.path());
            let expected = match cut {
                _ if cut < first => 0,
                _ if cut < log_bytes.len() => 10,
                _ => 13,
            };
            assert_eq!(
                ids(&restored),
                (0..expected).collect::<Vec<_>>(),
                "cut at {cut}"
            );
            assert_ne!(restored.folder.stored.lineage, lineage);
            assert!(!restored.damaged && !restored.may_miss_acknowledged_ids);
        }
    }

    #[test]
    fn a_corrupt_record_before_valid_ones_is_reported_as_damage() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let mut restored = open(folder.path());
        let (lineage, serial) = (restored.folder.stored.lineage, restored.journal.serial());
        append_ids(&mut restored, 0..10);
        append_ids(&mut restored, 10..13);
        drop(restored);
        let mut log = fs::read(folder.path().join(LOG)).expect("the log is read");
        log[70] ^= 1;
        fs::write(folder.path().join(LOG), &log).expect("the file is written");
        let restored = open(folder.path());
        assert!(restored.damaged);
        assert_ne!(restored.folder.stored.lineage, lineage);
        assert!(restored.journal.serial() > serial);
    }

    fn copy_folder(source: &Path, target: &Path) {
        for entry in fs::read_dir(source)
            .expect("the folder is readable")
            .flatten()
        {
            fs::copy(entry.path(), target.join(entry.file_name())).expect("the file is copied");
        }
    }

    /// Method: open the restored folder twice. Both times it reports that acknowledged ids may be missing.
    #[test]
    fn a_restored_folder_may_miss_ids_until_a_scan_is_published() {
        let (folder, backup) = (tempfile::tempdir(), tempfile::tempdir());
        let (folder, backup) = (
            folder.expect("the folder is created"),
            backup.expect("the folder is created"),
        );
        let mut restored = open(folder.path());
        append_ids(&mut restored, 0..10);
        let (lineage, serial) = (restored.folder.stored.lineage, restored.journal.serial());
        drop(restored);
        copy_folder(folder.path(), backup.path());

        let mut restored = open(backup.path());
        assert!(restored.copied && restored.may_miss_acknowledged_ids && !restored.damaged);
        assert_ne!(restored.journal.lineage(), lineage);
        assert!(restored.journal.serial() > serial);
        assert_eq!(ids(&restored), (0..10).collect::<Vec<_>>());
        assert!(restored.earlier_lineages.contains(&lineage));
        append_ids(&mut restored, 10..13);
        drop(restored);

        let mut restored = open(backup.path());
        assert!(!restored.copied && restored.may_miss_acknowledged_ids);
        assert_eq!(ids(&restored), (0..13).collect::<Vec<_>>());
        restored
            .folder
            .clear_may_miss_acknowledged_ids()
            .expect("the file is written");
        drop(restored);
        assert!(!open(backup.path()).may_miss_acknowledged_ids);
        // The original folder is not affected by its copy.
        assert!(!open(folder.path()).may_miss_acknowledged_ids);
    }

    /// A state of version 1 records neither the identity of the lock file nor the coverage.
    #[test]
    fn a_state_of_version_1_is_migrated_and_may_miss_ids() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let mut restored = open(folder.path());
        append_ids(&mut restored, 0..10);
        let stored = restored.folder.stored.clone();
        drop(restored);
        let version_1 = serde_json::json!({
            "version": 1, "set": stored.set, "form": stored.form, "hash_seed": stored.hash_seed,
            "lineage": stored.lineage, "serial_max": stored.serial_max, "epoch": stored.epoch,
            "snapshot": null,
        });
        fs::write(folder.path().join(STATE), version_1.to_string()).expect("the file is written");
        let restored = open(folder.path());
        assert!(restored.may_miss_acknowledged_ids && !restored.copied && !restored.damaged);
        assert_eq!(ids(&restored), (0..10).collect::<Vec<_>>());
    }

    /// A start writes `state.json` with a new lineage, and then the journal. After a crash between the two, the
    /// journal still has the previous lineage, which `state.json` records too.
    ///
    /// Method: replace the journal by its copy from before a start.
    #[test]
    fn a_crash_between_two_writes_of_a_start_loses_no_ids() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let mut restored = open(folder.path());
        append_ids(&mut restored, 0..10);
        drop(restored);
        let log = fs::read(folder.path().join(LOG)).expect("the log is read");
        drop(open(folder.path()));
        fs::write(folder.path().join(LOG), &log).expect("the file is written");
        let restored = open(folder.path());
        assert!(!restored.damaged && !restored.may_miss_acknowledged_ids);
        assert_eq!(ids(&restored), (0..10).collect::<Vec<_>>());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// If a byte of a log is changed, the records before this byte are read. The records after it are not read,
        /// and their loss is reported. A truncated log is not reported as damage.
        #[test]
        fn a_corrupt_record_is_distinguished_from_a_truncated_one(
            sizes in prop::collection::vec(0u64..5, 1..5), changed: prop::sample::Index, bits in 1u8..,
        ) {
            let mut log = Vec::new();
            let mut ends = Vec::new();
            for (n, &size) in sizes.iter().enumerate() {
                let (n, ids) = (n as u64, (0..size).map(|id| IdHash(id << 8 | n as u64)));
                log.extend(Delta::new(7, n, n + 1, 0, ids.collect()).to_bytes());
                ends.push(log.len());
            }
            let changed_offset = changed.index(log.len());
            let intact_records = ends.iter().filter(|&&end| end <= changed_offset).count();
            let intact_bytes = intact_records.checked_sub(1).map_or(0, |last| ends[last]);

            let (deltas, end, ids_lost) = read_log(&log[..changed_offset]);
            prop_assert_eq!((deltas.len(), end, ids_lost), (intact_records, intact_bytes as u64, false));

            log[changed_offset] ^= bits;
            let (deltas, end, ids_lost) = read_log(&log);
            let is_last = intact_records + 1 == sizes.len();
            prop_assert_eq!((deltas.len(), end, ids_lost), (intact_records, intact_bytes as u64, !is_last));
            let read: Vec<u8> = deltas.iter().flat_map(Delta::to_bytes).collect();
            prop_assert_eq!(&read[..], &log[..intact_bytes]);
        }
    }

    #[test]
    fn a_folder_belongs_to_one_set_and_one_publisher() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let restored = open(folder.path());
        let hasher = IdHasher::default();
        let again = |set| StateFolder::open(folder.path(), set, hasher, Coverage::Posts, 0);
        assert!(matches!(again("resource"), Err(StateError::InUse { .. })));
        drop(restored);
        assert!(matches!(
            again("other"),
            Err(StateError::OtherPublisher { .. })
        ));
        assert!(again("resource").is_ok());
    }
}
