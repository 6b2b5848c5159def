//! Random test scripts for the filter clients in other languages.
//!
//! A life is a random sequence of the events that a filter client meets. The model in
//! `crates/filter/filter/tests/model` generates lives, checks the Rust client against its specification, and writes
//! each life as a script. The tests of the other clients execute the scripts in the file that the variable `LIVES`
//! names.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::options::Options;

pub(crate) const HELP: &str = "\
Writes random test scripts for the filter clients.

usage: cargo xtask lives [options]

  --lives N      number of scripts [40]
  --first N      seed of the first script; the next ones count up [0]
  --out FILE     one script per line [target/filter-lives.jsonl]
";

/// Writes the scripts. Returns true if this succeeded.
pub(crate) fn run(root: &Path, options: &Options) -> anyhow::Result<bool> {
    let file = root.join(
        options
            .value("--out")
            .unwrap_or("target/filter-lives.jsonl"),
    );
    let number = |name: &str, default| match options.value(name) {
        Some(text) => text
            .parse::<u64>()
            .with_context(|| format!("{name} {text}")),
        None => Ok(default),
    };
    let lives = number("--lives", 40)?;
    let first = number("--first", 0)?;
    let written = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--package", "edgeward-filter"])
        .args(["--test", "model", "lives_are_written"])
        .env("EDGEWARD_LIVES_FILE", file)
        .env("EDGEWARD_LIVES", lives.to_string())
        .env("EDGEWARD_SIM_SEED", first.to_string())
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    Ok(written.success())
}
