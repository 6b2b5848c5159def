//! Settings that are files and folders.

use std::fs;
use std::path::{Path, PathBuf};

use super::kind::SettingValue;
use super::raw::{Raw, ValueError, read_error_text};
use crate::diagnostic::absolute;

/// An existing, readable file.
pub(in crate::config) struct InputFile;

impl SettingValue for InputFile {
    type Parsed = PathBuf;

    fn name(&self) -> String {
        "file".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        "the path of a file"
    }

    fn example(&self) -> String {
        "its path in quotes".to_owned()
    }

    fn read(&self, raw: &Raw, folder: &Path) -> Result<PathBuf, ValueError> {
        let path = folder.join(self.text(raw)?);
        let opened = fs::File::open(&path).and_then(|file| file.metadata());
        match opened {
            Ok(metadata) if metadata.is_dir() => Err(ValueError::new("is a folder, not a file")),
            Ok(_) => Ok(path),
            Err(error) => Err(ValueError::new(read_error_text(&error))
                .hint(format!("the full path is {}", absolute(&path)))),
        }
    }

    fn show(&self, path: &PathBuf) -> Option<String> {
        Some(path.display().to_string())
    }
}

/// A file to write, or `"-"` for stdout.
pub(in crate::config) struct OutputFile;

impl SettingValue for OutputFile {
    type Parsed = PathBuf;

    fn name(&self) -> String {
        InputFile.name()
    }

    fn noun_phrase(&self) -> &'static str {
        InputFile.noun_phrase()
    }

    fn example(&self) -> String {
        InputFile.example()
    }

    fn read(&self, raw: &Raw, folder: &Path) -> Result<PathBuf, ValueError> {
        let text = self.text(raw)?;
        let path = folder.join(text);
        if text == "-" {
            Ok(PathBuf::from(text))
        } else if text.is_empty() || path.is_dir() {
            Err(ValueError::new("is not a file").hint("give a file, or - for stdout"))
        } else {
            check_folder(path)
        }
    }

    fn show(&self, path: &PathBuf) -> Option<String> {
        InputFile.show(path)
    }
}

/// A file, directory or device that need not exist.
pub(in crate::config) struct PathName;

impl SettingValue for PathName {
    type Parsed = PathBuf;

    fn name(&self) -> String {
        "path".to_owned()
    }

    fn noun_phrase(&self) -> &'static str {
        "the path of a directory, file or device"
    }

    fn example(&self) -> String {
        "\"/var/cache/edgeward\"".to_owned()
    }

    fn read(&self, raw: &Raw, folder: &Path) -> Result<PathBuf, ValueError> {
        match self.text(raw)? {
            "" => Err(ValueError::new("is not a path").hint(format!("write {}", self.example()))),
            text => check_folder(folder.join(text)),
        }
    }

    fn show(&self, path: &PathBuf) -> Option<String> {
        InputFile.show(path)
    }
}

/// Checks that the folder of `path` exists. The path itself need not exist.
fn check_folder(path: PathBuf) -> Result<PathBuf, ValueError> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    if parent.is_some_and(|parent| !parent.is_dir()) {
        return Err(ValueError::new("is in a folder that does not exist")
            .hint(format!("create the folder of {}", absolute(&path))));
    }
    Ok(path)
}
