//! The golden files under `vectors/`: written anew after a format was changed on purpose.
//!
//! The test that holds the code to them also writes them, when it is told to. Guava's files are
//! written by Guava itself, where its jars are given; they are also read back, which shows that
//! `BloomFilter.readFrom` takes what we write.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::options::Options;

pub(crate) const HELP: &str = "\
Writes the golden files under vectors/ anew.

usage: cargo xtask vectors [options]

  --guava JARS   jars of Guava and failureaccess, joined by a colon: first let
                 Guava write its files with Java (17 or later), then let it read
                 them back
";

/// Runs it; true when all is written and whole.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    if let Some(jars) = options.given("--guava") {
        guava(root, jars)?;
    }
    // Each package has a test that holds its code to the files and writes them when told to.
    for (package, test) in [
        ("edgeward-filter", "vectors"),
        ("edgeward-dedup", "chunker"),
        ("edgeward-dedup", "wire"),
        ("edgeward-chunk-store", "laws"),
    ] {
        let written = Command::new(env!("CARGO"))
            .args(["test", "--quiet", "--package", package, "--test", test])
            .env("EDGEWARD_RENEW_VECTORS", "1")
            .current_dir(root)
            .status()
            .context("cannot run cargo")?;
        if !written.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lets Guava write and read.
fn guava(root: &Path, jars: &str) -> anyhow::Result<()> {
    let folder = root.join("vectors/filter");
    for task in ["write", "read"] {
        let status = Command::new("java")
            .args(["-cp", jars])
            .arg(folder.join("Golden.java"))
            .arg(task)
            .arg(&folder)
            .status()
            .context("cannot run java")?;
        if !status.success() {
            bail!("Guava could not {task} its files\n  hint: Java 17 or later, and both jars");
        }
    }
    Ok(())
}
