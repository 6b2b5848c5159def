//! How far a feed of changes has come, in a file of the state folder.
//!
//! ```text
//! changes.json         which feed, its position, and whether nothing was missing then
//! ```
//!
//! A position is written down only when every id up to it is in the journal, so that one that is too old
//! costs ids that come again, and no more. It is written at most once a second. A file that is not what
//! it was is the same as none: then nothing is promised until a scan is through.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use edgeward_filter::Digest;
use serde::{Deserialize, Serialize};

use crate::state::write_whole;

/// How far a feed has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    version: u32,
    /// The feed: SHA-256 of what it calls itself.
    feed: String,
    /// The journal that has the ids.
    lineage: u64,
    pub(crate) position: i64,
    /// The journal's newest number then: an older journal lacks ids that were committed before this
    /// position.
    pub(crate) head: u64,
    /// The snapshot and the journal had every id that was committed before this position.
    pub(crate) complete: bool,
}

impl Position {
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

    /// True if it is of this feed, of a journal with one of these lineages, and of nothing newer than the
    /// journal: a backup may have been taken file by file.
    pub(crate) fn is_of(&self, feed: Digest, lineages: &[u64], head: u64) -> bool {
        self.feed == feed.to_string() && lineages.contains(&self.lineage) && self.head <= head
    }

    /// What a file says, if it is one of ours.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let read: Self = serde_json::from_slice(bytes).ok()?;
        (read.version == VERSION).then_some(read)
    }

    /// As it stands in the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("plain values")
    }
}

/// Writes positions down, not too often.
#[derive(Debug)]
pub(crate) struct Positions {
    folder: PathBuf,
    newest: Option<Position>,
    written: Option<Position>,
    written_at: Duration,
}

impl Positions {
    /// What is written down in the folder.
    pub(crate) fn open(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let bytes = fs::read(&path).ok();
        let written = bytes.as_deref().and_then(Position::from_bytes);
        if bytes.is_some() && written.is_none() {
            tracing::warn!(path = %path.display(), "the position of changes cannot be read; a scan begins anew");
        }
        Self {
            folder: folder.to_owned(),
            newest: written.clone(),
            written,
            written_at: Duration::ZERO,
        }
    }

    pub(crate) fn newest(&self) -> Option<&Position> {
        self.newest.as_ref()
    }

    /// Notes one, and writes it if the last writing was a while ago, or if it is of another feed or
    /// another completeness: what that costs is not ids that come again, but a scan.
    pub(crate) fn note(&mut self, position: Position, now: Duration) -> io::Result<()> {
        let moved = |written: &Position| Position {
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

    /// Writes the newest if it is not written.
    pub(crate) fn write(&mut self, now: Duration) -> io::Result<()> {
        let Some(newest) = self.newest.as_ref().filter(|_| self.newest != self.written) else {
            return Ok(());
        };
        write_whole(&self.folder, FILE, &newest.to_bytes())?;
        (self.written, self.written_at) = (self.newest.clone(), now);
        Ok(())
    }
}

const FILE: &str = "changes.json";
/// Version 1 did not say how long the journal was. It is not read: a scan takes its place.
const VERSION: u32 = 2;

/// A crash costs the ids of so long, which come again.
const BETWEEN_WRITES: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn position(number: i64) -> Position {
        Position::new(Digest::of(b"feed"), 7, number, 0, true)
    }

    /// Look on both sides of the second.
    #[test]
    fn positions_are_written_once_a_second_and_at_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let on_disk = || Positions::open(folder.path()).newest().cloned();
        let ms = Duration::from_millis;
        let mut positions = Positions::open(folder.path());
        assert_eq!(positions.newest(), None);
        for (at, number, found) in [
            (10_000, 1, 1),
            (10_999, 2, 1),
            (11_000, 3, 3),
            (11_001, -4, 3),
        ] {
            let noted = positions.note(position(number), ms(at));
            noted.expect("written");
            assert_eq!(on_disk(), Some(position(found)), "at {at}");
        }
        positions.write(ms(11_002)).expect("written");
        assert_eq!(on_disk(), Some(position(-4)));
        let incomplete = Position {
            complete: false,
            ..position(-4)
        };
        let noted = positions.note(incomplete.clone(), ms(11_003));
        noted.expect("written");
        assert_eq!(on_disk(), Some(incomplete));
    }

    /// Whatever part of the file is there: it is whole or it is none.
    #[test]
    fn a_cut_file_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut positions = Positions::open(folder.path());
        let noted = positions.note(position(i64::MIN), Duration::from_secs(9));
        noted.expect("written");
        let path = folder.path().join(FILE);
        let whole = fs::read(&path).expect("it is there");
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("written");
            assert_eq!(Positions::open(folder.path()).newest(), None, "at {cut}");
        }
    }

    proptest! {
        /// Also with any byte changed: it is refused, or says something else of the right kind.
        #[test]
        fn a_position_comes_back_from_its_bytes(
            lineage: u64, number: i64, head: u64, complete: bool, place: prop::sample::Index, byte: u8,
        ) {
            let position = Position::new(Digest::of(b"feed"), lineage, number, head, complete);
            let mut bytes = position.to_bytes();
            prop_assert_eq!(Position::from_bytes(&bytes), Some(position));
            let place = place.index(bytes.len());
            bytes[place] = byte;
            if let Some(read) = Position::from_bytes(&bytes) {
                prop_assert_eq!(Position::from_bytes(&read.to_bytes()), Some(read));
            }
        }
    }

    #[test]
    fn a_position_is_of_one_feed_and_one_journal() {
        let feed = Digest::of(b"feed");
        assert!(position(1).is_of(feed, &[6, 7], 0));
        assert!(!position(1).is_of(feed, &[8], 0));
        assert!(!position(1).is_of(Digest::of(b"another"), &[7], 0));
        let newer = Position {
            head: 3,
            ..position(1)
        };
        assert!(newer.is_of(feed, &[7], 3) && !newer.is_of(feed, &[7], 2));
    }
}
