//! `edgeward lab`: an experiment by plan, with edges and other servers behind one trace.
//!
//! The plan is read, and the settings it gives to edges are held against the very list that
//! `serve` reads; then `edgeward_lab` carries it out. After each contender's turn the report and the
//! figures so far are written, so that whatever ends the run, what was measured is there.

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
    Bench, Contender, LabError, Outcome, Plan, Server, Setting, Stop, TraceError, TraceOrigin,
    Watcher, page,
};

use crate::complaint::{Complaint, Complaints};
use crate::config::{self, FlagSetting, LoadError};
use crate::output::{self, Progress};
use crate::signals::Signals;

/// Run an experiment by plan: settings, other caches, one trace
///
/// Starts the plan's contenders (edges with different settings, nginx, Varnish, Traffic Server) behind one
/// synthetic origin, sends one trace through each, checks every byte, looks each second at what they
/// use, and writes a report with all curves on one time axis.
///
/// Three plans come with the program: second-hit, adaptsize-vs-peers and latency.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct LabArgs {
    /// The plan: a file, or second-hit, adaptsize-vs-peers, latency
    #[arg(value_name = "PLAN.toml")]
    plan: PathBuf,

    /// Another trace than the plan's, of any known format
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Another number of requests than the plan's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    requests: Option<u64>,

    /// The page to write [default: lab-report/PLAN.html]
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Folder for outcome.json and a table of samples for each contender
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Where the caches lie meanwhile [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Another edgeward than this one, to put versions side by side
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    edgeward: Option<PathBuf>,

    /// Print the plan instead of carrying it out
    #[arg(long, hide_short_help = true)]
    print_plan: bool,
}

/// Code 0: all of it ran, and every byte was right. 1: something did not.
pub(crate) fn run(args: &LabArgs) -> anyhow::Result<ExitCode> {
    let (file, text) = read(&args.plan)?;
    if args.print_plan {
        let mut out = output::stdout();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut plan = parse(&file, &text)?;
    if let Some(trace) = &args.trace {
        plan.trace.origin = TraceOrigin::File(trace.clone());
    } else if let TraceOrigin::File(path) = &mut plan.trace.origin
        && let (true, Some(folder)) = (path.is_relative(), file.parent())
    {
        // As in a configuration: it is found wherever the plan is started.
        *path = folder.join(&path);
    }
    plan.trace.requests = args.requests.unwrap_or(plan.trace.requests);
    let kept = Kept::new(args, &file)?;
    let bench = Bench {
        edgeward: match &args.edgeward {
            Some(program) => fs::canonicalize(program)
                .with_context(|| format!("there is no {}", program.display()))?,
            None => std::env::current_exe().context("this program's file is not known")?,
        },
        folder: args.dir.clone().unwrap_or_else(std::env::temp_dir),
    };
    anyhow::ensure!(
        bench.folder.is_dir(),
        Complaint::new(format!("{} is not a folder", bench.folder.display()))
            .hint("--dir names one that is there")
    );
    let stop = stop_by_signal()?;
    let shown = Shown {
        progress: Mutex::new(None),
        kept,
        told: Mutex::new(0),
        unkept: Mutex::new(None),
    };
    let outcome = edgeward_lab::run(&plan, &bench, &stop, &shown);
    *lock(&shown.progress) = None;
    let outcome = outcome.map_err(|error| explained(error, &plan, &file))?;
    if let Some(error) = lock(&shown.unkept).take() {
        return Err(error);
    }
    if args.json {
        output::print_json(&outcome)?;
    } else {
        text::print(&outcome, &shown.kept.report)?;
    }
    Ok(if outcome.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The plan's text and what to call it: a file, or one that comes with the program.
fn read(asked: &Path) -> anyhow::Result<(PathBuf, String)> {
    if !asked.exists()
        && let Some((name, text)) = plans::named(asked)
    {
        return Ok((PathBuf::from(name), text.to_owned()));
    }
    let in_file = |message: String| Complaint::new(message).in_file(asked);
    let mut bytes = Vec::new();
    fs::File::open(asked)
        .and_then(|file| file.take(PLAN_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| {
            in_file(format!("the plan cannot be read: {error}")).hint(format!(
                "name a file, or one that comes with the program: {}",
                plans::names().join(", ")
            ))
        })?;
    anyhow::ensure!(
        bytes.len() as u64 <= PLAN_BYTES_MAX,
        in_file("the plan is larger than 1 MiB".to_owned())
    );
    let text = String::from_utf8(bytes)
        .map_err(|_| in_file("the plan is not text: TOML is UTF-8".to_owned()))?;
    Ok((asked.to_owned(), text))
}

/// The plan, with the settings of its edges checked as `serve` would check them.
fn parse(file: &Path, text: &str) -> Result<Plan, Complaints> {
    let placed = |message: &str, line: usize, hint: Option<String>| {
        let complaint = Complaint::new(message).in_file(file).at_line(line);
        match hint {
            Some(hint) => complaint.hint(hint),
            None => complaint,
        }
    };
    let plan = Plan::parse(text).map_err(|problems| {
        let complaints = problems.into_iter();
        Complaints(
            complaints
                .map(|problem| placed(&problem.message, problem.line, problem.hint))
                .collect(),
        )
    })?;
    let mut complaints = Vec::new();
    for contender in &plan.contenders {
        let Server::Edgeward { settings, switch } = &contender.server else {
            continue;
        };
        complaints.extend(wrong_settings(contender, settings, file));
        if let Some(switch) = switch {
            complaints.extend(wrong_settings(contender, &switch.settings, file));
        }
    }
    if complaints.is_empty() {
        Ok(plan)
    } else {
        Err(Complaints(complaints))
    }
}

/// What an edge would refuse, each at its line.
fn wrong_settings(contender: &Contender, settings: &[Setting], file: &Path) -> Vec<Complaint> {
    let flag = |key: &str, text: &str| FlagSetting {
        flag: key.to_owned(),
        key: key.to_owned(),
        text: text.to_owned(),
    };
    let mut given = vec![
        flag("listener.address", "127.0.0.1:0"),
        flag("origin.url", "http://127.0.0.1:9"),
        flag("hot.capacity", "64MiB"),
    ];
    if contender.disk.is_some() {
        given.push(flag("disk_device.path", "store"));
        given.push(flag("disk_device.capacity", "1GiB"));
    }
    // One after the other, so that each complaint has its line.
    let mut complaints = Vec::new();
    for setting in settings {
        let mut flags = given.clone();
        flags.push(flag(&setting.path(), &setting.value.to_string()));
        if let Err(error) = config::load(None, &flags) {
            let found = match error {
                LoadError::Unreadable(complaint) => vec![complaint],
                LoadError::Wrong(Complaints(all)) => all,
            };
            let found = found.into_iter();
            complaints.extend(found.map(|one| one.in_file(file).at_line(setting.line)));
        }
    }
    complaints
}

/// A failure of the whole, with the plan's line where that helps.
fn explained(error: LabError, plan: &Plan, file: &Path) -> anyhow::Error {
    let message = error.to_string();
    match error {
        LabError::Trace(TraceError::Workload(_) | TraceError::Empty) => Complaint::new(message)
            .in_file(file)
            .at_line(plan.trace.line)
            .hint("[trace] says what to make up, and what to leave out of it")
            .into(),
        LabError::NoRoom { .. } => Complaint::new(message)
            .hint("give the contenders less, or name a folder with more room with --dir")
            .into(),
        other => anyhow::Error::new(other),
    }
}

/// A wish to stop that the first signal makes. The children have a process group of their own and are ended in
/// order.
fn stop_by_signal() -> anyhow::Result<Stop> {
    let stop = Stop::default();
    let mut signals = Signals::listen()?;
    let asked = stop.clone();
    // Ends with the process: it only ever waits.
    thread::Builder::new()
        .name("lab-signals".to_owned())
        .spawn(move || {
            signals.next();
            asked.ask();
        })?;
    Ok(stop)
}

/// Where results are kept, known to be writable before minutes are spent.
struct Kept {
    report: PathBuf,
    out: Option<PathBuf>,
    /// What repeats the run.
    command: String,
}

impl Kept {
    fn new(args: &LabArgs, plan: &Path) -> anyhow::Result<Self> {
        let name = plan.file_stem().unwrap_or(plan.as_os_str());
        let report = match (&args.report, &args.out) {
            (Some(report), _) => report.clone(),
            (None, Some(out)) => out.join("report.html"),
            (None, None) => Path::new(REPORT_FOLDER).join(name).with_extension("html"),
        };
        for folder in [report.parent(), args.out.as_deref()].into_iter().flatten() {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        }
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&report)
            .with_context(|| format!("cannot write {}", report.display()))?;
        let shown = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        let mut command = format!("edgeward lab {}", shown(plan));
        if let Some(trace) = &args.trace {
            command += &format!(" --trace {}", shown(trace));
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

    /// Writes everything there is. Each file is replaced whole, so that a reader never sees half of one.
    fn keep(&self, outcome: &Outcome) -> anyhow::Result<()> {
        replace(&self.report, page(outcome, &self.command).as_bytes())?;
        let Some(out) = &self.out else {
            return Ok(());
        };
        replace(
            &out.join("outcome.json"),
            &serde_json::to_vec_pretty(outcome)?,
        )?;
        for (n, one) in outcome.contenders.iter().enumerate() {
            let name: String = one
                .name
                .chars()
                .map(|c| if c.is_alphanumeric() { c } else { '-' })
                .collect();
            let mut csv = csv::Writer::from_writer(Vec::new());
            csv.write_record(edgeward_lab::Sample::COLUMNS)?;
            for sample in &one.series {
                csv.write_record(sample.cells())?;
            }
            let bytes = csv.into_inner().context("a table of samples")?;
            replace(&out.join(format!("{}-{name}.csv", n + 1)), &bytes)?;
        }
        Ok(())
    }
}

fn replace(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    fs::write(&beside, bytes)
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Shows how far the run is, and keeps what it has.
struct Shown {
    progress: Mutex<Option<Progress>>,
    kept: Kept,
    /// Of how many contenders the end was told.
    told: Mutex<usize>,
    /// Why results could not be kept, the first time.
    unkept: Mutex<Option<anyhow::Error>>,
}

impl Watcher for Shown {
    fn begin(&self, what: &str, requests: u64) {
        let mut progress = lock(&self.progress);
        // The former bar goes before the next one comes.
        *progress = None;
        *progress = Some(Progress::new(what.to_owned(), "requests", Some(requests)));
    }

    fn at(&self, requests: u64) {
        if let Some(progress) = &*lock(&self.progress) {
            progress.set(requests);
        }
    }

    fn so_far(&self, outcome: &Outcome) {
        let mut told = lock(&self.told);
        for one in outcome.contenders.iter().skip(*told) {
            if let Some(progress) = &*lock(&self.progress) {
                progress.note(&text::line(one));
            }
        }
        *told = outcome.contenders.len();
        if let Err(error) = self.kept.keep(outcome) {
            lock(&self.unkept).get_or_insert(error);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const PLAN_BYTES_MAX: u64 = 1 << 20;

const REPORT_FOLDER: &str = "lab-report";

const EXAMPLES: &str = "\
Exit codes: 0 all of it ran and every byte was right, 1 something did not, 2 it could not be done.
A server that is not installed is left out and named. Ctrl-C ends the run; what was measured is kept.

Examples:
  edgeward lab second-hit
  edgeward lab adaptsize-vs-peers --trace akamai-w-web.tr.zst --report web.html
  edgeward lab latency --print-plan > mine.toml
  edgeward lab mine.toml --out results --json | jq '.contenders[] | {name, hits: .totals.hit_ratio}'

The keys of a plan are described in docs/how-to/lab.md.";
