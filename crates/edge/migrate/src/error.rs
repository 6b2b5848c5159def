//! Why a configuration cannot be translated.

use crate::syntax::ParseError;

/// The most rules of a site of the edge.
pub const SITE_RULES_MAX: usize = edgeward_sites::RULES_MAX;

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
    /// The address of a site is unknown, and other sites would answer its requests.
    #[error("{at}: {reason}")]
    UnknownAddress {
        /// The line of the site.
        at: String,
        /// The reason.
        reason: String,
    },
    /// No part of the input sends requests to an HTTP server.
    #[error("the configuration names no HTTP server that the edge could take over as an origin")]
    Empty,
    /// The conditions of the input take too many steps to compare.
    #[error(
        "the configuration has too many conditions to compare; translate its sites in several files"
    )]
    TooLarge,
    /// The locations and conditions of a host need more rules than a site of the edge may have.
    #[error(
        "{host} needs {rules} rules, and a site of the edge has at most {SITE_RULES_MAX} ({server})"
    )]
    TooManyRules {
        /// The first host of the site.
        host: String,
        /// The servers of the host, with their lines.
        server: String,
        /// The number of rules.
        rules: usize,
    },
    /// The subroutines of VCL have more statements, calls, hosts and conditions together than a translation follows.
    #[error(
        "the translation of {server} needs too many steps, and stopped at the host {host}; translate files with fewer \
         hosts each, or remove calls and conditions"
    )]
    TooComplex {
        /// The host at which the translation stopped.
        host: String,
        /// The file.
        server: String,
    },
}
