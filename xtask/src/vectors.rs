//! Regenerates the golden files under `vectors/` after a deliberate change of a format.
//!
//! The tests that compare the code with these files also write them on request. If the jars of Guava are given, Guava
//! writes its own files and reads ours, which shows that `BloomFilter.readFrom` accepts them.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::options::Options;

pub(crate) const HELP: &str = "\
Rewrites the golden files under vectors/.

usage: cargo xtask vectors [options]

  --guava JARS   jars of Guava and failureaccess, joined by a colon: Guava
                 writes its own files and reads ours; needs Java 17 or later
";

/// Writes the files. Returns true if all files were written and checked.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    if let Some(jars) = options.value("--guava") {
        guava(root, jars)?;
    }
    // Each package has a test that compares its code with the files and writes them on request.
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

/// Runs a Java program with Guava, first to write Guava's files and then to read ours.
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
            bail!(
                "Guava could not {task} the files\n  hint: use Java 17 or later, and give both jars"
            );
        }
    }
    Ok(())
}
