//! How each server is configured and started: texts and arguments, nothing done yet.
//!
//! All contenders get the same: one port of loopback, one origin, so much memory or disk for what
//! is cached, no access log, connections that are kept. What else is set, and why, stands beside it.

mod edgeward;
mod nginx;
mod traffic_server;
mod varnish;

use std::path::{Path, PathBuf};

use crate::plan::{Contender, Server, Setting};

/// Where a contender runs, and with what.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    /// A folder of its own, on the disk that caches lie on.
    pub(crate) folder: &'a Path,
    /// Another, in memory where the system has such a thing.
    pub(crate) memory_folder: &'a Path,
    pub(crate) port: u16,
    pub(crate) admin_port: u16,
    pub(crate) origin_port: u16,
    /// The load's connections.
    pub(crate) connections: usize,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
    /// Whether we are root: servers then have to be kept from becoming somebody who may not write here.
    pub(crate) is_root: bool,
    /// The program's own file.
    pub(crate) program: &'a Path,
}

/// What to do to start a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recipe {
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) files: Vec<(PathBuf, String)>,
    pub(crate) arguments: Vec<String>,
    /// Whether `admin_port` serves `/status`.
    pub(crate) has_status: bool,
    /// A folder in memory whose files are memory of the contender.
    pub(crate) files_in_memory: Option<PathBuf>,
    /// A folder of nginx's, and how large it may be.
    pub(crate) tended: Option<(PathBuf, u64)>,
}

/// The recipe for a contender; `settings` are those of an edge at this moment.
pub(crate) fn recipe(contender: &Contender, settings: &[Setting], place: &Place<'_>) -> Recipe {
    match &contender.server {
        Server::Edgeward { .. } => edgeward::recipe(contender, settings, place),
        Server::Nginx { min_uses } => nginx::recipe(contender, min_uses.get(), place),
        Server::Varnish => varnish::recipe(place),
        Server::TrafficServer => traffic_server::recipe(contender, place),
    }
}

/// What to look for, and the Debian package that has it.
pub(crate) fn program(server: &Server) -> (&'static str, &'static str) {
    match server {
        Server::Edgeward { .. } => ("edgeward", "edgeward"),
        Server::Nginx { .. } => ("nginx", "nginx-light"),
        Server::Varnish => ("varnishd", "varnish"),
        Server::TrafficServer => ("traffic_server", "trafficserver"),
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
