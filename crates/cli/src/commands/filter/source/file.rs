//! A file of ids: its name and format, and the errors about its lines.

use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostic;

/// A file of ids, or stdin, whose options were checked.
#[derive(Clone, Debug)]
pub(in crate::commands::filter) struct FileSource {
    pub(super) path: PathBuf,
    pub(super) format: SourceFormat,
    pub(super) line_bytes_max: usize,
}

#[derive(Clone, Debug)]
pub(super) enum SourceFormat {
    Lines,
    Csv { column: Option<String> },
}

/// The line number of an id, counted from 1.
pub(in crate::commands::filter) type LineNumber = u64;

impl FileSource {
    /// Returns true if the source is stdin, which can be read only once.
    pub(in crate::commands::filter) fn is_stdin(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// The name of the source in messages.
    pub(in crate::commands::filter) fn label(&self) -> String {
        label(&self.path)
    }

    /// An error about a line of the source.
    pub(in crate::commands::filter) fn error_at(
        &self,
        line: LineNumber,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic::new(message)
            .in_file(self.label())
            .at_line(usize::try_from(line).unwrap_or(usize::MAX))
    }

    /// Returns the id in a line or field; it may be empty.
    pub(super) fn id_in<'l>(&self, line: LineNumber, text: &'l [u8]) -> anyhow::Result<&'l [u8]> {
        edgeward_filter::id_in_line(text).map_err(|error| {
            let diagnostic = self.error_at(line, error.to_string());
            diagnostic.hint(error.hint()).into()
        })
    }
}

/// The name of an input in messages.
fn label(path: &Path) -> String {
    if path.as_os_str() == "-" {
        "stdin".to_owned()
    } else {
        path.display().to_string()
    }
}
