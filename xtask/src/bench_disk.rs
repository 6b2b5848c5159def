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
mod options;
mod page;
mod replay;
mod sample;
pub(crate) mod servers;
mod write;

use std::path::Path;

use anyhow::bail;

use crate::say;

const HELP: &str = "\
The disk cache measured from outside.

usage: cargo xtask bench-disk <what> [options]

  replay   one trace, once for each rule of admission to disk: bytes and operations written,
           hits by tier, CPU, memory, upstream traffic over time; a page with plots
  hits     hits from disk in pairs with nginx's cache on the same file system
  write    streaming writes against fio, and hits from memory while the disk is written

each has --help
";

/// True if every run was what it claims to be. A goal that was missed is printed, and no error.
pub(crate) fn run(
    root: &Path,
    mut arguments: impl Iterator<Item = String>,
) -> anyhow::Result<bool> {
    match arguments.next().as_deref() {
        Some("replay") => replay::run(root, arguments),
        Some("hits") => hits::run(root, arguments),
        Some("write") => write::run(root, arguments),
        Some("--help" | "-h" | "help") | None => {
            say(HELP);
            Ok(true)
        }
        Some(other) => bail!("there is no {other} to measure\n  hint: replay, hits or write"),
    }
}
