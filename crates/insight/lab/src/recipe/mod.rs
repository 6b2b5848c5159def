//! How each server is configured and started, as texts and arguments. This module does no I/O.
//!
//! All contenders get the same conditions: one loopback port, one origin, the same capacity, no access log,
//! persistent connections. For each further setting, a comment beside it gives the reason.

mod edgeward;
mod nginx;
mod traffic_server;
mod varnish;

use std::path::{Path, PathBuf};

use crate::plan::{Contender, Server, Setting};

/// The folders, ports and limits with which a contender runs.
#[derive(Clone, Debug)]
pub(crate) struct Environment<'a> {
    /// The contender's folder, inside the folder for caches.
    pub(crate) folder: &'a Path,
    /// The contender's folder in `/dev/shm`, or `folder` if the system has no `/dev/shm`.
    pub(crate) memory_folder: &'a Path,
    pub(crate) port: u16,
    pub(crate) admin_port: u16,
    pub(crate) origin_port: u16,
    /// The number of connections that the load generator opens.
    pub(crate) connections: usize,
    /// The capacity in memory. `None` if the contender has no cache in memory.
    pub(crate) memory_bytes: Option<u64>,
    /// The capacity on disk. `None` if the contender has no cache on disk.
    pub(crate) disk_bytes: Option<u64>,
    /// True if the lab runs as root. Servers must then not switch to a user who cannot write to their folder.
    pub(crate) is_root: bool,
    /// The path of the program.
    pub(crate) program: &'a Path,
}

/// The folders, files and arguments with which a server is started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recipe {
    /// The folders that the lab creates before the start.
    pub(crate) folders: Vec<PathBuf>,
    /// The files that the lab writes before the start: path and content.
    pub(crate) files: Vec<(PathBuf, String)>,
    pub(crate) arguments: Vec<String>,
    /// True if `admin_port` serves `/status`.
    pub(crate) has_status: bool,
    /// A folder in memory, whose files count as memory of the contender.
    pub(crate) files_in_memory: Option<PathBuf>,
    /// The cache folder of nginx and the capacity in bytes that [`crate::nginx_capacity`] enforces; `None` for other
    /// servers.
    pub(crate) enforced_capacity: Option<(PathBuf, u64)>,
}

/// Returns the recipe for a contender. A plan may change settings of edgeward within the trace: `settings` are those
/// for the next part. The recipes of other servers do not use them.
pub(crate) fn recipe(
    contender: &Contender,
    settings: &[Setting],
    environment: &Environment<'_>,
) -> Recipe {
    match &contender.server {
        Server::Edgeward { .. } => edgeward::recipe(contender, settings, environment),
        Server::Nginx { min_uses } => nginx::recipe(contender, min_uses.get(), environment),
        Server::Varnish => varnish::recipe(environment),
        Server::TrafficServer => traffic_server::recipe(contender, environment),
    }
}

/// Returns the name of the program and of the Debian package that contains it.
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
