//! `edgeward analyze`: what request logs say of a site, however large they are.
//!
//! Crate `logs` reads and counts; [`document`] turns that into the figures that are told, once,
//! and the table, the JSON and the page are three ways of telling them.

mod document;
mod page;
mod prediction;
mod table;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use clap::Args;

use edgeward_analysis::{Field, Format, Names, QueryRule, Template};
use edgeward_logs::{Analysis, Depth, FileReport, FindError, Settings, Source};
use edgeward_types::ByteSize;

use crate::complaint::Complaint;
use crate::input::LimitArgs;
use crate::output::{self, Progress};

use document::Document;
use prediction::Wished;

/// Say what request logs hold: popularity, one-hit wonders, traffic
///
/// Reads any number of logs of any number of machines with all cores, within the memory given:
/// what does not fit goes to a temporary file, 16 bytes a request (8 with --counts).
///
/// A log that is cut, damaged or unreadable costs its rest: the others are read, the result is
/// marked incomplete, and the exit code is 2.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct AnalyzeArgs {
    /// Logs: files, folders, patterns; - for stdin
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,

    /// Only how often each URL was requested: several times as fast
    #[arg(long)]
    counts: bool,

    /// How many of the most requested URLs, hosts, … are named
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: u16,

    /// Leave the query out of URLs
    #[arg(long)]
    cut_query: bool,

    /// The logs' format, where it is not recognised: ncsa, json, w3c, or a format string
    ///
    /// A format string is nginx's log_format, Apache's LogFormat or varnishncsa's -F.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// Names of JSON fields of one's own, as in url=req.path,status=code
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = field,
        hide_short_help = true
    )]
    fields: Vec<(Field, String)>,

    /// Memory for buffers and tables
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: ByteSize,

    /// Where the temporary file lies [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    temp: Option<PathBuf>,

    /// How large it may become [default: nine tenths of what is free there]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    temp_max: Option<ByteSize>,

    /// Threads [default: one a core]
    #[arg(long, value_name = "N", hide_short_help = true)]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    limits: LimitArgs,

    /// RAM of the cache to predict for [default: what suits the logs]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    hot: Option<ByteSize>,

    /// Disk of the cache to predict for [default: what suits the logs]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    disk: Option<ByteSize>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write a page with plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Carries it out. What was read of logs that break off is shown before the error.
pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<ExitCode> {
    let sources = edgeward_logs::find(&args.logs).map_err(complaint_of)?;
    let settings = args.settings()?;
    let analysis = read(&sources, &settings)?;
    let requests = analysis.objects.requests();
    if requests == 0 {
        return Err(nothing_read(&analysis).into());
    }
    let incomplete = incomplete(&analysis);
    let wished = Wished {
        ram: args.hot,
        disk: args.disk,
    };
    let document = Document::of(analysis, usize::from(args.top), wished);
    if let Some(path) = &args.report {
        let html = page::render(&document, &label(&sources));
        std::fs::write(path, html).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        output::print_json(&document)?;
    } else {
        table::print(&document)?;
        if let Some(path) = &args.report {
            eprintln!("report: {}", path.display());
        }
    }
    document.warn();
    incomplete.map_or(Ok(ExitCode::SUCCESS), |complaint| Err(complaint.into()))
}

impl AnalyzeArgs {
    fn settings(&self) -> anyhow::Result<Settings> {
        if self.memory < MEMORY_MIN {
            return Err(
                Complaint::new(format!("--memory {} is too little", self.memory))
                    .hint(format!("give {MEMORY_MIN} or more"))
                    .into(),
            );
        }
        let names = Names::with(self.fields.iter().cloned());
        let format = match self.format.as_deref() {
            None => None,
            Some("ncsa") => Some(Format::Ncsa),
            Some("json") => Some(Format::Json(names.clone())),
            Some("w3c") => Some(Format::W3c),
            Some(text) => Some(Format::Template(Template::compile(text).map_err(|error| {
                Complaint::new(format!("--format: {error}"))
                    .hint("ncsa, json and w3c are known by name; docs/analyze.md tells of format strings")
            })?)),
        };
        let temp_folder = self.temp.clone().unwrap_or_else(std::env::temp_dir);
        let temp_max = match self.temp_max {
            Some(size) => size,
            None => ByteSize(free_bytes(&temp_folder)? / 10 * 9),
        };
        let threads = self
            .threads
            .or_else(|| thread::available_parallelism().ok())
            .map_or(1, NonZeroUsize::get);
        Ok(Settings {
            depth: if self.counts {
                Depth::Counts
            } else {
                Depth::Full
            },
            format,
            names,
            query: if self.cut_query {
                QueryRule::Cut
            } else {
                QueryRule::Keep
            },
            threads,
            memory: self.memory,
            temp_folder,
            temp_max,
            line_bytes_max: self.limits.line_bytes_max,
            zstd_window_log_max: self.limits.zstd_window_log,
            top_max: usize::from(self.top),
        })
    }
}

/// What to call the logs in a heading.
fn label(sources: &[Source]) -> String {
    let name = |source: &Source| {
        let name = source.path.as_ref().and_then(|path| path.file_name());
        name.map_or_else(
            || source.label.clone(),
            |name| name.to_string_lossy().into_owned(),
        )
    };
    match sources {
        [one] => name(one),
        [first, rest @ ..] => format!("{} and {} more", name(first), rest.len()),
        [] => String::new(),
    }
}

fn read(sources: &[Source], settings: &Settings) -> anyhow::Result<Analysis> {
    let known = sources.iter().all(|source| source.path.is_some());
    let total = known.then(|| sources.iter().map(|source| source.bytes).sum());
    let progress = Progress::new("reading", "bytes", total);
    let advance = |bytes| progress.advance(bytes);
    Ok(edgeward_logs::analyze(sources, settings, &advance)?)
}

fn free_bytes(folder: &Path) -> anyhow::Result<u64> {
    let facts = rustix::fs::statvfs(folder).map_err(|error| {
        Complaint::new(format!(
            "the folder for the temporary file cannot be used: {error}"
        ))
        .in_file(folder)
        .hint("name another with --temp")
    })?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}

fn complaint_of(error: FindError) -> Complaint {
    let hint = match &error {
        FindError::StdinTwice => "name `-` once",
        FindError::EmptyFolder { .. } => {
            "hidden files are passed over; name them to have them read"
        }
        FindError::TooMany => "analyze them in parts",
        _ => "",
    };
    let cause = std::error::Error::source(&error);
    let message = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
    let complaint = Complaint::new(message);
    if hint.is_empty() {
        complaint
    } else {
        complaint.hint(hint)
    }
}

/// There is nothing to show: the first thing wrong is why.
fn nothing_read(analysis: &Analysis) -> Complaint {
    if let Some(file) = analysis.files.iter().find(|file| file.problem.is_some()) {
        return complaint_about(file);
    }
    let malformed = analysis.files.iter().find(|file| file.malformed.lines > 0);
    if let Some(file) = malformed {
        let mut complaint =
            Complaint::new("no line of it could be understood").in_file(&file.label);
        if let Some((number, what, _)) = file.malformed.examples.first() {
            complaint = complaint
                .at_line(usize::try_from(*number).unwrap_or(usize::MAX))
                .hint(what.clone());
        }
        return complaint;
    }
    Complaint::new("the logs hold no requests")
}

fn complaint_about(file: &FileReport) -> Complaint {
    let problem = file.problem.as_ref().expect("it has one");
    let complaint = Complaint::new(problem.to_string()).in_file(&file.label);
    match problem.hint() {
        Some(hint) => complaint.hint(hint),
        None => complaint,
    }
}

/// What the exit code says when there is a result, but not of everything.
fn incomplete(analysis: &Analysis) -> Option<Complaint> {
    if analysis.is_complete() {
        return None;
    }
    if let Some(error) = &analysis.spill_error {
        let cause = std::error::Error::source(error);
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let message = format!("the result is incomplete: {error}{cause}");
        return Some(Complaint::new(message).hint(
            "give it more room with --temp DIR and --temp-max SIZE, or analyze fewer logs at a time",
        ));
    }
    let cut = analysis.files.iter().filter(|file| file.problem.is_some());
    Some(Complaint::new(format!(
        "the result is incomplete: {} of {} logs were not read to the end",
        cut.count(),
        analysis.files.len()
    )))
}

/// `url=req.path`.
fn field(text: &str) -> Result<(Field, String), String> {
    let (field, name) = text
        .split_once('=')
        .filter(|(_, name)| !name.is_empty())
        .ok_or_else(|| format!("`{text}` is not FIELD=NAME, as in url=req.path"))?;
    let Some(field) = Field::named(field) else {
        let known = Field::ALL.map(|(name, _)| name).join(", ");
        return Err(format!("`{field}` is no field; use {known}"));
    };
    Ok((field, name.to_owned()))
}

/// Less would be buffers of a few rows.
const MEMORY_MIN: ByteSize = ByteSize::mib(16);

const EXAMPLES: &str = r#"Examples:
  edgeward analyze /var/log/nginx/access.log*
  edgeward analyze logs/ --report report.html
  edgeward analyze --counts 'logs/edge-*/2026-11-*.gz'
  edgeward analyze x.log --format '$host [$time_local] "$request" $status $body_bytes_sent'
  ssh edge-3 cat /var/log/nginx/access.log | edgeward analyze -
  edgeward analyze logs/ --json | jq .once_share"#;
