//! `edgeward lab`: runs the experiment that a plan describes. The experiment replays one trace through each
//! contender: edges with different settings, and other cache servers.
//!
//! The command first checks the settings that the plan gives to edges, in the same way as `serve`. Then the crate
//! `edgeward-lab` runs the plan. After each contender, the report and the results so far are written, so that they
//! remain if the experiment is stopped.

mod bench;
mod plans;
mod text;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Context as _;

use edgeward_lab::{
    Benchmark, Contender, LabError, LabPaths, Outcome, Plan, Problem, ProgressObserver, Server,
    Setting, Stop, TraceError, TraceOrigin, page,
};

use crate::config::{self, FlagSetting, LoadError};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::output::{self, Progress};
use crate::signals::Signals;

/// Run a plan: one trace through several caches and settings
///
/// Starts the plan's contenders (edges with different settings, nginx, Varnish, Traffic Server) in front of one
/// synthetic origin, replays one trace through each, checks every byte, samples their resources every second,
/// and writes a report with all curves on one time axis.
///
/// Three plans are built in: second-hit, adaptsize-vs-peers and latency.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabArgs {
    /// The plan: a file, or second-hit, adaptsize-vs-peers, latency
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,

    /// Trace to use instead of the plan's, in any known format
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Number of requests to use instead of the plan's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    requests: Option<u64>,

    /// The page to write [default: lab-report/PLAN.html]
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Folder for outcome.json and a table of samples per contender
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Folder for the caches' files [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Another edgeward binary to use, to compare versions
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    edgeward: Option<PathBuf>,

    /// Value of a benchmark's plan to use instead of the plan's (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value, hide_short_help = true)]
    set: Vec<(String, String)>,

    /// Number of rounds of a benchmark to use instead of the plan's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), hide_short_help = true)]
    rounds: Option<u32>,

    /// Only loads and servers of a benchmark whose name contains the text (repeatable)
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    only: Vec<String>,

    /// Print the plan and exit
    #[arg(long, hide_short_help = true)]
    print_plan: bool,
}

/// Runs the experiment. The exit code is 0 if all installed contenders ran and every byte was correct, otherwise 1.
/// It is 2 if this function returns an error.
pub(crate) fn run(args: &LabArgs) -> anyhow::Result<ExitCode> {
    let (file, text) = read(&args.plan)?;
    if args.print_plan {
        let mut out = output::stdout();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    if Benchmark::is_plan(&text) {
        return bench::run(args, &file, &text);
    }
    anyhow::ensure!(
        args.set.is_empty() && args.only.is_empty() && args.rounds.is_none(),
        Diagnostic::new(
            "--set, --rounds and --only belong to a benchmark, and this plan has no [[server]]"
        )
        .in_file(&file)
    );
    let mut plan = parse(&file, &text)?;
    if let Some(trace) = &args.trace {
        plan.trace.origin = TraceOrigin::File(trace.clone());
    } else if let TraceOrigin::File(path) = &mut plan.trace.origin
        && let (true, Some(folder)) = (path.is_relative(), file.parent())
    {
        // A relative path starts at the plan's folder, as in a configuration file.
        *path = folder.join(&path);
    }
    plan.trace.requests = args.requests.unwrap_or(plan.trace.requests);
    let results = ResultFiles::new(args, &file)?;
    let paths = LabPaths {
        edgeward: edgeward(args)?,
        folder: folder_of_caches(args)?,
    };
    let stop = stop_by_signal()?;
    let observer = RunObserver {
        progress: Mutex::new(None),
        results,
        printed: Mutex::new(0),
        write_error: Mutex::new(None),
    };
    let outcome = edgeward_lab::run(&plan, &paths, &stop, &observer);
    *lock(&observer.progress) = None;
    let outcome = outcome.map_err(|error| with_location(error, &plan, &file))?;
    if let Some(error) = lock(&observer.write_error).take() {
        return Err(error);
    }
    if args.json {
        output::print_json(&outcome)?;
    } else {
        text::print(&outcome, &observer.results.report)?;
    }
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the binary of the measured edges.
fn edgeward(args: &LabArgs) -> anyhow::Result<PathBuf> {
    match &args.edgeward {
        Some(program) => fs::canonicalize(program)
            .with_context(|| format!("{} does not exist", program.display())),
        None => std::env::current_exe().context("cannot find the file of this program"),
    }
}

fn folder_of_caches(args: &LabArgs) -> anyhow::Result<PathBuf> {
    let folder = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    anyhow::ensure!(
        folder.is_dir(),
        Diagnostic::new(format!("{} is not a folder", folder.display()))
            .hint("give an existing folder with --dir")
    );
    Ok(folder)
}

/// Parses `NAME=VALUE`.
fn name_and_value(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=');
    let (name, value) = parts.ok_or("write NAME=VALUE, for example seconds=2")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Reads a plan from a file, or returns the built-in plan with this name. Returns the plan's file name and its text.
fn read(given: &Path) -> anyhow::Result<(PathBuf, String)> {
    if !given.exists()
        && let Some((name, text)) = plans::built_in(given)
    {
        return Ok((PathBuf::from(name), text.to_owned()));
    }
    let in_file = |message: String| Diagnostic::new(message).in_file(given);
    let mut bytes = Vec::new();
    fs::File::open(given)
        .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            in_file(format!("cannot read the plan: {error}")).hint(format!(
                "give a file, or a built-in plan: {}",
                plans::names().join(", ")
            ))
        })?;
    anyhow::ensure!(
        bytes.len() as u64 <= PLAN_BYTES_MAX,
        in_file("the plan exceeds 1 MiB".to_owned())
    );
    let text =
        String::from_utf8(bytes).map_err(|_| in_file("the plan is not valid UTF-8".to_owned()))?;
    Ok((given.to_owned(), text))
}

/// Parses the plan and checks the settings of its edges in the same way as `serve`.
fn parse(file: &Path, text: &str) -> Result<Plan, Diagnostics> {
    let plan = Plan::parse(text).map_err(|problems| with_file(problems, file))?;
    let mut diagnostics = Vec::new();
    for contender in &plan.contenders {
        // An edge may switch to other settings during the run.
        let Server::Edgeward {
            settings,
            settings_switch,
        } = &contender.server
        else {
            continue;
        };
        diagnostics.extend(invalid_settings(contender, settings, file));
        if let Some(settings_switch) = settings_switch {
            diagnostics.extend(invalid_settings(contender, &settings_switch.settings, file));
        }
    }
    if diagnostics.is_empty() {
        Ok(plan)
    } else {
        Err(Diagnostics(diagnostics))
    }
}

/// Adds the plan's file to the problems that were found in it.
fn with_file(problems: Vec<Problem>, file: &Path) -> Diagnostics {
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

/// The errors in the settings of an edge, each with its line.
fn invalid_settings(contender: &Contender, settings: &[Setting], file: &Path) -> Vec<Diagnostic> {
    let flag = |key: &str, text: &str| FlagSetting {
        flag: key.to_owned(),
        key: key.to_owned(),
        text: text.to_owned(),
    };
    // Settings that every edge needs. Their values here are placeholders.
    let mut required = vec![
        flag("listener.address", "127.0.0.1:0"),
        flag("origin.url", "http://127.0.0.1:9"),
        flag("hot.capacity", "64MiB"),
    ];
    if contender.disk.is_some() {
        required.push(flag("disk_device.path", "store"));
        required.push(flag("disk_device.capacity", "1GiB"));
    }
    // Each setting is checked alone, so that an error is reported with the line of its setting.
    let mut diagnostics = Vec::new();
    for setting in settings {
        let mut flags = required.clone();
        flags.push(flag(&setting.path(), &setting.value.to_string()));
        if let Err(error) = config::load(None, &flags) {
            let errors = match error {
                LoadError::Unreadable(diagnostic) => vec![diagnostic],
                LoadError::Invalid(Diagnostics(all)) => all,
            };
            let errors = errors.into_iter();
            diagnostics.extend(errors.map(|error| error.in_file(file).at_line(setting.line)));
        }
    }
    diagnostics
}

/// Adds a hint to an error that the operator can mend, and the line of the plan if the plan is the cause.
fn with_location(error: LabError, plan: &Plan, file: &Path) -> anyhow::Error {
    let message = error.to_string();
    match error {
        LabError::Trace(TraceError::Workload(_) | TraceError::Empty) => Diagnostic::new(message)
            .in_file(file)
            .at_line(plan.trace.line)
            .hint("change [trace], which sets what is generated and what is left out")
            .into(),
        LabError::NotEnoughSpace { .. } => Diagnostic::new(message)
            .hint("give the contenders less space, or another folder with --dir")
            .into(),
        other => anyhow::Error::new(other),
    }
}

/// Returns a [`Stop`] that the first signal triggers. The child processes have their own process groups, so Ctrl-C
/// does not reach them, and the lab stops them itself.
fn stop_by_signal() -> anyhow::Result<Stop> {
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

/// The files of the results. [`ResultFiles::new`] creates their folders and the report before the experiment runs, so
/// that the command reports a wrong path at once.
struct ResultFiles {
    report: PathBuf,
    out: Option<PathBuf>,
    /// The command that repeats the experiment, for the report.
    command: String,
}

impl ResultFiles {
    fn new(args: &LabArgs, plan: &Path) -> anyhow::Result<Self> {
        let name = plan.file_stem().unwrap_or(plan.as_os_str());
        let report = match (&args.report, &args.out) {
            (Some(report), _) => report.clone(),
            (None, Some(out)) => out.join("report.html"),
            (None, None) => Path::new(REPORT_FOLDER).join(name).with_extension("html"),
        };
        for folder in [report.parent(), args.out.as_deref()].into_iter().flatten() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the folder {}", folder.display()))?;
        }
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&report)
            .with_context(|| format!("cannot write {}", report.display()))?;
        let file_name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        let mut command = format!("edgeward lab {}", file_name(plan));
        if let Some(trace) = &args.trace {
            command += &format!(" --trace {}", file_name(trace));
        }
        if let Some(requests) = args.requests {
            command += &format!(" --requests {requests}");
        }
        Ok(Self {
            report: std::path::absolute(&report)?,
            out: args.out.clone(),
            command,
        })
    }

    /// Writes all results so far. Each file is replaced atomically, so that a reader never sees an incomplete file.
    fn write(&self, outcome: &Outcome) -> anyhow::Result<()> {
        replace_file(&self.report, page(outcome, &self.command).as_bytes())?;
        let Some(out) = &self.out else {
            return Ok(());
        };
        replace_file(
            &out.join("outcome.json"),
            &serde_json::to_vec_pretty(outcome)?,
        )?;
        for (n, contender) in outcome.contenders.iter().enumerate() {
            let name: String = contender
                .name
                .chars()
                .map(|c| if c.is_alphanumeric() { c } else { '-' })
                .collect();
            let mut csv = csv::Writer::from_writer(Vec::new());
            csv.write_record(edgeward_lab::Sample::COLUMNS)?;
            for sample in &contender.series {
                csv.write_record(sample.cells())?;
            }
            let bytes = csv
                .into_inner()
                .context("cannot write a table of samples")?;
            replace_file(&out.join(format!("{}-{name}.csv", n + 1)), &bytes)?;
        }
        Ok(())
    }
}

/// Replaces a file atomically: writes a new file and renames it.
fn replace_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    fs::write(&temporary, bytes)
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Shows the progress of the experiment, and writes the results after each contender.
struct RunObserver {
    progress: Mutex<Option<Progress>>,
    results: ResultFiles,
    /// The number of contenders that have ended and are printed.
    printed: Mutex<usize>,
    /// The first error of writing the results.
    write_error: Mutex<Option<anyhow::Error>>,
}

impl ProgressObserver for RunObserver {
    fn begin_step(&self, what: &str, requests: u64) {
        let mut progress = lock(&self.progress);
        // Removes the previous progress bar before the next one is drawn.
        *progress = None;
        *progress = Some(Progress::new(what.to_owned(), "requests", Some(requests)));
    }

    fn set_progress(&self, requests: u64) {
        if let Some(progress) = &*lock(&self.progress) {
            progress.set(requests);
        }
    }

    fn contender_ended(&self, outcome: &Outcome) {
        let mut printed = lock(&self.printed);
        for contender in outcome.contenders.iter().skip(*printed) {
            if let Some(progress) = &*lock(&self.progress) {
                progress.note(&text::line(contender));
            }
        }
        *printed = outcome.contenders.len();
        if let Err(error) = self.results.write(outcome) {
            lock(&self.write_error).get_or_insert(error);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The maximum size of a plan, far above the size of any real plan.
const PLAN_BYTES_MAX: u64 = 1 << 20;

const REPORT_FOLDER: &str = "lab-report";

const EXAMPLES: &str = "\
Exit codes: 0 all contenders ran and every byte was correct, 1 otherwise, 2 the lab failed.
A server that is not installed is omitted. Ctrl-C ends the experiment; the results so far remain.

Examples:
  edgeward lab second-hit
  edgeward lab adaptsize-vs-peers --trace akamai-w-web.tr.zst --report web.html
  edgeward lab latency --print-plan > mine.toml
  edgeward lab mine.toml --out results --json | jq '.contenders[] | {name, hits: .totals.hit_ratio}'

docs/how-to/lab.md describes the keys of a plan.";
