//! Why a configuration cannot be translated.

use super::parse::ParseError;

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
