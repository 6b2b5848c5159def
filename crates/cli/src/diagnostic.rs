//! Formats errors for users: what is wrong, where, and what to do.
//!
//! ```text
//! error: hot.shard_count = 48 is not a power of two
//!   in /etc/edgeward/edge.toml, line 12
//!   hint: use 32 or 64
//! ```
//!
//! Every error reaches [`print()`] through `anyhow`. An error that has a location or a hint is a
//! [`Diagnostic`]. All errors of a configuration or a lab plan are [`Diagnostics`]; each is printed as a block of its
//! own.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

/// One error for the user, with its location and a hint if they are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diagnostic {
    message: String,
    file: Option<PathBuf>,
    line: Option<usize>,
    hint: Option<String>,
}

impl Diagnostic {
    /// An error with this message, without location or hint.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            file: None,
            line: None,
            hint: None,
        }
    }

    /// An error with the message of `error`, followed by the messages of its causes on the same line.
    pub(crate) fn from_error(error: &(dyn std::error::Error + 'static)) -> Self {
        let all = std::iter::successors(Some(error), |error| error.source());
        Self::new(all.map(ToString::to_string).collect::<Vec<_>>().join(": "))
    }

    /// The error for a file that could not be opened or read. `cannot` is the start of the message, for example
    /// "cannot open". If the file does not exist, the hint contains its absolute path.
    pub(crate) fn unreadable(path: &Path, cannot: &str, error: &io::Error) -> Self {
        let diagnostic = Self::new(format!("{cannot} {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::NotFound => {
                diagnostic.hint(format!("the full path is {}", absolute(path)))
            }
            _ => diagnostic,
        }
    }

    /// The error for an option that needs the feature `parquet`.
    #[cfg(not(feature = "parquet"))]
    pub(crate) fn no_parquet() -> Self {
        Self::new("this build of edgeward does not write Parquet")
            .hint("build it with `cargo build --release --package edgeward-cli --features parquet`")
    }

    /// The error for a command or a key that needs a feature of Cargo that this build lacks, on one line.
    pub(crate) fn lacks_feature(what: &str, feature: &str) -> Self {
        Self::new(format!(
            "this build of edgeward lacks {what}: build edgeward-cli with the feature `{feature}`"
        ))
    }

    /// Sets the file that the error is about.
    pub(crate) fn in_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Sets the line that the error is about, counted from 1.
    pub(crate) fn at_line(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }

    /// Returns the line that the error is about, counted from 1.
    pub(crate) fn line(&self) -> Option<usize> {
        self.line
    }

    /// Returns true if the error is that a file or a folder is absent, by the ends of these messages.
    pub(crate) fn is_absent_file(&self) -> bool {
        self.message.ends_with("does not exist")
    }

    /// The error as a JSON object.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "hint": self.hint,
        })
    }

    /// Sets what the user can do about the error.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Writes only the message. [`print()`] writes the location and the hint on separate lines.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Diagnostic {}

/// All errors of a configuration or a lab plan, so that the user can fix them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diagnostics(pub(crate) Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, diagnostic) in self.0.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

/// The absolute form of `path`, for messages: the user may not know the working directory of the program.
pub(crate) fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.display().to_string()
}

/// Writes `error` to stderr in the format of the module's example.
pub(crate) fn print(error: &anyhow::Error) {
    // If stderr is closed, the error cannot be reported.
    _ = io::Write::write_all(&mut io::stderr(), render(error).as_bytes());
}

/// Writes warnings to stderr in the same format.
pub(crate) fn print_warnings(warnings: &[Diagnostic]) {
    for warning in warnings {
        let text = block("warning", &warning.message, warning);
        _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
    }
}

/// Formats `error` as in the module's example, one block for each diagnostic.
pub(crate) fn render(error: &anyhow::Error) -> String {
    if let Some(Diagnostics(all)) = error.downcast_ref::<Diagnostics>() {
        let has_context = !error
            .chain()
            .next()
            .is_some_and(|first| first.is::<Diagnostics>());
        let context = match has_context {
            true => format!("{error}: "),
            false => String::new(),
        };
        return all
            .iter()
            .map(|diagnostic| error_block(&format!("{context}{diagnostic}"), diagnostic))
            .collect();
    }
    let message = format!("{error:#}");
    let without_location = Diagnostic::new("");
    // `chain` does not find a `Diagnostic` that was added to another error as context. `downcast_ref` finds it.
    let located = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Diagnostic>())
        .or_else(|| error.downcast_ref::<Diagnostic>());
    error_block(&message, located.unwrap_or(&without_location))
}

/// Formats `error` on one line, for logs and JSON: each message with its file, its line and its hint.
pub(crate) fn on_one_line(error: &anyhow::Error) -> String {
    let text = render(error);
    let lines = text.lines().map(|line| line.trim_start());
    let lines = lines.map(|line| line.strip_prefix("error: ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("; ")
}

fn error_block(message: &str, located: &Diagnostic) -> String {
    block("error", message, located)
}

fn block(level: &str, message: &str, located: &Diagnostic) -> String {
    let mut text = format!("{level}: {message}\n");
    let location = match (&located.file, located.line) {
        (Some(file), Some(line)) => Some(format!("{}, line {line}", file.display())),
        (Some(file), None) => Some(file.display().to_string()),
        (None, Some(line)) => Some(format!("line {line}")),
        (None, None) => None,
    };
    if let Some(location) = location {
        _ = writeln!(text, "  in {location}");
    }
    if let Some(hint) = &located.hint {
        _ = writeln!(text, "  hint: {hint}");
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn a_diagnostic_shows_message_location_and_hint() {
        let error = anyhow::Error::new(
            Diagnostic::new("hot.shard_count = 48 is not a power of two")
                .in_file("/etc/edgeward/edge.toml")
                .at_line(12)
                .hint("use 32 or 64"),
        );
        assert_eq!(
            render(&error),
            "error: hot.shard_count = 48 is not a power of two\n  \
             in /etc/edgeward/edge.toml, line 12\n  \
             hint: use 32 or 64\n"
        );
    }

    #[test]
    fn a_cause_follows_the_message_on_the_same_line() {
        let error = anyhow::Error::new(io::Error::other("disk on fire")).context("reading a");
        assert_eq!(render(&error), "error: reading a: disk on fire\n");
    }

    #[test]
    fn context_around_diagnostics_is_before_each_of_them() {
        let all = Diagnostics(vec![Diagnostic::new("a"), Diagnostic::new("b").hint("c")]);
        let error = anyhow::Error::from(all).context("starting");
        assert_eq!(
            render(&error),
            "error: starting: a\nerror: starting: b\n  hint: c\n"
        );
    }

    #[test]
    fn context_around_a_diagnostic_keeps_its_location_and_hint() {
        let error = Err::<(), _>(Diagnostic::new("bad").in_file("f").hint("mend it"))
            .context("starting")
            .expect_err("the result is an error");
        assert_eq!(
            render(&error),
            "error: starting: bad\n  in f\n  hint: mend it\n"
        );
    }

    #[test]
    fn several_diagnostics_each_get_their_own_lines() {
        let both = vec![
            Diagnostic::new("one").at_line(1),
            Diagnostic::new("two").hint("mend two"),
        ];
        assert_eq!(
            render(&anyhow::Error::new(Diagnostics(both))),
            "error: one\n  in line 1\nerror: two\n  hint: mend two\n"
        );
    }
}
