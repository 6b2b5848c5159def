//! Translates configurations of other servers to edgeward's.
//!
//! [`nginx()`] reads a configuration with all files that it includes and returns a file in TOML, with the source of
//! each setting, and a [`Report`]. **Each directive of the input has one entry in the report**: translated, translated
//! with a difference, not needed, or left out. So no directive is dropped silently.
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
    FILE_BYTES_MAX, MigrateError, ParseError, ParseErrorReason, Paths, SITE_RULES_MAX,
    directives_markdown, translate as nginx,
};
pub use report::{Effect, Entry, Migration, Outcome, Report};
pub use source::{Position, Sources};
