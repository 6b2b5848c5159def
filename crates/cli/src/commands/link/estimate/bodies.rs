//! The estimate for files and folders: the estimator sends each file as one body over a simulated link.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;

use edgeward_link::opaque_type;

use super::document::{Estimate, FileOrder, Row};

impl Estimate {
    /// Sends all files at or below `path`, in the order of their names or times. Symbolic links and devices in a folder
    /// are skipped.
    pub(super) fn files(&mut self, path: &Path) -> anyhow::Result<()> {
        let before = self.estimator.savings();
        // The given path itself must exist. A file inside a folder may disappear while the folder is read.
        fs::metadata(path).with_context(|| format!("{}", path.display()))?;
        let mut timed_paths = Vec::new();
        let mut unread_paths = vec![path.to_owned()];
        while let Some(path) = unread_paths.pop() {
            if path.is_dir() {
                match entries(&path) {
                    Ok(entries) => unread_paths.extend(entries.into_iter().rev()),
                    Err(error) => self.add_problem(&path, &error),
                }
            } else if self.order == FileOrder::Time {
                timed_paths.push((changed_at(&path), path));
            } else {
                self.send(&path);
            }
        }
        // The sort is stable, so files with one time keep the order of their names.
        timed_paths.sort_by_key(|(time, _)| *time);
        for (_, path) in timed_paths {
            self.send(&path);
        }
        let name = path.display().to_string();
        let row = Row::of(name, "files", &self.estimator.savings().since(&before));
        self.document.rows.push(row);
        Ok(())
    }

    /// Sends one file as a body, and counts its savings by content type.
    fn send(&mut self, path: &Path) {
        let before = self.estimator.savings();
        match self.file(path) {
            Ok(content_type) => {
                let saved = self.estimator.savings().since(&before);
                self.content_types.add(content_type, &saved);
            }
            Err(error) => self.add_problem(path, &error),
        }
    }

    /// Sends one file as a body, and returns its content type.
    fn file(&mut self, path: &Path) -> io::Result<String> {
        let mut file = File::open(path)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bytes = read(&mut file, &mut buffer)?;
        let opaque = opaque_type(&buffer[..bytes]);
        // The body has no label. A link does not deduplicate encrypted bodies and media, unless its probe is off.
        let stream = self
            .estimator
            .begin(b"", opaque.is_none() || !self.probe)
            .expect("no other body is open");
        let mut result = Ok(());
        while bytes > 0 {
            let written = self.estimator.write(stream, &buffer[..bytes]);
            written.expect("the stream is open");
            self.progress.advance(bytes as u64);
            match read(&mut file, &mut buffer) {
                Ok(next) => bytes = next,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.estimator.end(stream).expect("the stream is open");
        result?;
        Ok(opaque.map_or_else(|| extension(path), str::to_owned))
    }

    fn add_problem(&mut self, path: &Path, error: &io::Error) {
        self.problems.push(format!("{}: {error}", path.display()));
    }
}

/// Reads bytes, and repeats a read that a signal has interrupted.
fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Returns the extension of a file with its dot, in lower case.
fn extension(path: &Path) -> String {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.map_or_else(
        || "(no extension)".to_owned(),
        |extension| format!(".{}", extension.to_ascii_lowercase()),
    )
}

/// Returns the time of the last change. A file without one is sent first.
fn changed_at(path: &Path) -> SystemTime {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.unwrap_or(SystemTime::UNIX_EPOCH)
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
