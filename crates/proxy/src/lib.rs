//! The edge: an HTTP reverse proxy cache on hyper, one runtime a core.
#![forbid(unsafe_code)]

pub mod config;

pub use config::EdgeConfig;
