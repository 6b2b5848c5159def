//! The disk cache measured from outside: `cargo xtask bench-disk replay|hits|write`.
//!
//! [`replay`] sends one trace through the server once for each rule of admission to disk and puts
//! what it wrote, hit and fetched side by side. [`hits`] asks edgeward and nginx for objects that
//! lie on the same file system. [`mod@write`] compares the store's writing with fio's, and looks at
//! what writing does to those who are served from memory.
//!
//! Every figure comes from outside the thing measured where there is an outside: the kernel's
//! counts of the process and of the device, the origin's count of requests.

mod goal;
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
The disk cache: bytes written, hits, writing, from outside.

usage: cargo xtask bench-disk <what> [options]

  replay   one trace, once for each rule of admission to disk: bytes and
           operations written, hits by tier, CPU, memory, upstream traffic over
           time; a page with plots
  hits     hits from disk in pairs with nginx's cache on the same file system
  write    streaming writes against fio, and hits from memory meanwhile

each has --help
";

/// Each kind with its own help.
#[cfg(test)]
pub(crate) const HELPS: [(&str, &str); 4] = [
    ("bench-disk", HELP),
    ("bench-disk replay", replay::HELP),
    ("bench-disk hits", hits::HELP),
    ("bench-disk write", write::HELP),
];

/// True if every run was what it claims to be. A goal that was missed is printed, and no error.
pub(crate) fn run(
    root: &Path,
    mut arguments: impl Iterator<Item = String>,
) -> anyhow::Result<bool> {
    match arguments.next().as_deref() {
        Some("replay") => options::run(replay::run, replay::HELP, root, arguments),
        Some("hits") => options::run(hits::run, hits::HELP, root, arguments),
        Some("write") => options::run(write::run, write::HELP, root, arguments),
        // Started by `hits`.
        Some("floor") => hits::floor::run(arguments),
        Some("--help" | "-h" | "help") | None => {
            say(HELP);
            Ok(true)
        }
        Some(other) => bail!("there is no {other} to measure\n  hint: replay, hits or write"),
    }
}
