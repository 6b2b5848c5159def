//! The options of `edgeward lab`, and helpers of experiments and benchmarks.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context as _;
use edgeward_lab::{Problem, Stop};

use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::signals::Signals;

/// Run a plan: one trace through several caches, or a benchmark
///
/// A plan with `[[load]]` is a benchmark, any other plan an experiment.
///
/// An experiment starts the plan's contenders (edges with different settings, nginx, Varnish, Traffic Server) in front
/// of one synthetic origin, replays one trace through each, checks every byte, samples their resources every second,
/// and writes a report with all curves on one time axis.
///
/// A benchmark starts the plan's servers, sends its loads in rounds in which each server has its turn, and compares the
/// measures with the plan's goals.
///
/// Three plans are built in: second-hit, adaptsize-vs-peers and latency.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabArgs {
    /// The plan: a file, or second-hit, adaptsize-vs-peers, latency
    #[arg(value_name = "PLAN.toml")]
    pub(super) plan: PathBuf,

    /// Trace to use instead of the plan's, in any known format
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,

    /// Number of requests to use instead of the plan's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    pub(super) requests: Option<u64>,

    /// The page to write [default: lab-report/PLAN.html]
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,

    /// Folder for outcome.json and a table of samples per contender
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,

    /// Folder for the caches' files [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,

    /// Another edgeward binary to use, to compare versions
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(super) edgeward: Option<PathBuf>,

    /// Value of a benchmark's plan to use instead of the plan's (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value, hide_short_help = true)]
    pub(super) set: Vec<(String, String)>,

    /// Number of rounds of a benchmark to use instead of the plan's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), hide_short_help = true)]
    pub(super) rounds: Option<u32>,

    /// Only loads and servers of a benchmark whose name contains the text (repeatable)
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub(super) only: Vec<String>,

    /// Print the plan and exit
    #[arg(long, hide_short_help = true)]
    pub(super) print_plan: bool,
}

impl LabArgs {
    /// Returns the binary of the measured edges.
    pub(super) fn edgeward(&self) -> anyhow::Result<PathBuf> {
        match &self.edgeward {
            Some(program) => fs::canonicalize(program)
                .with_context(|| format!("{} does not exist", program.display())),
            None => std::env::current_exe().context("cannot find the file of this program"),
        }
    }

    /// Returns the folder of the caches' files.
    pub(super) fn folder_of_caches(&self) -> anyhow::Result<PathBuf> {
        let folder = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        anyhow::ensure!(
            folder.is_dir(),
            Diagnostic::new(format!("{} is not a folder", folder.display()))
                .hint("give an existing folder with --dir")
        );
        Ok(folder)
    }
}

/// Parses `NAME=VALUE`.
fn name_and_value(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let (name, value) = parts.ok_or("write NAME=VALUE, for example seconds=2")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Adds the plan's file to the problems that were found in it.
pub(super) fn with_file(problems: Vec<Problem>, file: &Path) -> Diagnostics {
    let diagnostics = problems.into_iter().map(|problem| {
        let diagnostic = Diagnostic::new(problem.message);
        let diagnostic = diagnostic.in_file(file).at_line(problem.line);
        match problem.hint {
            Some(hint) => diagnostic.hint(hint),
            None => diagnostic,
        }
    });
    Diagnostics(diagnostics.collect())
}

/// Returns a [`Stop`] that the first signal triggers. The child processes have their own process groups, so Ctrl-C
/// does not reach them, and the lab stops them itself.
pub(super) fn stop_by_signal() -> anyhow::Result<Stop> {
    let stop = Stop::default();
    let mut signals = Signals::listen()?;
    let trigger = stop.clone();
    // The thread ends with the process.
    thread::Builder::new()
        .name("lab-signals".to_owned())
        .spawn(move || {
            signals.next();
            trigger.request();
        })?;
    Ok(stop)
}

/// Replaces a file atomically: writes a new file and renames it.
pub(super) fn replace_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, bytes)
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

const EXAMPLES: &str = "\
Exit codes: 0 all contenders ran and every byte was correct, or all runs of a benchmark were valid and met
its goals; 1 otherwise; 2 the lab failed. A server that is not installed is omitted. Ctrl-C ends the lab; the
results so far remain.

Examples:
  edgeward lab second-hit
  edgeward lab adaptsize-vs-peers --trace akamai-w-web.tr.zst --report web.html
  edgeward lab latency --print-plan > mine.toml
  edgeward lab mine.toml --out results --json | jq '.contenders[] | {name, hits: .totals.hit_ratio}'
  edgeward lab bench/hits/plan.toml --only \"hit 1024\" --rounds 3

docs/how-to/lab.md describes the keys of an experiment, bench/README.md those of a benchmark.";
