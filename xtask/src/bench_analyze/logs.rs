//! The logs that the benchmark of `edgeward analyze` reads. They are generated once per size and compression, and kept.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, ensure};

use super::Plan;
use crate::say;

/// The files of the log in one compression.
pub(super) struct LogSet {
    pub(super) compression: &'static str,
    pub(super) files: Vec<PathBuf>,
    /// The size of all files.
    pub(super) bytes: u64,
    /// The size of the log before compression.
    pub(super) raw_bytes: u64,
}

/// Returns the logs of a plan, and generates missing ones.
pub(super) fn ensure_logs(plan: &Plan) -> anyhow::Result<Vec<LogSet>> {
    plan.compressions
        .iter()
        .map(|&compression| {
            let name = format!("{}-{}-{}-{compression}", plan.lines, plan.urls, plan.files);
            let folder = plan.out.join(name);
            // This file is written last. A folder without the file is left over from an interrupted run.
            let completion_file = folder.join("raw_bytes");
            if !completion_file.is_file() {
                say(format!("generating {} …\n", folder.display()));
                let raw_bytes = generate(plan, compression, &folder)?;
                fs::write(&completion_file, raw_bytes.to_string())?;
            }
            let raw_bytes = fs::read_to_string(&completion_file)?.trim().parse()?;
            let files = file_names(plan, compression, &folder);
            let bytes = files
                .iter()
                .map(|file| Ok(file.metadata()?.len()))
                .sum::<anyhow::Result<u64>>()?;
            Ok(LogSet {
                compression,
                files,
                bytes,
                raw_bytes,
            })
        })
        .collect()
}

fn file_names(plan: &Plan, compression: &str, folder: &Path) -> Vec<PathBuf> {
    (0..plan.files)
        .map(|n| folder.join(format!("access-{n:03}.log.{compression}")))
        .collect()
}

fn generate(plan: &Plan, compression: &str, folder: &Path) -> anyhow::Result<u64> {
    fs::create_dir_all(folder)?;
    let mut generator = Command::new(&plan.edgeward)
        .args([
            "--quiet", "trace", "generate", "--preset", "web", "--to", "combined",
        ])
        .args(["--seed", "1", "--one-hit-share", "70%", "--churn", "0"])
        .args(["--requests", &plan.lines.to_string()])
        .args(["--objects", &plan.urls.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("{}", plan.edgeward.display()))?;
    let mut lines = BufReader::new(generator.stdout.take().expect("the stream is a pipe"));
    let mut raw_bytes = 0;
    let mut line = Vec::new();
    for (n, path) in file_names(plan, compression, folder).iter().enumerate() {
        let (begin, end) = (n as u64, n as u64 + 1);
        let count = end * plan.lines / plan.files - begin * plan.lines / plan.files;
        let mut compressor = compressor(compression, path)?;
        let mut into = compressor.stdin.take().expect("the stream is a pipe");
        for _ in 0..count {
            line.clear();
            raw_bytes += lines.read_until(b'\n', &mut line)? as u64;
            into.write_all(&line)?;
        }
        drop(into);
        ensure!(
            compressor.wait()?.success(),
            "{} could not be written",
            path.display()
        );
    }
    ensure!(
        generator.wait()?.success(),
        "the log could not be generated"
    );
    Ok(raw_bytes)
}

/// Starts a compressor that writes to `path`, with its default compression level, as logrotate does.
fn compressor(compression: &str, path: &Path) -> anyhow::Result<Child> {
    let program = if compression == "gz" { "gzip" } else { "zstd" };
    let file = File::create(path).with_context(|| format!("{}", path.display()))?;
    Command::new(program)
        .args(["-q", "-c"])
        .stdin(Stdio::piped())
        .stdout(file)
        .spawn()
        .with_context(|| format!("{program} is not installed"))
}
