//! The checkpoint of a scan: a file that lets the next run of a program continue the scan.
//!
//! A scan consists of spans, such as token ranges of Cassandra, and each span is read in batches. The file contains
//! the plan of spans and, for each batch, the hashes of its ids and the progress of its span.
//! Records are only appended. If a crash left an invalid record, this record and all later records are ignored,
//! and the next run reads their rows again from the database. The checksum of a record includes the checksum of
//! the previous record. If a block in the middle of the file is missing, the records after this block are
//! therefore invalid too.
//!
//! Only the version of edgeward that wrote the file can read it. A file belongs to one scan. Opening it for another
//! source, query or hash fails.

mod format;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use edgeward_filter::IdForm;
use edgeward_types::xxh3::xxh3_128;

use crate::batch::SpanProgress;
use crate::ledger::Ledger;
use format::{HEADER_BYTES, Kind, MAGIC, batch_payload, header, plan_payload, record, replay};

/// Identifies the scan of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity([u8; 16]);

impl Identity {
    /// Returns the identity of a scan. `parts` are the settings that must be equal in the next run: source,
    /// query, hash and seed of the hash.
    pub fn new(parts: &[&str]) -> Self {
        let mut encoded = Vec::new();
        for part in parts {
            encoded.extend_from_slice(&(part.len() as u64).to_le_bytes());
            encoded.extend_from_slice(part.as_bytes());
        }
        Self(xxh3_128(&encoded).to_le_bytes())
    }
}

/// An open checkpoint, locked against other programs.
#[derive(Debug)]
pub struct Checkpoint {
    file: File,
    path: PathBuf,
    identity: Identity,
    /// The checksum of the last record, which the checksum of the next record includes.
    chain: u64,
    /// The form of the ids in the stored plan. `None` if the file has no plan yet.
    form: Option<IdForm>,
    /// The number of bytes written since the last sync.
    unsynced_bytes: usize,
}

/// The contents of a checkpoint when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The progress of the scan. The ledger is empty if the checkpoint is new.
    pub ledger: Ledger,
    /// The time at which the scan began, in milliseconds since 1970. Ids that were added to the database later may be
    /// missing.
    pub began_ms: u64,
    /// The number of bytes after the last valid record, which were removed.
    pub invalid_bytes: u64,
}

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file cannot be read or written.
    #[error("cannot use the checkpoint")]
    Io(#[from] io::Error),
    /// The file is not a checkpoint.
    #[error("the file is not a checkpoint of a scan")]
    Foreign,
    /// The checkpoint has another [`Identity`], or its ids have another form.
    #[error("the checkpoint belongs to another scan")]
    OtherScan,
    /// Another program uses the checkpoint.
    #[error("the checkpoint is in use by another program")]
    Locked,
}

impl Checkpoint {
    /// Opens a checkpoint, or creates a checkpoint of a scan that begins at `now_ms` (milliseconds since 1970).
    pub fn open(
        path: &Path,
        identity: Identity,
        now_ms: u64,
    ) -> Result<(Self, Resumed), CheckpointError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => CheckpointError::Locked,
            TryLockError::Error(error) => error.into(),
        })?;
        let length = file.metadata()?.len();
        if length < HEADER_BYTES as u64 {
            // The file is new, or a crash left an incomplete header. A short file of another format is not
            // overwritten.
            let mut head = Vec::new();
            (&mut file).take(8).read_to_end(&mut head)?;
            if !MAGIC.starts_with(&head) {
                return Err(CheckpointError::Foreign);
            }
            let header = header(identity, now_ms);
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header)?;
            file.sync_all()?;
        } else {
            file.seek(SeekFrom::Start(0))?;
        }
        file.seek(SeekFrom::Start(0))?;
        let read = replay(
            BufReader::with_capacity(1 << 20, &file),
            identity,
            &mut |_| (),
        )?;
        let invalid_bytes = file.metadata()?.len() - read.bytes;
        file.set_len(read.bytes)?;
        file.seek(SeekFrom::End(0))?;
        let checkpoint = Self {
            file,
            path: path.to_owned(),
            identity,
            chain: read.chain,
            form: read.form,
            unsynced_bytes: 0,
        };
        let resumed = Resumed {
            ledger: read.ledger,
            began_ms: read.began_ms,
            invalid_bytes,
        };
        Ok((checkpoint, resumed))
    }

    /// Decodes the bytes of a checkpoint like [`Self::open`], and passes its hashes to `each` like [`Self::hashes`].
    #[doc(hidden)]
    pub fn read(
        bytes: &[u8],
        identity: Identity,
        each: &mut dyn FnMut(&[u64]),
    ) -> Result<Resumed, CheckpointError> {
        let read = replay(bytes, identity, each)?;
        Ok(Resumed {
            ledger: read.ledger,
            began_ms: read.began_ms,
            invalid_bytes: bytes.len() as u64 - read.bytes,
        })
    }

    /// Passes the stored hashes to `each`, several thousand at a time.
    pub fn hashes(&mut self, each: &mut dyn FnMut(&[u64])) -> Result<(), CheckpointError> {
        self.file.seek(SeekFrom::Start(0))?;
        let input = BufReader::with_capacity(1 << 20, &self.file);
        replay(input, self.identity, each)?;
        self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    /// Writes the plan of a new scan. If the scan is resumed, the plan is already in the file. The function
    /// then writes nothing, and fails if `form` is not the form of the stored plan.
    pub fn begin(&mut self, form: IdForm, ledger: &Ledger) -> Result<(), CheckpointError> {
        if let Some(before) = self.form {
            return if before == form {
                Ok(())
            } else {
                Err(CheckpointError::OtherScan)
            };
        }
        self.form = Some(form);
        self.write(Kind::Plan, &plan_payload(form, ledger))
    }

    /// Appends the progress of a batch and the hashes of its ids.
    pub fn append(
        &mut self,
        progress: &SpanProgress,
        hashes: &[u64],
    ) -> Result<(), CheckpointError> {
        self.write(Kind::Batch, &batch_payload(progress, hashes))
    }

    /// Deletes the file. The caller does this after it has written the filter, so that the next scan starts from the
    /// beginning.
    pub fn remove(self) -> Result<(), CheckpointError> {
        Ok(std::fs::remove_file(&self.path)?)
    }

    fn write(&mut self, kind: Kind, payload: &[u8]) -> Result<(), CheckpointError> {
        let (record, chain) = record(kind, payload, self.chain);
        self.chain = chain;
        self.file.write_all(&record)?;
        self.unsynced_bytes += record.len();
        if self.unsynced_bytes >= SYNC_BYTES {
            self.file.sync_data()?;
            self.unsynced_bytes = 0;
        }
        Ok(())
    }
}

/// The number of bytes between two syncs: the hashes of a million ids. After a power failure the next run reads the
/// unsynced ids again, which takes about one second.
const SYNC_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCAN: Identity = Identity([7; 16]);

    fn open(path: &Path) -> (Checkpoint, Resumed, Vec<u64>) {
        let mut hashes = Vec::new();
        let mut each = |more: &[u64]| hashes.extend_from_slice(more);
        let (mut checkpoint, resumed) = Checkpoint::open(path, SCAN, 5).expect("the file opens");
        checkpoint.hashes(&mut each).expect("the file is readable");
        (checkpoint, resumed, hashes)
    }

    fn progress(span: usize, position: Option<&[u8]>, ends_span: bool) -> SpanProgress {
        SpanProgress {
            span,
            rows: 10,
            malformed: 1,
            position: position.map(<[u8]>::to_vec),
            ends_span,
        }
    }

    /// Writes a scan with two spans and three batches. Returns the end of each record.
    fn write_checkpoint(path: &Path) -> Vec<u64> {
        let (mut checkpoint, resumed, _) = open(path);
        assert_eq!((resumed.began_ms, resumed.invalid_bytes), (5, 0));
        let ledger = Ledger::with_spans([b"a".to_vec(), vec![]]);
        let length = || std::fs::metadata(path).expect("the file exists").len();
        let mut ends = vec![length()];
        checkpoint
            .begin(IdForm::Uuid, &ledger)
            .expect("the file is written");
        ends.push(length());
        for (n, progress) in [
            progress(0, Some(b"here"), false),
            progress(1, None, true),
            progress(0, None, true),
        ]
        .iter()
        .enumerate()
        {
            let hashes = [n as u64, 100 + n as u64];
            checkpoint
                .append(progress, &hashes)
                .expect("the file is written");
            ends.push(length());
        }
        ends
    }

    #[test]
    fn a_checkpoint_is_read_back_and_continued() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let path = folder.path().join("scan");
        write_checkpoint(&path);
        let (mut checkpoint, resumed, hashes) = open(&path);
        assert_eq!(hashes, [0, 100, 1, 101, 2, 102]);
        assert_eq!((resumed.ledger.rows(), resumed.ledger.malformed()), (30, 3));
        assert_eq!(resumed.ledger.completed(), 2);
        assert_eq!(
            resumed.ledger.spans()[0].position.as_deref(),
            Some(&b"here"[..])
        );
        let error = checkpoint.begin(IdForm::Text, &resumed.ledger);
        assert!(matches!(error, Err(CheckpointError::OtherScan)));
        checkpoint
            .begin(IdForm::Uuid, &resumed.ledger)
            .expect("the form is the same");
        checkpoint
            .append(&progress(1, None, false), &[9])
            .expect("the file is written");
        drop(checkpoint);
        assert_eq!(open(&path).2.last(), Some(&9));
    }

    #[test]
    fn a_file_of_another_scan_or_format_or_in_use_is_refused() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let path = folder.path().join("scan");
        write_checkpoint(&path);
        let other = Identity::new(&["postgres://a", "SELECT 1"]);
        let try_open = |path: &Path, identity| {
            Checkpoint::open(path, identity, 0).expect_err("the operation fails")
        };
        assert!(matches!(try_open(&path, other), CheckpointError::OtherScan));
        let other_program = open(&path);
        assert!(matches!(try_open(&path, SCAN), CheckpointError::Locked));
        drop(other_program);
        for contents in [&b"hello"[..], &[b'x'; 200]] {
            let foreign = folder.path().join("foreign");
            std::fs::write(&foreign, contents).expect("the file is written");
            assert!(matches!(try_open(&foreign, SCAN), CheckpointError::Foreign));
            let after = std::fs::read(&foreign).expect("the file exists");
            assert_eq!(after, contents, "the file is unchanged");
        }
    }

    #[test]
    fn identities_depend_on_the_boundaries_of_their_parts() {
        assert_ne!(Identity::new(&["ab", "c"]), Identity::new(&["a", "bc"]));
    }

    /// Method: truncate the file at every length after its header. Exactly the complete records are read.
    #[test]
    fn a_truncated_file_ends_with_its_last_complete_record() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let path = folder.path().join("scan");
        let ends = write_checkpoint(&path);
        let bytes = std::fs::read(&path).expect("the file is readable");
        for cut in ends[0]..bytes.len() as u64 {
            std::fs::write(&path, &bytes[..cut as usize]).expect("the file is written");
            let (_, resumed, hashes) = open(&path);
            // The first two ends are those of the header and the plan. Each batch has two hashes.
            let complete_records = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(
                hashes.len(),
                2 * complete_records.saturating_sub(2),
                "cut at {cut}"
            );
            assert_eq!(resumed.invalid_bytes, cut - ends[complete_records - 1]);
            assert_eq!(
                std::fs::metadata(&path).expect("the file exists").len(),
                ends[complete_records - 1]
            );
        }
    }

    proptest! {
        /// Method: change one byte of the file. The hashes that are read are a prefix of the hashes that were
        /// written.
        #[test]
        fn reading_ends_at_a_changed_byte(offset in 0usize..400, flip in 1u8..) {
            let folder = tempfile::tempdir().expect("the folder is created");
            let path = folder.path().join("scan");
            write_checkpoint(&path);
            let mut bytes = std::fs::read(&path).expect("the file is readable");
            let offset = offset % bytes.len();
            bytes[offset] ^= flip;
            let mut hashes = Vec::new();
            let mut each = |more: &[u64]| hashes.extend_from_slice(more);
            let replayed = replay(&bytes[..], SCAN, &mut each);
            prop_assert_eq!(replayed.is_err(), offset < HEADER_BYTES);
            prop_assert!([0, 100, 1, 101, 2, 102].starts_with(&hashes), "{:?}", hashes);
        }

        /// Method: append random bytes to a header. Reading them neither fails nor panics.
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let file = [header(SCAN, 1), bytes].concat();
            prop_assert!(Checkpoint::read(&file, SCAN, &mut |_| ()).is_ok());
        }

        /// The row count of each span in the ledger is the sum over its batches. Sums that overflow stay at the
        /// maximum.
        #[test]
        fn a_ledger_equals_the_sums_of_its_batches(
            batches in prop::collection::vec((0usize..3, any::<u64>(), any::<bool>(), any::<Vec<u64>>()), 0..8),
        ) {
            let folder = tempfile::tempdir().expect("the folder is created");
            let path = folder.path().join("scan");
            let (mut checkpoint, _) = Checkpoint::open(&path, SCAN, 5).expect("the file opens");
            let plan = Ledger::with_spans(vec![vec![]; 3]);
            checkpoint.begin(IdForm::Text, &plan).expect("the file is written");
            let (mut rows, mut done, mut expected) = ([0u64; 3], [false; 3], Vec::new());
            for (span, count, ends_span, hashes) in &batches {
                let batch = SpanProgress { rows: *count, ..progress(*span, None, *ends_span) };
                checkpoint.append(&batch, hashes).expect("the file is written");
                rows[*span] = rows[*span].saturating_add(*count);
                done[*span] |= *ends_span;
                expected.extend_from_slice(hashes);
            }
            let mut hashes = Vec::new();
            let bytes = std::fs::read(&path).expect("the file is readable");
            let read = Checkpoint::read(&bytes, SCAN, &mut |more| hashes.extend_from_slice(more));
            let ledger = read.expect("the file is valid").ledger;
            for (n, span) in ledger.spans().iter().enumerate() {
                prop_assert_eq!((span.rows, span.done), (rows[n], done[n]));
            }
            let total_rows = rows.iter().fold(0u64, |sum, rows| sum.saturating_add(*rows));
            prop_assert_eq!((ledger.rows(), hashes), (total_rows, expected));
        }
    }
}
