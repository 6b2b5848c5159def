//! Sites and rules: which site a host belongs to, and which of the site's rules apply to a request.
//!
//! A [`HostTable`] finds the entry of a host. A [`Condition`] states to which requests a rule applies. It compares the
//! path in [the form for matching](matching_path), in which `/%61dmin//x` is `/admin/x`.
//!
//! This crate has no clock, sockets or threads. `cli` reads the texts from the configuration file, and `proxy` calls
//! the functions for each request.
#![forbid(unsafe_code)]

mod condition;
mod host;
mod network;
mod path;
mod path_pattern;

pub use condition::{Condition, FieldCondition, RequestView};
pub use host::{HostPattern, HostTable, ParseHostPatternError};
pub use network::{Network, ParseNetworkError};
pub use path::matching_path;
pub use path_pattern::{PathPattern, PathPatternError};
