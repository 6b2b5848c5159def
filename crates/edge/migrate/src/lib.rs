//! Translates configurations of other servers to edgeward's.
//!
//! [`nginx()`], [`vcl()`] and [`caddy()`] read a configuration with all files that it includes and return a file in
//! TOML, with the source of each setting, and a [`Report`]. **Each directive or statement of the input has one entry in
//! the report**: translated, translated with a difference, not needed, or left out. So nothing is dropped silently.
//!
//! The crate does no I/O: files are read through [`Sources`].

mod caddy;
mod counterpart;
mod decision;
mod error;
mod grouping;
mod hosts;
mod ledger;
mod nginx;
mod origin_list;
mod report;
mod rule;
mod source;
mod syntax;
#[cfg(test)]
mod testing;
mod toml;
mod values;
mod vcl;

pub use caddy::{directives_markdown as caddy_directives_markdown, translate as caddy};
pub use error::{MigrateError, SITE_RULES_MAX};
pub use nginx::{Paths, directives_markdown, translate as nginx};
pub use report::{Effect, Entry, Migration, Outcome, Report};
pub use source::{Position, Sources};
pub use syntax::{FILE_BYTES_MAX, ParseError, ParseErrorReason};
pub use vcl::{constructs_markdown, translate as vcl};
