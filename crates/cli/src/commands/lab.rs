//! `edgeward lab`: runs the experiment that a plan describes. The experiment replays one trace through each
//! contender: edges with different settings, and other cache servers.
//!
//! The command first checks the settings that the plan gives to edges, in the same way as `serve`. Then the crate
//! `edgeward-lab` runs the plan. After each contender, the report and the results so far are written, so that they
//! remain if the experiment is stopped.

mod args;
mod bench;
mod plans;
mod text;

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;

use edgeward_lab::{
    Benchmark, Contender, LabError, LabPaths, Outcome, Plan, ProgressObserver, Server, Setting,
    TraceError, TraceOrigin, page,
};

use crate::config::{self, FlagSetting, LoadError};
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::output::{self, Progress};
pub(crate) use args::LabArgs;
use args::{replace_file, stop_by_signal, with_file};

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
            "--set, --rounds and --only belong to a benchmark, and this plan has no [[load]]"
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
        edgeward: args.edgeward()?,
        folder: args.folder_of_caches()?,
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
