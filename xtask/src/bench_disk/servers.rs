//! The measured edge and its origin, and helpers for their status pages.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::bench_shared::client::Client;
use crate::bench_shared::process::{Server, free_port};

/// A running `edgeward origin`.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) port: u16,
    _server: Server,
}

/// A running `edgeward serve`.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) server: Server,
    pub(crate) port: u16,
    /// The port of the admin pages.
    pub(crate) admin: u16,
}

impl Origin {
    pub(crate) fn start(binary: &Path, core: Option<u32>, folder: &Path) -> anyhow::Result<Self> {
        let port = free_port()?;
        let line = format!("origin --listen 127.0.0.1:{port} --cache-control max-age=86400");
        let server = start("origin", binary, &line, core, port, folder)?;
        Ok(Self {
            port,
            _server: server,
        })
    }

    /// Returns the number of requests that the origin has received so far, without those of this method.
    ///
    /// The origin counts each call of this method as a request. `polls` is the number of these calls.
    pub(crate) fn requests(&self, polls: &mut u64) -> anyhow::Result<u64> {
        *polls += 1;
        Ok(count(&status(self.port)?, "requests").saturating_sub(*polls))
    }
}

impl Edge {
    /// Starts an edge with the additional flags `more`, and with one worker unless `more` sets another number. It runs
    /// on `core` only, if given, and logs to a file in `folder` that is named after `name`.
    pub(crate) fn start(
        binary: &Path,
        name: &str,
        origin: &Origin,
        more: &str,
        core: Option<u32>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let (port, admin) = (free_port()?, free_port()?);
        let workers = if more.contains("--workers") {
            ""
        } else {
            "--workers 1"
        };
        let line = format!(
            "serve --listen 127.0.0.1:{port} --admin 127.0.0.1:{admin} \
             --origin http://127.0.0.1:{} {workers} {more}",
            origin.port
        );
        Ok(Self {
            server: start(name, binary, &line, core, port, folder)?,
            port,
            admin,
        })
    }

    pub(crate) fn status(&self) -> anyhow::Result<Value> {
        status(self.admin)
    }
}

fn start(
    name: &str,
    binary: &Path,
    line: &str,
    core: Option<u32>,
    port: u16,
    folder: &Path,
) -> anyhow::Result<Server> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    match core {
        Some(core) => Server::start(name, binary, &words, core, port, folder),
        None => Server::start_unpinned(name, binary, &words, port, folder),
    }
}

/// Fetches `/status` of the server on this port.
pub(crate) fn status(port: u16) -> anyhow::Result<Value> {
    let page = Client::connect(port)?.get_page("/status")?;
    serde_json::from_slice(&page).context("/status is not JSON")
}

/// Returns a number of a status page, or 0 if the key is missing.
pub(crate) fn count(page: &Value, key: &str) -> u64 {
    page[key].as_u64().unwrap_or(0)
}

/// For an object, returns the sum of all its numbers. For an array of objects, returns the sum of their numbers under
/// `key`.
pub(crate) fn total(page: &Value, key: &str) -> u64 {
    match page {
        Value::Object(entries) => entries.values().filter_map(Value::as_u64).sum(),
        Value::Array(items) => items.iter().map(|item| count(item, key)).sum(),
        _ => 0,
    }
}
