//! Measures the Bloom filter of the Java library Guava: runs a small Java program from source, which prints its results
//! as JSON.

use std::process::{Command, Stdio};

use anyhow::Context;

use super::subjects::QUERIES_PER_ROUND;
use super::{BenchFilterArgs, Row};
use crate::diagnostic::Diagnostic;

/// Returns the results of Guava. `jars` is the class path of the Java program.
pub(super) fn measure(args: &BenchFilterArgs, jars: &str) -> anyhow::Result<Row> {
    let folder = std::env::temp_dir().join(format!("edgeward-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).context("cannot create a temporary folder")?;
    let program = folder.join("BenchGuava.java");
    let result = std::fs::write(&program, SOURCE)
        .context("cannot write the Java program")
        .and_then(|()| {
            Command::new(&args.java)
                .args(["-Xmx3g", "-cp", jars])
                .arg(&program)
                .arg(args.ids.to_string())
                .arg(args.fpr.share().to_string())
                .arg(args.rounds.to_string())
                .arg(QUERIES_PER_ROUND.to_string())
                .stdin(Stdio::null())
                .output()
                .with_context(|| format!("cannot run {}", args.java.display()))
        });
    _ = std::fs::remove_dir_all(&folder);
    let output = result?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let first = stderr.lines().next().unwrap_or("no message").to_owned();
        return Err(Diagnostic::new(format!("Guava could not be measured: {first}"))
            .hint("--guava needs the jars of guava and failureaccess, joined by a colon, and Java 17 or later")
            .into());
    }
    serde_json::from_slice(&output.stdout).context("the output of the Java program is not JSON")
}

const SOURCE: &str = include_str!("guava/BenchGuava.java");
