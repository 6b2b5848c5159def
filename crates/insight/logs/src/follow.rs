//! Follows a log that its server still writes, across rotation and truncation.
//!
//! [`Follower::read`] passes on the lines that are complete, and returns at the end of the file instead of waiting. The
//! caller decides when it tries again, so that this module needs no clock.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use edgeward_types::xxh3::xxh3_64;

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
                false => match renamed_file(path, &position) {
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
    /// have found nothing: the server may write to it until it has opened the new one.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read. A log that is missing is no error, because its server will create it.
    pub fn read(
        &mut self,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<FollowState, FollowError> {
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
        let beginning_bytes = self.offset.min(MARK_BYTES as u64);
        let beginning = beginning_hash(&self.file, beginning_bytes);
        Ok(LogPosition {
            device: self.device,
            inode: self.inode,
            offset: self.offset,
            beginning_bytes,
            beginning: beginning.map_err(|error| self.error(error))?,
        })
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

    fn pass_on(&mut self, take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
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
            // Zeros are the hole of a log that was truncated while its server kept its position.
            let zeros = line.iter().take_while(|byte| **byte == 0).count();
            let line = &line[zeros..];
            self.counts.lines += 1;
            flow = take(line.strip_suffix(b"\r").unwrap_or(line));
        }
        self.unread.drain(..used);
        self.offset += used as u64;
        if flow.is_continue() && self.unread.len() > Self::LINE_BYTES_MAX {
            self.inside_long_line = true;
            self.offset += self.unread.len() as u64;
            self.unread.clear();
        }
        flow
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
        Ok(count > 0)
    }

    /// Handles the end of the file. Returns true if there is more to read, because the file was truncated or another
    /// one has replaced it.
    fn open_next(&mut self) -> io::Result<bool> {
        let read = self.offset + self.unread.len() as u64;
        if self.file.metadata()?.len() < read {
            self.counts.truncations += 1;
            self.seek(0)?;
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
        if self.ends_after_rotation < ENDS_MIN {
            return Ok(false);
        }
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        (self.device, self.inode) = (metadata.dev(), metadata.ino());
        self.file = file;
        self.counts.rotations += 1;
        self.ends_after_rotation = 0;
        self.seek(0)?;
        Ok(true)
    }

    fn seek(&mut self, offset: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(offset))?;
        self.offset = offset;
        self.unread.clear();
        self.inside_long_line = false;
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
    (metadata.dev(), metadata.ino()) == (position.device, position.inode)
        && metadata.len() >= position.offset
        && beginning_hash(file, position.beginning_bytes)
            .is_ok_and(|beginning| beginning == position.beginning)
}

/// Finds the file of a position in the folder of the log, after a rotation has renamed it.
fn renamed_file(path: &Path, position: &LogPosition) -> Option<(File, Metadata)> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let entries = folder.read_dir().ok()?.flatten();
    entries
        .filter(|entry| {
            entry
                .metadata()
                .is_ok_and(|found| found.ino() == position.inode)
        })
        .find_map(|entry| {
            let file = File::open(entry.path()).ok()?;
            let metadata = file.metadata().ok()?;
            is_file_of(position, &file, &metadata).then_some((file, metadata))
        })
}

fn beginning_hash(file: &File, bytes: u64) -> io::Result<u64> {
    let length = usize::try_from(bytes).map_or(MARK_BYTES, |bytes| bytes.min(MARK_BYTES));
    let mut beginning = vec![0; length];
    let count = read_at(file, &mut beginning, 0)?;
    Ok(xxh3_64(&beginning[..count]))
}

/// Reads at an offset until the buffer is full or the file ends.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

const READ_BYTES: usize = 64 << 10;

/// The number of bytes from which the format is detected: a few hundred lines.
const BEGINNING_BYTES: usize = 64 << 10;

/// The number of first bytes that identify a file. A line of a log has a time, so two files differ in them.
const MARK_BYTES: usize = 256;

/// The number of reads in a row that must find the end of a file which was replaced. nginx writes to it until its
/// workers have handled the signal to open the new one.
const ENDS_MIN: u32 = 5;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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

        /// Renames the file. Returns it: its server still writes to it.
        fn rotate(&mut self, text: &str) -> File {
            fs::rename(self.path(), self.folder.path().join("access.log.1"))
                .expect("the file can be renamed");
            let new = File::options()
                .append(true)
                .create_new(true)
                .open(self.path())
                .expect("the file can be created");
            let old = std::mem::replace(&mut self.file, new);
            self.write(text);
            old
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
