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
        };
        Ok(Some((log, content)))
    }

    /// Creates or replaces a file with these bytes. After a crash, the new file is complete or the old one unchanged.
    pub(super) fn create(path: &Path, bytes: &[u8]) -> io::Result<Self> {
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
        // The rename is durable after a sync of the directory.
        let directory = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()?;
        Ok(Self {
            file,
            path: path.to_owned(),
            bytes: bytes.len() as u64,
        })
    }

    /// Replaces the content of the file, as [`create`](Self::create) does.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        *self = Self::create(&self.path, bytes)?;
        Ok(())
    }

    /// Appends bytes and syncs them. After an error, the caller must replace the content.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.bytes)?;
        self.file.sync_data()?;
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
        }
    }
}
