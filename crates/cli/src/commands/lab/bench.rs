//! `edgeward lab` with the plan of a benchmark: servers, loads and goals, measured in rounds.
//!
//! After each run, the results so far are written to two files, so that they remain if the benchmark is stopped.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

use edgeward_lab::{Benchmark, BenchmarkError, BenchmarkOutcome, BenchmarkPaths, run_benchmark};

use super::args::{LabArgs, replace_file, stop_by_signal, with_file};
use crate::diagnostic::Diagnostic;
use crate::output;

/// Runs the benchmark. The exit code is 0 if all runs are valid and all goals are met, otherwise 1. It is 2 if this
/// function returns an error.
pub(super) fn run(args: &LabArgs, file: &Path, text: &str) -> anyhow::Result<ExitCode> {
    let not_allowed = args.trace.is_some() || args.requests.is_some() || args.report.is_some();
    anyhow::ensure!(
        !not_allowed,
        Diagnostic::new(
            "--trace, --requests and --report belong to an experiment, and this plan is a benchmark"
        )
        .in_file(file)
        .hint("write --set NAME=VALUE")
    );
    let plan = Benchmark::parse(text, &args.set);
    let mut plan = plan.map_err(|problems| with_file(problems, file))?;
    plan.rounds = args.rounds.unwrap_or(plan.rounds);
    if !args.only.is_empty() && !plan.keep_only(&args.only) {
        let loads = plan.loads.iter().map(|load| load.name.as_str());
        let servers = plan.servers.iter().filter(|server| server.is_measured);
        let names = loads.chain(servers.map(|server| server.name.as_str()));
        let hint = format!("the names are {}", names.collect::<Vec<_>>().join(", "));
        return Err(Diagnostic::new(
            "no load and no server has a name that contains the text of --only",
        )
        .in_file(file)
        .hint(hint)
        .into());
    }
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let folder = fs::canonicalize(folder)?;
    let name = folder.file_name().unwrap_or_default();
    let scratch = Path::new("bench/scratch").join(name);
    let out = args.out.clone().unwrap_or_else(|| scratch.join("results"));
    fs::create_dir_all(&out)
        .with_context(|| format!("cannot create the folder {}", out.display()))?;
    let paths = BenchmarkPaths {
        edgeward: args.edgeward()?,
        plan: folder.clone(),
        scratch,
        temporary: args.folder_of_caches()?,
    };
    let command = command(args, file);
    let mut written = Ok(());
    let mut observe = |line: &str, outcome: &BenchmarkOutcome| {
        eprintln!("{line}");
        if written.is_ok() {
            written = write(&out, outcome, &command);
        }
    };
    let outcome = run_benchmark(&plan, &paths, &stop_by_signal()?, &mut observe);
    let outcome = outcome.map_err(with_hint)?;
    written?;
    write(&out, &outcome, &command)?;
    if args.json {
        output::print_json(&outcome)?;
    } else {
        let mut stdout = output::stdout();
        let summary = outcome.markdown(&command);
        writeln!(stdout, "{summary}\nresults: {}", out.display())?;
        stdout.flush()?;
    }
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Writes `summary.md` and `data.json`.
fn write(out: &Path, outcome: &BenchmarkOutcome, command: &str) -> anyhow::Result<()> {
    replace_file(
        &out.join("summary.md"),
        outcome.markdown(command).as_bytes(),
    )?;
    let mut data = serde_json::to_vec(outcome)?;
    data.push(b'\n');
    replace_file(&out.join("data.json"), &data)
}

/// Returns the command that repeats the benchmark.
fn command(args: &LabArgs, file: &Path) -> String {
    let mut command = format!("edgeward lab {}", file.display());
    for (name, value) in &args.set {
        command += &format!(" --set {name}={value}");
    }
    for text in &args.only {
        command += &format!(" --only {text:?}");
    }
    if let Some(rounds) = args.rounds {
        command += &format!(" --rounds {rounds}");
    }
    command
}

fn with_hint(error: BenchmarkError) -> anyhow::Error {
    match &error {
        BenchmarkError::NotInstalled { .. } => Diagnostic::new(error.to_string())
            .hint("scripts/ensure-debian installs what the benchmarks need")
            .into(),
        _ => error.into(),
    }
}
