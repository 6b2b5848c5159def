//! Temporary folders that are removed when the lab ends.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary folder. Before a new folder is created, the folders of killed runs are removed.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new(parent: &Path) -> io::Result<Self> {
        for entry in fs::read_dir(parent)?.flatten() {
            if is_left_behind(entry.file_name().to_str()) {
                _ = fs::remove_dir_all(entry.path());
            }
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&path)?;
        // Servers run with another working folder, so the path must be absolute.
        let path = fs::canonicalize(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A server that is ending may still write into the folder, so that the first attempt fails.
        for _ in 0..3 {
            if fs::remove_dir_all(&self.path).is_ok() {
                return;
            }
        }
    }
}

/// Returns true if a folder with this name belongs to a lab whose process has ended.
fn is_left_behind(name: Option<&str>) -> bool {
    let owner = name.and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
    let pid = owner.and_then(|(pid, _)| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

const PREFIX: &str = "edgeward-lab-";

static NEXT: AtomicU32 = AtomicU32::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_removes_the_folder_and_creating_removes_left_over_folders() {
        let parent = tempfile::tempdir().expect("the folder is created");
        let left_over = parent.path().join(format!("{PREFIX}4294967295-0"));
        let other = parent.path().join("edgeward-lab-notes");
        fs::create_dir_all(left_over.join("inner")).expect("the folder is created");
        fs::create_dir(&other).expect("the folder is created");
        let first = Scratch::new(parent.path()).expect("the folder is created");
        let second = Scratch::new(parent.path()).expect("the folder is created");
        assert_ne!(first.path(), second.path());
        assert!(first.path().is_dir() && other.is_dir() && !left_over.exists());
        let path = first.path().to_owned();
        fs::write(path.join("x"), "x").expect("the file is written");
        drop(first);
        assert!(!path.exists() && second.path().is_dir());
    }
}
