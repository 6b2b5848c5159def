//! Finds the logs to read from the arguments: files, folders, patterns and stdin.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// A log to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path of the log, or `None` for stdin.
    pub path: Option<PathBuf>,
    /// The name of the log in reports.
    pub label: String,
    /// The size of the log on disk in bytes, or 0 if unknown.
    pub bytes: u64,
    /// The name of the machine that wrote the log, taken from the name of its folder. Empty if all logs are in
    /// one folder.
    pub machine: String,
}

/// Why the logs cannot be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The path does not exist or cannot be accessed.
    #[error("{} cannot be opened", .path.display())]
    Missing {
        /// The path that was given.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The folder cannot be read.
    #[error("the folder {} cannot be read", .path.display())]
    Folder {
        /// The path of the folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The pattern is invalid or matches no file.
    #[error("{pattern} matches no file")]
    NoMatch {
        /// The pattern that was given.
        pattern: String,
    },
    /// The folder contains no files.
    #[error("the folder {} contains no logs", .path.display())]
    EmptyFolder {
        /// The path of the folder.
        path: PathBuf,
    },
    /// Stdin is given twice but can be read only once.
    #[error("stdin is given twice")]
    StdinTwice,
    /// There are more files than the limit.
    #[error("more than {FILES_MAX} files")]
    TooMany,
}

/// Finds the logs for command line arguments: files, folders (all files in them recursively, except hidden files and
/// folders), patterns with `*`, `?` and `[…]`, and `-` for stdin. A file that is given twice is read once.
///
/// # Errors
///
/// Returns an error if no file is found for an argument, a file or folder cannot be read, stdin is given twice, or
/// there are more than a million files.
pub fn find(arguments: &[PathBuf]) -> Result<Vec<Source>, FindError> {
    let mut list = SourceList::default();
    for name in arguments {
        if name.as_os_str() == "-" {
            if list.stdin {
                return Err(FindError::StdinTwice);
            }
            list.stdin = true;
            list.sources.push(Source {
                path: None,
                label: "stdin".to_owned(),
                bytes: 0,
                machine: String::new(),
            });
        } else if name.exists() {
            list.add(name)?;
        } else {
            list.add_matches(name)?;
        }
    }
    let mut sources = list.sources;
    name_machines(&mut sources);
    Ok(sources)
}

#[derive(Default)]
struct SourceList {
    sources: Vec<Source>,
    /// The canonical paths of `sources`.
    canonical_paths: HashSet<PathBuf>,
    /// The number of files found, including duplicates.
    files_found: usize,
    stdin: bool,
}

impl SourceList {
    fn add(&mut self, path: &Path) -> Result<(), FindError> {
        if !path.is_dir() {
            return self.add_file(path);
        }
        let before = self.files_found;
        self.add_folder(path, 0)?;
        if before == self.files_found {
            return Err(FindError::EmptyFolder { path: path.into() });
        }
        Ok(())
    }

    fn add_file(&mut self, path: &Path) -> Result<(), FindError> {
        self.files_found += 1;
        let missing = |source| FindError::Missing {
            path: path.into(),
            source,
        };
        let real = path.canonicalize().map_err(missing)?;
        let metadata = path.metadata().map_err(missing)?;
        if !self.canonical_paths.insert(real) {
            return Ok(());
        }
        if self.sources.len() >= FILES_MAX {
            return Err(FindError::TooMany);
        }
        self.sources.push(Source {
            path: Some(path.into()),
            label: path.display().to_string(),
            bytes: if metadata.is_file() {
                metadata.len()
            } else {
                0
            },
            machine: String::new(),
        });
        Ok(())
    }

    /// Adds the files of a folder and then its subfolders, each sorted by name.
    fn add_folder(&mut self, folder: &Path, depth: usize) -> Result<(), FindError> {
        let error = |source| FindError::Folder {
            path: folder.into(),
            source,
        };
        let (mut files, mut folders) = (Vec::new(), Vec::new());
        for entry in folder.read_dir().map_err(error)? {
            let entry = entry.map_err(error)?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let kind = entry.file_type().map_err(error)?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if entry.path().is_file() {
                // Links to files are followed. Links to folders are not, because they may form a cycle.
                files.push(entry.path());
            }
        }
        files.sort();
        folders.sort();
        files.iter().try_for_each(|file| self.add_file(file))?;
        if depth < DEPTH_MAX {
            for folder in &folders {
                self.add_folder(folder, depth + 1)?;
            }
        }
        Ok(())
    }

    fn add_matches(&mut self, name: &Path) -> Result<(), FindError> {
        let missing = || FindError::Missing {
            path: name.into(),
            // This is the system's error, unless the file was created in the meantime.
            source: name
                .metadata()
                .err()
                .unwrap_or_else(|| io::ErrorKind::NotFound.into()),
        };
        let pattern = name
            .to_str()
            .filter(|text| text.contains(['*', '?', '[']))
            .ok_or_else(missing)?;
        let no_match = || FindError::NoMatch {
            pattern: pattern.to_owned(),
        };
        let mut matched = false;
        for path in glob::glob(pattern).map_err(|_| no_match())?.flatten() {
            matched = true;
            self.add(&path)?;
        }
        matched.then_some(()).ok_or_else(no_match)
    }
}

/// Sets the machine of each log. If the logs are in several folders, each folder is a machine, such as `edge-1`
/// for `edge-1/access.log.gz`. The name is the first component in which the paths differ, so the machine of
/// `edge-1/2026/11/a.log` is `edge-1` too.
fn name_machines(sources: &mut [Source]) {
    let folders: Vec<Vec<String>> = sources
        .iter()
        .filter_map(|source| source.path.as_ref())
        .map(|path| {
            let folder = path.parent().unwrap_or_else(|| Path::new(""));
            let parts = folder.components();
            parts
                .map(|part| part.as_os_str().to_string_lossy().into_owned())
                .collect()
        })
        .collect();
    let Some(first) = folders.first() else {
        return;
    };
    // The number of leading components that all folders have in common.
    let common = (0..first.len())
        .find(|index| {
            folders
                .iter()
                .any(|parts| parts.get(*index) != first.get(*index))
        })
        .unwrap_or(first.len());
    if folders.iter().all(|parts| parts.len() <= common) {
        return;
    }
    let with_path = sources.iter_mut().filter(|source| source.path.is_some());
    for (source, parts) in with_path.zip(&folders) {
        // If a log is in a parent folder of the others, its machine is the name of its own folder.
        let part = parts.get(common).or_else(|| parts.last());
        source.machine = part.cloned().unwrap_or_default();
    }
}

/// The maximum number of files, far above the 72,000 hourly logs that a hundred machines write in a month.
const FILES_MAX: usize = 1_000_000;

/// The maximum depth of subfolders that are searched. Deeper subfolders are ignored.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("the folder can be created");
        for file in [
            "edge-2/a.log",
            "edge-1/b.log.gz",
            "edge-1/2026/c.log",
            "edge-1/.hidden",
        ] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("the path has a parent"))
                .expect("the folder can be created");
            fs::write(path, "x").expect("the file can be written");
        }
        fs::create_dir(root.path().join("none")).expect("the folder can be created");
        root
    }

    fn paths_and_machines(root: &Path, arguments: &[&str]) -> Vec<(String, String)> {
        let arguments: Vec<PathBuf> = arguments.iter().map(|name| root.join(name)).collect();
        let list = find(&arguments).expect("the arguments match files");
        let relative = |source: &Source| {
            let path = source.path.as_ref().expect("the source is not stdin");
            let path = path.strip_prefix(root).expect("the path is below the root");
            path.display().to_string()
        };
        list.iter()
            .map(|source| (relative(source), source.machine.clone()))
            .collect()
    }

    #[test]
    fn a_folder_includes_all_files_and_its_subfolders_are_machines() {
        let root = tree();
        let pairs = |list: &[(&str, &str)]| {
            let owned = list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
            owned.collect::<Vec<_>>()
        };
        let all = pairs(&[
            ("edge-1/b.log.gz", "edge-1"),
            ("edge-1/2026/c.log", "edge-1"),
            ("edge-2/a.log", "edge-2"),
        ]);
        assert_eq!(paths_and_machines(root.path(), &["."]), all);
        assert_eq!(paths_and_machines(root.path(), &["edge-?"]), all);
        assert_eq!(
            paths_and_machines(root.path(), &["edge-*", "edge-2/a.log"]),
            all,
            "once each"
        );
        assert_eq!(
            paths_and_machines(root.path(), &[".", "."]),
            all,
            "once each"
        );
        assert_eq!(
            paths_and_machines(root.path(), &["edge-2"]),
            pairs(&[("edge-2/a.log", "")])
        );
    }

    #[test]
    fn an_argument_without_a_file_is_an_error_with_its_name() {
        let root = tree();
        let error = |name: &str| {
            let error = find(&[root.path().join(name)]).expect_err("the argument matches no file");
            error.to_string()
        };
        assert!(error("gone.log").contains("gone.log"));
        assert!(error("*.xyz").contains("matches no file"));
        assert!(error("none").contains("contains no logs"));
        let twice = find(&["-".into(), "-".into()]).expect_err("stdin is given twice");
        assert!(matches!(twice, FindError::StdinTwice));
    }
}
