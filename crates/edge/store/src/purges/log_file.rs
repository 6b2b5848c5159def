//! A file whose changes are durable when the call that makes them returns.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    /// The length of the durable content. The next bytes are appended here.
    bytes: u64,
    /// True after a failed append, which may have left a part of its bytes behind the durable content.
    has_torn_append: bool,
    /// True after a rename, until the directory is synced.
    has_unsynced_name: bool,
}

impl LogFile {
    /// Opens a file and returns it with its content. Returns `None` if the file does not exist.
    pub(super) fn open(path: &Path) -> io::Result<Option<(Self, Vec<u8>)>> {
        let content = match fs::read(path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let file = OpenOptions::new().write(true).open(path)?;
        let log = Self {
            file,
            path: path.to_owned(),
            bytes: content.len() as u64,
            has_torn_append: false,
            has_unsynced_name: false,
        };
        Ok(Some((log, content)))
    }

    /// Creates or replaces a file with these bytes. After a crash, the new file is complete or the old one unchanged.
    pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<Self> {
        let mut log = Self::rename_into(path, bytes)?;
        log.sync_name()?;
        Ok(log)
    }

    /// Creates or replaces a file with these bytes. A crash may still undo this.
    fn rename_into(path: &Path, bytes: &[u8]) -> io::Result<Self> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".new");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            bytes: bytes.len() as u64,
            has_torn_append: false,
            has_unsynced_name: true,
        })
    }

    /// Syncs the directory, so that a rename is durable.
    fn sync_name(&mut self) -> io::Result<()> {
        let directory = self
            .path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
        self.has_unsynced_name = false;
        Ok(())
    }

    /// Replaces the content of the file, as [`create`](Self::create) does. If only the sync of the directory fails, the
    /// new file is used, and the next append repeats the sync.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        *self = Self::rename_into(&self.path, bytes)?;
        self.sync_name()
    }

    /// Appends bytes and syncs them. After an error, the caller must replace the content. If this fails too, the next
    /// append removes the bytes that this one left.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.has_torn_append {
            self.file.set_len(self.bytes)?;
        }
        self.has_torn_append = true;
        self.file.write_all_at(bytes, self.bytes)?;
        self.file.sync_data()?;
        if self.has_unsynced_name {
            self.sync_name()?;
        }
        self.has_torn_append = false;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Shortens the file to `bytes`. Does nothing if the file is not longer.
    pub(super) fn cut(&mut self, bytes: u64) -> io::Result<()> {
        if bytes < self.bytes {
            self.file.set_len(bytes)?;
            self.file.sync_all()?;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Returns the length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a file that cannot be written.
    #[cfg(test)]
    pub(super) fn read_only(path: &Path) -> Self {
        Self {
            file: File::open(path).expect("the file exists"),
            path: path.to_owned(),
            bytes: 0,
            has_torn_append: false,
            has_unsynced_name: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_removes_the_bytes_that_a_failed_one_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut log = LogFile::create(&path, b"start").expect("created");
        log.file.write_all_at(b"half of", 5).expect("written");
        log.has_torn_append = true;
        log.append(b"+1").expect("appended");
        assert_eq!(fs::read(&path).expect("read"), b"start+1");
        assert_eq!(log.bytes(), 7);
    }

    #[test]
    fn an_append_after_a_rename_is_in_the_named_file_and_syncs_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        LogFile::create(&path, b"old").expect("created");
        let mut log = LogFile::rename_into(&path, b"new").expect("renamed");
        assert!(log.has_unsynced_name);
        log.append(b"+1").expect("appended");
        assert!(!log.has_unsynced_name);
        assert_eq!(fs::read(&path).expect("read"), b"new+1");
    }
}
