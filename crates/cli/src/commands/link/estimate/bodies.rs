//! The estimate for files and folders: the estimator sends each file as one body over a simulated link.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::document::{Estimate, Row};

impl Estimate {
    /// Sends all files at or below `path`, in the order of their names. Symbolic links and devices in a folder are
    /// skipped.
    pub(super) fn files(&mut self, path: &Path) -> anyhow::Result<()> {
        let before = self.estimator.savings();
        // The given path itself must exist. A file inside a folder may disappear while the folder is read.
        fs::metadata(path).with_context(|| format!("{}", path.display()))?;
        let mut unread_paths = vec![path.to_owned()];
        while let Some(path) = unread_paths.pop() {
            if path.is_dir() {
                match entries(&path) {
                    Ok(entries) => unread_paths.extend(entries.into_iter().rev()),
                    Err(error) => self.add_problem(&path, &error),
                }
            } else if let Err(error) = self.file(&path) {
                self.add_problem(&path, &error);
            }
        }
        let name = path.display().to_string();
        let row = Row::of(name, "files", &self.estimator.savings().since(&before));
        self.document.rows.push(row);
        Ok(())
    }

    /// Sends one file as a body.
    fn file(&mut self, path: &Path) -> io::Result<()> {
        let mut file = File::open(path)?;
        // The body has no label, and is deduplicated.
        let stream = self
            .estimator
            .begin(b"", true)
            .expect("no other body is open");
        let mut buffer = vec![0; BUFFER_BYTES];
        let read = loop {
            match file.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(bytes) => {
                    let written = self.estimator.write(stream, &buffer[..bytes]);
                    written.expect("the stream is open");
                    self.progress.advance(bytes as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.estimator.end(stream).expect("the stream is open");
        read
    }

    fn add_problem(&mut self, path: &Path, error: &io::Error) {
        self.problems.push(format!("{}: {error}", path.display()));
    }
}

/// The files and folders in a folder, in the order of their names.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() || kind.is_file() {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

const BUFFER_BYTES: usize = 256 << 10;
