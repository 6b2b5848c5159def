//! The position of a feed, stored in a file of the state folder. A feed reads a database's changes and sends them to
//! the publisher. The position is the point from which the feed continues after a restart.
//!
//! ```text
//! changes.json         the feed, its position, and a flag that is true if all earlier ids were published
//! ```
//!
//! A position is persisted only after every id before this position was journaled. If the stored position is
//! not the newest, the feed therefore only reads some ids again. A corrupt file is treated as
//! missing. The publisher then makes no statement of completeness until a scan is complete.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use edgeward_filter::Digest;
use serde::{Deserialize, Serialize};

use crate::state::write_atomically;

/// The position of a feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredPosition {
    version: u32,
    /// The feed: SHA-256 of its name.
    feed: String,
    /// The lineage of the journal that has the ids: a random number, which each start of a publisher replaces
    /// (see `state`).
    lineage: u64,
    /// The position, in the unit that the feed has chosen.
    pub(crate) position: i64,
    /// The newest journal number when the position was recorded. A journal with a smaller head lacks ids that were
    /// committed before this position.
    pub(crate) head: u64,
    /// True if the snapshot and the journal had every id that was committed before this position.
    pub(crate) complete: bool,
}

impl StoredPosition {
    pub(crate) fn new(
        feed: Digest,
        lineage: u64,
        position: i64,
        head: u64,
        complete: bool,
    ) -> Self {
        Self {
            version: VERSION,
            feed: feed.to_string(),
            lineage,
            position,
            head,
            complete,
        }
    }

    /// Returns true if the position belongs to this feed and to a journal with one of these lineages, and is
    /// not newer than the journal, whose newest number is `head`. A backup may have been taken file by file, so
    /// the files may differ in age.
    pub(crate) fn belongs_to(&self, feed: Digest, lineages: &[u64], head: u64) -> bool {
        self.feed == feed.to_string() && lineages.contains(&self.lineage) && self.head <= head
    }

    /// Decodes a file. Returns `None` if it is invalid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let read: Self = serde_json::from_slice(bytes).ok()?;
        (read.version == VERSION).then_some(read)
    }

    /// Encodes the position as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("numbers and strings can be encoded")
    }
}

/// The file of a feed's position. Changes of the position alone are written at most once per second.
#[derive(Debug)]
pub(crate) struct PositionFile {
    folder: PathBuf,
    newest: Option<StoredPosition>,
    /// The position in the file.
    written: Option<StoredPosition>,
    /// The time of the last write, by the monotonic clock.
    written_at: Duration,
}

impl PositionFile {
    /// Reads the position stored in the folder.
    pub(crate) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let bytes = fs::read(&path).ok();
        let written = bytes.as_deref().and_then(StoredPosition::from_bytes);
        if bytes.is_some() && written.is_none() {
            tracing::warn!(path = %path.display(), "cannot read the position of the feed; a new scan is needed");
        }
        Self {
            folder: folder.to_owned(),
            newest: written.clone(),
            written,
            written_at: Duration::ZERO,
        }
    }

    pub(crate) fn newest(&self) -> Option<&StoredPosition> {
        self.newest.as_ref()
    }

    /// Records a position. Writes the file if the last write was at least a second ago, or if another field
    /// than `position` and `head` changed. The second condition is needed because a crash could lose a change
    /// of `complete`, and the next start would then need an additional scan.
    pub(crate) fn record(&mut self, position: StoredPosition, now: Duration) -> io::Result<()> {
        let moved = |written: &StoredPosition| StoredPosition {
            position: position.position,
            head: position.head,
            ..written.clone()
        };
        let only_moved = self.written.as_ref().map(moved).as_ref() == Some(&position);
        self.newest = Some(position);
        if only_moved && now.saturating_sub(self.written_at) < BETWEEN_WRITES {
            return Ok(());
        }
        self.write(now)
    }

    /// Writes the newest position unless it is already written.
    pub(crate) fn write(&mut self, now: Duration) -> io::Result<()> {
        let Some(newest) = self.newest.as_ref().filter(|_| self.newest != self.written) else {
            return Ok(());
        };
        write_atomically(&self.folder, FILE, &newest.to_bytes())?;
        (self.written, self.written_at) = (self.newest.clone(), now);
        Ok(())
    }
}

const FILE: &str = "changes.json";
/// The version of the file. A file of version 1 lacks the journal number (`head`) and is ignored, so a scan is needed.
const VERSION: u32 = 2;

/// The shortest time between two writes. A crash loses the positions since the last write, and the ids after the
/// written position are read again.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn position(number: i64) -> StoredPosition {
        StoredPosition::new(Digest::compute(b"feed"), 7, number, 0, true)
    }

    /// Method: record positions less than one second and exactly one second after a write.
    #[test]
    fn positions_are_written_at_most_once_per_second_and_at_the_end() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let on_disk = || PositionFile::open(folder.path()).newest().cloned();
        let ms = Duration::from_millis;
        let mut positions = PositionFile::open(folder.path());
        assert_eq!(positions.newest(), None);
        for (now_ms, number, number_on_disk) in [
            (10_000, 1, 1),
            (10_999, 2, 1),
            (11_000, 3, 3),
            (11_001, -4, 3),
        ] {
            let recorded = positions.record(position(number), ms(now_ms));
            recorded.expect("the file is written");
            assert_eq!(on_disk(), Some(position(number_on_disk)), "at {now_ms}");
        }
        positions.write(ms(11_002)).expect("the file is written");
        assert_eq!(on_disk(), Some(position(-4)));
        let incomplete = StoredPosition {
            complete: false,
            ..position(-4)
        };
        let recorded = positions.record(incomplete.clone(), ms(11_003));
        recorded.expect("the file is written");
        assert_eq!(on_disk(), Some(incomplete));
    }

    /// Method: truncate the file at every length and open it.
    #[test]
    fn a_truncated_file_is_treated_as_missing() {
        let folder = tempfile::tempdir().expect("the folder is created");
        let mut positions = PositionFile::open(folder.path());
        let recorded = positions.record(position(i64::MIN), Duration::from_secs(9));
        recorded.expect("the file is written");
        let path = folder.path().join(FILE);
        let file_bytes = fs::read(&path).expect("the file is written");
        for cut in 0..file_bytes.len() {
            fs::write(&path, &file_bytes[..cut]).expect("the file is written");
            assert_eq!(PositionFile::open(folder.path()).newest(), None, "at {cut}");
        }
    }

    proptest! {
        /// A file with a changed byte is refused or decodes to another valid position.
        #[test]
        fn an_encoded_position_is_decoded(
            lineage: u64, number: i64, head: u64, complete: bool, changed: prop::sample::Index, byte: u8,
        ) {
            let position = StoredPosition::new(Digest::compute(b"feed"), lineage, number, head, complete);
            let mut bytes = position.to_bytes();
            prop_assert_eq!(StoredPosition::from_bytes(&bytes), Some(position));
            let offset = changed.index(bytes.len());
            bytes[offset] = byte;
            if let Some(read) = StoredPosition::from_bytes(&bytes) {
                prop_assert_eq!(StoredPosition::from_bytes(&read.to_bytes()), Some(read));
            }
        }
    }

    #[test]
    fn a_position_belongs_to_one_feed_and_one_journal() {
        let feed = Digest::compute(b"feed");
        assert!(position(1).belongs_to(feed, &[6, 7], 0));
        assert!(!position(1).belongs_to(feed, &[8], 0));
        assert!(!position(1).belongs_to(Digest::compute(b"another"), &[7], 0));
        let newer = StoredPosition {
            head: 3,
            ..position(1)
        };
        assert!(newer.belongs_to(feed, &[7], 3) && !newer.belongs_to(feed, &[7], 2));
    }
}
