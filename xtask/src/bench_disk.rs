//! Measures the disk cache from outside: `cargo xtask bench-disk replay|hits|write`.
//!
//! [`replay`] sends one trace through the server for each disk admission rule and compares bytes written, hits and
//! fetches. [`hits`] requests objects from edgeward and nginx, whose caches are on the same file system.
//! [`mod@write`] compares the store's write speed with fio's, and measures how writing affects hits from memory.
//!
//! Most figures come from outside the measured process: from the kernel's counters of the process and the device, and
//! from the origin's request counter.

pub(crate) mod goal;
mod hits;
mod page;
mod replay;
mod sample;
pub(crate) mod servers;
mod write;

use std::path::Path;

use anyhow::bail;

use crate::{options, say};

pub(crate) const HELP: &str = "\
Measures the disk cache: bytes written, hits, write speed.

usage: cargo xtask bench-disk <what> [options]

  replay   replays a trace once for each rule of admission to disk: bytes and
           operations written, hits by tier, CPU, memory, upstream traffic;
           writes a page with plots
  hits     compares hits from disk with nginx's cache on the same file system
  write    compares streaming writes with fio, and measures hits from memory
           during writes

Each part has --help.
";

/// The help texts of the command and its three parts.
#[cfg(test)]
pub(crate) const HELPS: [(&str, &str); 4] = [
    ("bench-disk", HELP),
    ("bench-disk replay", replay::HELP),
    ("bench-disk hits", hits::HELP),
    ("bench-disk write", write::HELP),
];

/// Returns true if every run was valid. A missed goal is printed and is not an error.
pub(crate) fn run(
    root: &Path,
    mut arguments: impl Iterator<Item = String>,
) -> anyhow::Result<bool> {
    match arguments.next().as_deref() {
        Some("replay") => options::run(replay::run, replay::HELP, root, arguments),
        Some("hits") => options::run(hits::run, hits::HELP, root, arguments),
        Some("write") => options::run(write::run, write::HELP, root, arguments),
        // `bench-disk hits` starts a minimal server, a lower bound for CPU time, as a child process with this command.
        Some("sendfile-server") => hits::sendfile_server::run(arguments),
        Some("--help" | "-h" | "help") | None => {
            say(HELP);
            Ok(true)
        }
        Some(other) => {
            bail!("no part is called {other}\n  hint: the parts are `replay`, `hits` and `write`")
        }
    }
}
