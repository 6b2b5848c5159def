//! Follows a log that its server still writes, across rotation and truncation.
//!
//! [`Follower::read`] passes on the lines that are complete, and returns at the end of the file instead of waiting. The
//! caller decides when it tries again, so that this module needs no clock.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::mark::{MARK_BYTES, Mark, read_at};
use crate::rotation::rotation;

/// A position in a log, from which a later process continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The device of the file.
    pub device: u64,
    /// The inode of the file, by which it is found after it was renamed.
    pub inode: u64,
    /// The number of bytes before the first line that was not passed on.
    pub offset: u64,
    /// The number of bytes that `beginning` covers.
    pub beginning_bytes: u64,
    /// The hash of the first bytes. An inode may be used again, and a file may be truncated and written again.
    pub beginning: u64,
    /// The number of bytes that `end` covers.
    pub end_bytes: u64,
    /// The hash of the last bytes before `offset`. Two files that begin with the hole of a server which kept its
    /// position differ in them.
    pub end: u64,
}

/// The position at which reading starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The first line that is written from now on.
    End,
    /// The first line of the file.
    Beginning,
    /// The position of an earlier process. If its file is gone, reading starts at the first line of the log.
    At(LogPosition),
}

/// Why a log cannot be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("cannot read the log {}", .path.display())]
pub struct FollowError {
    /// The path of the log.
    pub path: PathBuf,
    /// The error of the system.
    pub source: io::Error,
}

/// The state after a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowState {
    /// All complete lines were passed on.
    End,
    /// The caller has stopped before the end.
    Stopped,
}

/// The numbers of a follower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowCounts {
    /// Lines that were passed on.
    pub lines: u64,
    /// Lines that are longer than [`Follower::LINE_BYTES_MAX`], and were skipped.
    pub long_lines: u64,
    /// How often another file had replaced the log.
    pub rotations: u64,
    /// How often the log was truncated.
    pub truncations: u64,
    /// True if the file of the start position was gone.
    pub is_position_lost: bool,
}

/// Follows one log.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: File,
    device: u64,
    inode: u64,
    /// The offset of the first byte of `unread`.
    offset: u64,
    /// The bytes that were read and are not part of a line that was passed on.
    unread: VecDeque<u8>,
    /// True from the start of a line that is too long to its end.
    inside_long_line: bool,
    /// The number of consecutive reads that found the end of a file which another file has replaced.
    ends_after_rotation: u32,
    /// The first bytes that were read of the file.
    beginning: Mark,
    /// The last bytes before `offset`.
    end: Mark,
    /// True if the file is a copy that was made before the log was truncated.
    is_copy: bool,
    counts: FollowCounts,
}

impl Follower {
    /// The longest line.
    pub const LINE_BYTES_MAX: usize = 64 << 10;

    /// Opens a log.
    ///
    /// # Errors
    ///
    /// Fails if the log does not exist, is not a regular file or cannot be read.
    pub fn open(path: &Path, start: Start) -> Result<Self, FollowError> {
        let error = |source| FollowError {
            path: path.to_owned(),
            source,
        };
        let open = |path: &Path| {
            let file = File::open(path).map_err(error)?;
            let metadata = file.metadata().map_err(error)?;
            match metadata.is_file() {
                true => Ok((file, metadata)),
                false => Err(error(io::Error::other("it is not a regular file"))),
            }
        };
        let (file, metadata) = open(path)?;
        let (file, metadata, offset, is_position_lost) = match start {
            Start::End => {
                let length = metadata.len();
                let offset = end_of_last_line(&file, length).map_err(error)?;
                (file, metadata, offset, false)
            }
            Start::Beginning => (file, metadata, 0, false),
            Start::At(position) => match is_file_of(&position, &file, &metadata) {
                true => (file, metadata, position.offset, false),
                false => match moved_file(path, &position) {
                    Some((file, metadata)) => (file, metadata, position.offset, false),
                    None => (file, metadata, 0, true),
                },
            },
        };
        let mut follower = Self {
            path: path.to_owned(),
            file,
            device: metadata.dev(),
            inode: metadata.ino(),
            offset,
            unread: VecDeque::new(),
            inside_long_line: false,
            ends_after_rotation: 0,
            beginning: Mark::default(),
            end: Mark::default(),
            is_copy: false,
            counts: FollowCounts {
                is_position_lost,
                ..FollowCounts::default()
            },
        };
        follower.seek(offset).map_err(error)?;
        Ok(follower)
    }

    /// Returns the first bytes of the file, from which its format is detected.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn beginning(&self) -> Result<Vec<u8>, FollowError> {
        let mut bytes = vec![0; BEGINNING_BYTES];
        let count = read_at(&self.file, &mut bytes, 0).map_err(|error| self.error(error))?;
        bytes.truncate(count);
        Ok(bytes)
    }

    /// Passes on all complete lines, without their line ends, until `take` breaks. A line for which it breaks counts as
    /// passed on.
    ///
    /// If another file has replaced the log, the old one is read to its end first, and until several reads in a row
    /// have found nothing: the server may write to it until it has opened the new one. After several rotations, the
    /// files between the old one and the log are read, too, as long as they are not compressed. If the log was copied
    /// and truncated, the rest of the copy is read first.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read. A log that is missing is no error, because its server will create it.
    pub fn read(
        &mut self,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<FollowState, FollowError> {
        if self.is_rewritten().map_err(|error| self.error(error))? {
            self.restart().map_err(|error| self.error(error))?;
        }
        loop {
            if self.pass_on(take).is_break() {
                return Ok(FollowState::Stopped);
            }
            if self.fill().map_err(|error| self.error(error))? {
                self.ends_after_rotation = 0;
                continue;
            }
            match self.open_next().map_err(|error| self.error(error))? {
                true => {}
                false => return Ok(FollowState::End),
            }
        }
    }

    /// Returns the position after the last line that was passed on.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    pub fn position(&self) -> Result<LogPosition, FollowError> {
        let beginning =
            Mark::first_of(&self.file, self.offset).map_err(|error| self.error(error))?;
        Ok(self.position_with(beginning))
    }

    /// Returns the number of bytes of the file that were not passed on.
    pub fn behind_bytes(&self) -> u64 {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        length.saturating_sub(self.offset)
    }

    /// Returns the numbers so far.
    pub const fn counts(&self) -> FollowCounts {
        self.counts
    }

    fn position_with(&self, beginning: Mark) -> LogPosition {
        LogPosition {
            device: self.device,
            inode: self.inode,
            offset: self.offset,
            beginning_bytes: beginning.bytes,
            beginning: beginning.hash,
            end_bytes: self.end.bytes,
            end: self.end.hash,
        }
    }

    fn pass_on(&mut self, take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        // Zeros are the hole of a log that was truncated while its server kept its position. A hole may be longer than
        // a line.
        if !self.inside_long_line {
            let zeros = self.unread.iter().take_while(|byte| **byte == 0).count();
            self.consume(zeros);
        }
        let bytes = self.unread.make_contiguous();
        let (mut used, mut flow) = (0, ControlFlow::Continue(()));
        while flow.is_continue()
            && let Some(length) = memchr::memchr(b'\n', &bytes[used..])
        {
            let line = &bytes[used..used + length];
            used += length + 1;
            if std::mem::take(&mut self.inside_long_line) || line.len() > Self::LINE_BYTES_MAX {
                self.counts.long_lines += 1;
                continue;
            }
            let zeros = line.iter().take_while(|byte| **byte == 0).count();
            let line = &line[zeros..];
            self.counts.lines += 1;
            flow = take(line.strip_suffix(b"\r").unwrap_or(line));
        }
        self.consume(used);
        if flow.is_continue() && self.unread.len() > Self::LINE_BYTES_MAX {
            self.inside_long_line = true;
            self.consume(self.unread.len());
        }
        flow
    }

    /// Advances to a later offset in `unread`.
    fn consume(&mut self, count: usize) {
        if count > 0 {
            let first = count.saturating_sub(MARK_BYTES);
            self.end = Mark::new(&self.unread.make_contiguous()[first..count]);
            self.unread.drain(..count);
            self.offset += count as u64;
        }
    }

    /// Reads more bytes. Returns false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        let mut buffer = [0; READ_BYTES];
        let count = loop {
            match self.file.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.unread.extend(&buffer[..count]);
        if self.beginning.bytes < MARK_BYTES as u64 {
            let read = self.offset + self.unread.len() as u64;
            self.beginning = Mark::first_of(&self.file, read)?;
        }
        Ok(count > 0)
    }

    /// Handles the end of the file. Returns true if there is more to read, because the file was truncated or another
    /// one has replaced it.
    fn open_next(&mut self) -> io::Result<bool> {
        let read = self.offset + self.unread.len() as u64;
        if self.file.metadata()?.len() < read {
            self.restart()?;
            return Ok(true);
        }
        let metadata = match fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            // Between the rotation and the creation of the new file.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if (metadata.dev(), metadata.ino()) == (self.device, self.inode) {
            return Ok(false);
        }
        self.ends_after_rotation += 1;
        if self.ends_after_rotation < ENDS_MIN && !self.is_copy {
            return Ok(false);
        }
        let next = match next_file(&self.path, &self.file.metadata()?) {
            Some(path) => path,
            None => self.path.clone(),
        };
        let file = match File::open(next) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        self.counts.rotations += u64::from(!self.is_copy);
        self.is_copy = false;
        self.follow(file, &metadata, 0)?;
        Ok(true)
    }

    /// Returns true if the file has other bytes than those that were read. It was truncated and written again, and may
    /// be longer than before.
    fn is_rewritten(&self) -> io::Result<bool> {
        Ok(
            !self.beginning.is_at(&self.file, 0)?
                || !self.end.is_before(&self.file, self.offset)?,
        )
    }

    /// Reads a truncated log from its start, after the rest of its copy.
    fn restart(&mut self) -> io::Result<()> {
        self.counts.truncations += 1;
        match moved_file(&self.path, &self.position_with(self.beginning)) {
            Some((file, metadata)) if metadata.ino() != self.inode => {
                self.is_copy = true;
                self.follow(file, &metadata, self.offset)
            }
            _ => self.seek(0),
        }
    }

    fn follow(&mut self, file: File, metadata: &Metadata, offset: u64) -> io::Result<()> {
        (self.device, self.inode) = (metadata.dev(), metadata.ino());
        self.file = file;
        self.ends_after_rotation = 0;
        self.seek(offset)
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.offset = offset;
        self.unread.clear();
        self.inside_long_line = false;
        self.beginning = Mark::first_of(&self.file, offset)?;
        let end = offset.min(MARK_BYTES as u64);
        self.end = Mark::read(&self.file, offset - end, end)?;
        Ok(())
    }

    fn error(&self, source: io::Error) -> FollowError {
        FollowError {
            path: self.path.clone(),
            source,
        }
    }
}

/// Returns the offset after the last line feed, so that a line that is being written is read as a whole.
fn end_of_last_line(file: &File, length: u64) -> io::Result<u64> {
    let start = length.saturating_sub(READ_BYTES as u64);
    let mut bytes = vec![0; READ_BYTES];
    let count = read_at(file, &mut bytes, start)?;
    let last = memchr::memrchr(b'\n', &bytes[..count]);
    Ok(last.map_or(length, |at| start + at as u64 + 1))
}

/// Returns true if a file is that of a position.
fn is_file_of(position: &LogPosition, file: &File, metadata: &Metadata) -> bool {
    let is_inode = (metadata.dev(), metadata.ino()) == (position.device, position.inode);
    is_inode && has_content_of(position, file, metadata)
}

/// Returns true if a file has the first and the last bytes of a position.
fn has_content_of(position: &LogPosition, file: &File, metadata: &Metadata) -> bool {
    let mark = |bytes, hash| Mark { bytes, hash };
    let beginning = mark(position.beginning_bytes, position.beginning);
    let end = mark(position.end_bytes, position.end);
    let has_both = beginning.is_at(file, 0).and_then(|has_beginning| {
        let has_end = end.is_before(file, position.offset)?;
        Ok(has_beginning && has_end)
    });
    metadata.len() >= position.offset && has_both.unwrap_or(false)
}

/// Finds the file of a position in the folder of the log, after a rotation has renamed or copied it.
fn moved_file(path: &Path, position: &LogPosition) -> Option<(File, Metadata)> {
    let mut copy = None;
    for entry in folder_of(path).read_dir().ok()?.flatten() {
        let is_inode = entry
            .metadata()
            .is_ok_and(|found| found.ino() == position.inode);
        let may_be_copy = position.beginning_bytes > 0
            && rotation(path, &entry.file_name().to_string_lossy()).is_some();
        if !is_inode && !may_be_copy {
            continue;
        }
        let Some((file, metadata)) = opened(&entry.path()) else {
            continue;
        };
        if is_file_of(position, &file, &metadata) {
            return Some((file, metadata));
        }
        if may_be_copy && has_content_of(position, &file, &metadata) {
            copy = Some((file, metadata));
        }
    }
    copy
}

/// Returns the path of the file that replaced `old`, if a later rotation has renamed it: of all rotated files that were
/// written after it, the first one. Its name has the form of that of `old`, if that file is still there: the folder may
/// have logs of others, such as `access-8080.log`.
fn next_file(path: &Path, old: &Metadata) -> Option<PathBuf> {
    let written = |metadata: &Metadata| (metadata.mtime(), metadata.mtime_nsec());
    let entries = folder_of(path).read_dir().ok()?.flatten();
    let rotated = entries.filter_map(|entry| {
        let form = rotation(path, &entry.file_name().to_string_lossy())?;
        let metadata = entry.metadata().ok().filter(Metadata::is_file)?;
        Some((form, metadata, entry.path()))
    });
    let rotated: Vec<_> = rotated.collect();
    let of_old = rotated
        .iter()
        .find(|(_, metadata, _)| metadata.ino() == old.ino())
        .map(|(form, ..)| *form);
    let others = rotated.into_iter();
    others
        .filter(|(form, metadata, _)| {
            metadata.ino() != old.ino() && of_old.is_none_or(|of_old| of_old == *form)
        })
        .map(|(_, metadata, path)| (written(&metadata), path))
        .filter(|(time, _)| *time > written(old))
        .min()
        .map(|(_, path)| path)
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn opened(path: &Path) -> Option<(File, Metadata)> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    Some((file, metadata))
}

const READ_BYTES: usize = 64 << 10;

/// The number of bytes from which the format is detected: a few hundred lines.
const BEGINNING_BYTES: usize = 64 << 10;

/// The number of reads in a row that must find the end of a file which was replaced. nginx writes to it until its
/// workers have handled the signal to open the new one.
const ENDS_MIN: u32 = 5;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::{Duration, SystemTime};

    use super::*;

    struct Log {
        folder: tempfile::TempDir,
        file: File,
    }

    impl Log {
        fn new(text: &str) -> Self {
            let folder = tempfile::tempdir().expect("the folder can be created");
            let mut file = File::options()
                .append(true)
                .create_new(true)
                .open(folder.path().join("access.log"))
                .expect("the file can be created");
            file.write_all(text.as_bytes())
                .expect("the file can be written");
            Self { folder, file }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("access.log")
        }

        fn write(&mut self, text: &str) {
            self.file
                .write_all(text.as_bytes())
                .expect("the file can be written");
        }

        /// Renames the file, and those of earlier rotations. Returns it: its server still writes to it. The times of
        /// the files are seconds apart, as the test may rotate faster than the clock of files.
        fn rotate(&mut self, text: &str) -> File {
            let rotated = |n: usize| self.folder.path().join(format!("access.log.{n}"));
            let count = (1..).take_while(|n| rotated(*n).exists()).count();
            for n in (1..=count).rev() {
                fs::rename(rotated(n), rotated(n + 1)).expect("the file can be renamed");
            }
            fs::rename(self.path(), rotated(1)).expect("the file can be renamed");
            for n in 1..=count + 1 {
                let time = SystemTime::now() - Duration::from_secs(100 * n as u64);
                let file = File::options().append(true).open(rotated(n));
                let set = file.expect("the file can be opened").set_modified(time);
                set.expect("the time can be set");
            }
            let new = File::options()
                .append(true)
                .create_new(true)
                .open(self.path())
                .expect("the file can be created");
            let old = std::mem::replace(&mut self.file, new);
            self.write(text);
            old
        }

        /// Copies the file, writes to it, and truncates it, as logrotate does with `copytruncate`.
        fn copy_and_truncate(&mut self, text: &str) {
            let copy = self.folder.path().join("access.log.1");
            fs::copy(self.path(), copy).expect("the file can be copied");
            self.file.set_len(0).expect("the file can be truncated");
            self.write(text);
        }

        fn follow(&self, start: Start) -> Follower {
            Follower::open(&self.path(), start).expect("the log can be opened")
        }
    }

    /// Returns the lines of one read.
    fn lines(follower: &mut Follower) -> Vec<String> {
        let mut lines = Vec::new();
        let state = follower.read(&mut |line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            ControlFlow::Continue(())
        });
        assert_eq!(state.expect("the log can be read"), FollowState::End);
        lines
    }

    /// Returns the lines of as many reads as a rotation needs.
    fn all_lines(follower: &mut Follower) -> Vec<String> {
        (0..=ENDS_MIN).flat_map(|_| lines(follower)).collect()
    }

    #[test]
    fn complete_lines_are_passed_on_once_from_the_chosen_start() {
        let mut log = Log::new("a\nb\r\nc");
        let mut all = log.follow(Start::Beginning);
        let mut new = log.follow(Start::End);
        assert_eq!(lines(&mut all), ["a", "b"]);
        assert_eq!(lines(&mut new), [""; 0]);
        log.write("d\ne\n");
        assert_eq!(lines(&mut all), ["cd", "e"]);
        assert_eq!(lines(&mut new), ["cd", "e"]);
        assert_eq!(all.counts().lines, 4);
        assert_eq!(all.behind_bytes(), 0);
    }

    #[test]
    fn lines_that_are_written_during_a_rotation_are_read() {
        let mut log = Log::new("a\n");
        let mut follower = log.follow(Start::Beginning);
        assert_eq!(lines(&mut follower), ["a"]);
        let mut old = log.rotate("d\n");
        old.write_all(b"b\n").expect("the file can be written");
        assert_eq!(lines(&mut follower), ["b"]);
        old.write_all(b"c\n").expect("the file can be written");
        assert_eq!(all_lines(&mut follower), ["c", "d"]);
        log.write("e\n");
        assert_eq!(lines(&mut follower), ["e"]);
        assert_eq!(follower.counts().rotations, 1);
    }

    #[test]
    fn a_log_that_is_missing_for_a_while_is_followed_when_it_returns() {
        let mut log = Log::new("a\n");
        let mut follower = log.follow(Start::Beginning);
        fs::remove_file(log.path()).expect("the file can be removed");
        assert_eq!(all_lines(&mut follower), ["a"]);
        log.file = File::create_new(log.path()).expect("the file can be created");
        log.write("b\n");
        assert_eq!(all_lines(&mut follower), ["b"]);
    }

    #[test]
    fn a_truncated_log_is_read_from_its_start() {
        let mut log = Log::new("aaaa\nbbbb\n");
        let mut follower = log.follow(Start::Beginning);
        assert_eq!(lines(&mut follower).len(), 2);
        log.file.set_len(0).expect("the file can be truncated");
        log.write("c\n");
        assert_eq!(lines(&mut follower), ["c"]);
        assert_eq!(follower.counts().truncations, 1);
    }

    /// The files of the rotations in between are read in their order, and other files of the folder are not.
    #[test]
    fn no_line_is_lost_if_a_log_is_rotated_several_times_between_two_reads() {
        let mut log = Log::new("a\n");
        let mut follower = log.follow(Start::Beginning);
        assert_eq!(lines(&mut follower), ["a"]);
        log.write("b\n");
        for other in [
            "access-8080.log",
            "access2.log",
            "access.log.9.gz",
            "other.log.1",
        ] {
            fs::write(log.folder.path().join(other), "x\n").expect("the file can be written");
        }
        for text in ["c\n", "d\n", "e\n"] {
            drop(log.rotate(text));
        }
        let mut all = all_lines(&mut follower);
        for _ in 0..2 {
            all.extend(all_lines(&mut follower));
        }
        assert_eq!(all, ["b", "c", "d", "e"]);
        assert_eq!(follower.counts().rotations, 3);
        // A later process finds them, too.
        let position = follower.position().expect("the file can be read");
        for text in ["f\n", "g\n"] {
            drop(log.rotate(text));
        }
        let mut later = log.follow(Start::At(position));
        let all: Vec<String> = (0..2).flat_map(|_| all_lines(&mut later)).collect();
        assert_eq!(all, ["f", "g"]);
        assert!(!later.counts().is_position_lost);
    }

    /// The lines that were not read before the truncation are in the copy, also if the log has become longer than it
    /// was, or begins with the hole of a server that kept its position.
    #[test]
    fn no_line_of_a_copy_is_lost_if_the_log_is_truncated() {
        for (new, expected) in [
            ("d\n", &["d"][..]),
            ("dddddddd\neeee\n", &["dddddddd", "eeee"]),
            ("\0\0\0\0\0\0\0\0\0d\n", &["d"]),
            ("", &[]),
        ] {
            let mut log = Log::new("aaaa\n");
            let mut follower = log.follow(Start::Beginning);
            assert_eq!(lines(&mut follower), ["aaaa"]);
            log.write("bb\ncc\n");
            let position = follower.position().expect("the file can be read");
            log.copy_and_truncate(new);
            let all = [&["bb", "cc"], expected].concat();
            assert_eq!(all_lines(&mut follower), all, "{new:?}");
            let counts = follower.counts();
            assert_eq!((counts.truncations, counts.rotations), (1, 0), "{new:?}");
            log.write("f\n");
            assert_eq!(lines(&mut follower), ["f"], "{new:?}");
            // A process that starts later finds its position in the copy.
            let mut later = log.follow(Start::At(position));
            let all = [&all[..], &["f"]].concat();
            assert_eq!(all_lines(&mut later), all, "{new:?}");
            assert!(!later.counts().is_position_lost, "{new:?}");
        }
    }

    /// Method: a server that keeps its position, so that the log and all copies begin with a hole.
    #[test]
    fn no_line_of_a_copy_is_lost_if_a_log_with_a_hole_is_truncated_again() {
        let after_hole = |bytes, lines: &str| "\0".repeat(bytes) + lines;
        let mut log = Log::new(&after_hole(2 * MARK_BYTES, "a\n"));
        let mut follower = log.follow(Start::Beginning);
        assert_eq!(lines(&mut follower), ["a"]);
        let position = follower.position().expect("the file can be read");
        let older = log.folder.path().join("access.log.2");
        fs::write(older, after_hole(2 * MARK_BYTES, "x\ny\n")).expect("the file can be written");
        log.write("b\n");
        log.copy_and_truncate(&after_hole(2 * MARK_BYTES + 4, "c\n"));
        assert_eq!(all_lines(&mut follower), ["b", "c"]);
        assert_eq!(follower.counts().truncations, 1);
        let mut later = log.follow(Start::At(position));
        assert_eq!(all_lines(&mut later), ["b", "c"]);
        assert!(!later.counts().is_position_lost);
    }

    #[test]
    fn a_later_process_continues_at_the_position() {
        let mut log = Log::new("a\nb\nc");
        let mut first = log.follow(Start::Beginning);
        let stopped = first.read(&mut |_| ControlFlow::Break(()));
        assert_eq!(stopped.expect("the log can be read"), FollowState::Stopped);
        let position = first.position().expect("the file can be read");
        assert_eq!(lines(&mut log.follow(Start::At(position))), ["b"]);
        // The log is rotated while no process reads it.
        log.write("d\n");
        drop(log.rotate("e\n"));
        let mut second = log.follow(Start::At(position));
        assert_eq!(all_lines(&mut second), ["b", "cd", "e"]);
        assert!(!second.counts().is_position_lost);
    }

    #[test]
    fn a_position_in_a_file_that_is_gone_is_the_start_of_the_log() {
        let mut log = Log::new("a\nb\n");
        let mut first = log.follow(Start::Beginning);
        assert_eq!(lines(&mut first).len(), 2);
        let position = first.position().expect("the file can be read");
        // The same inode with other content, longer than the position.
        log.file.set_len(0).expect("the file can be truncated");
        log.write("c\nd\ne\n");
        let mut second = log.follow(Start::At(position));
        assert_eq!(lines(&mut second), ["c", "d", "e"]);
        assert!(second.counts().is_position_lost);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_in_bounded_memory() {
        let long = "x".repeat(Follower::LINE_BYTES_MAX + READ_BYTES);
        let mut log = Log::new(&format!("a\n{long}"));
        let mut follower = log.follow(Start::Beginning);
        assert_eq!(lines(&mut follower), ["a"]);
        assert!(follower.unread.len() <= Follower::LINE_BYTES_MAX);
        log.write(&format!("{long}\n\0\0b\n"));
        assert_eq!(lines(&mut follower), ["b"]);
        assert_eq!(follower.counts().long_lines, 1);
    }

    #[test]
    fn a_folder_and_a_missing_log_are_errors() {
        let folder = tempfile::tempdir().expect("the folder can be created");
        for path in [folder.path().to_owned(), folder.path().join("gone.log")] {
            let error = Follower::open(&path, Start::End).expect_err("the log is no file");
            assert!(error.to_string().contains("cannot read the log"), "{error}");
        }
    }
}
