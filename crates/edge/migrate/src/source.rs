//! Where the text of a configuration comes from.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// The files that a configuration includes. A caller reads them from the file system; a test has them in memory.
pub trait Sources {
    /// Returns the text of a file, or the reason why it cannot be read.
    fn read(&self, path: &str) -> Result<String, String>;

    /// Returns the paths that match a pattern with `*`, `?` and `[…]`, in alphabetical order.
    fn glob(&self, pattern: &str) -> Vec<String>;
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// The path of the file, as it was given or included.
    #[serde(serialize_with = "as_text")]
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
}

impl Position {
    /// Returns the position of a setting that follows from no line.
    pub(crate) fn unknown() -> Self {
        Self {
            file: "-".into(),
            line: 1,
        }
    }
}

fn as_text<S: serde::Serializer>(file: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(file)
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
