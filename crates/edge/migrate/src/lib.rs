//! Translates configurations of other servers to edgeward's.
//!
//! [`nginx()`] reads a configuration with all files that it includes and returns a file in TOML, with the source of each
//! setting, and a [`Report`]. **Each directive of the input has one entry in the report**: translated, translated with a
//! difference, not needed, or left out. So no directive is dropped silently.
//!
//! The crate does no I/O: files are read through [`Sources`].

mod nginx;
mod report;
mod rule;
mod source;
#[cfg(test)]
mod testing;
mod toml;

pub use nginx::{
    FILE_BYTES_MAX, ParseError, ParseErrorReason, Paths, check_syntax, directives_markdown,
    translate as nginx,
};
pub use report::{Effect, Entry, Outcome, Report};
pub use source::{Position, Sources};

/// The result of a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The configuration of the edge, in TOML.
    pub toml: String,
    /// What became of each directive.
    pub report: Report,
}

/// The reason why a configuration cannot be translated at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// A file cannot be read.
    #[error("cannot read {file}: {reason}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The reason.
        reason: String,
    },
    /// A file is not a configuration.
    #[error(transparent)]
    Syntax(#[from] ParseError),
    /// No server of the input sends requests to an HTTP server.
    #[error("no server of the configuration has a proxy_pass that the edge can take over")]
    Empty,
}
