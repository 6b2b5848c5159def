//! `edgeward analyze`: reports the popularity of URLs, the traffic and a cache prediction from request logs of
//! any size.
//!
//! The crate `edgeward-logs` reads and counts. [`document`] computes the figures, which are printed as a table,
//! as JSON or as an HTML page.

mod diagnostics;
mod document;
mod page;
mod parquet;
mod prediction;
mod table;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use clap::{Args, Subcommand};

use edgeward_analysis::{Field, FieldNames, Format, PRESETS, QueryRule, Template, preset};
use edgeward_logs::{
    Analysis, Checkpoint, Depth, FingerprintBits, PartialSummary, Settings, Source,
};
use edgeward_types::ByteSize;

use crate::diagnostic::Diagnostic;
use crate::input::LimitArgs;
use crate::output::{self, Progress};

use diagnostics::{analysis_error, find_error, incomplete, no_result};
use document::Document;
use prediction::RequestedSizes;

/// Analyze request logs: popularity, one-hit wonders, traffic
///
/// Reads any number of logs of any number of machines with all cores, within the given memory. Data that exceeds
/// this memory is written to a temporary file, 16 bytes per request (8 with --counts).
///
/// If a log is truncated, corrupt or unreadable, its rest is skipped: the other logs are still read, the result
/// is marked incomplete, and the exit code is 2.
///
/// Logs on several machines can be analyzed there, each with --partial; `merge` makes one report of the partial
/// results.
#[derive(Args, Debug)]
#[command(
    after_long_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub(crate) struct AnalyzeArgs {
    #[command(subcommand)]
    command: Option<AnalyzeCommand>,

    /// Logs: files, folders, patterns; - for stdin
    #[arg(required = true, value_name = "LOG")]
    logs: Vec<PathBuf>,

    /// Count requests per URL only: several times as fast
    #[arg(long)]
    counts: bool,

    /// Remove the query from URLs
    #[arg(long, hide_short_help = true)]
    cut_query: bool,

    /// Format of the logs if it is not detected: a name, or a format string
    ///
    /// Names: ncsa, json, w3c, haproxy, s3, alb, elb, envoy, istio, squid, cloudfront, fastly, bunny, cloudflare, gcp,
    /// akamai, traefik, ecs, front-door. A format string is nginx's log_format, Apache's LogFormat or varnishncsa's -F.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// Names of custom JSON fields, as in url=req.path,status=code
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = json_field,
        hide_short_help = true
    )]
    fields: Vec<(Field, String)>,

    /// Memory for buffers and tables
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: ByteSize,

    /// Folder of the temporary file [default: TMPDIR, or /tmp]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    temp: Option<PathBuf>,

    /// Maximum size of the temporary file [default: nine tenths of the free space]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    temp_max: Option<ByteSize>,

    /// Threads [default: one per core]
    #[arg(long, value_name = "N", hide_short_help = true)]
    threads: Option<NonZeroUsize>,

    #[command(flatten)]
    limits: LimitArgs,

    /// Bits of the fingerprints that identify URLs: 64 or 128
    ///
    /// With 64 bits, the probability that any two URLs have the same fingerprint is 6e-6 for 15 million URLs
    /// and 3 % for a thousand million URLs. 128 bits take eight bytes more per request. Partial results always
    /// have 128 bits.
    #[arg(
        long,
        value_name = "BITS",
        default_value = "64",
        value_parser = fingerprint_bits,
        hide_short_help = true
    )]
    fingerprint_bits: FingerprintBits,

    /// Name of the machine that wrote these logs, if neither the logs nor their folders state it
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    machine: Option<String>,

    /// Write a partial result instead of a report, for `edgeward analyze merge`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "report", "hot", "disk"])]
    partial: Option<PathBuf>,

    /// Write the requests as Parquet into an empty folder, instead of a report
    ///
    /// Writes one row per request and one folder per day, for SQL in DuckDB, DataFusion or Spark. The folder sql/
    /// of edgeward's source has queries that compute the figures of the report. Needs a build with the feature
    /// `parquet`.
    #[arg(
        long,
        value_name = "DIR",
        hide_short_help = true,
        conflicts_with_all = ["json", "report", "hot", "disk", "partial", "counts", "checkpoint"]
    )]
    to_parquet: Option<PathBuf>,

    /// Save the counts in a folder, to continue the analysis after an interruption
    ///
    /// To continue, run the same command again: logs that are already counted are not read again. The folder
    /// is removed when the analysis is complete.
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    checkpoint: Option<PathBuf>,

    /// Bytes of log files (compressed) that are read between two checkpoints
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "4GiB",
        requires = "checkpoint",
        hide_short_help = true
    )]
    checkpoint_every: ByteSize,

    #[command(flatten)]
    show: ShowArgs,
}

#[derive(Debug, Subcommand)]
enum AnalyzeCommand {
    /// Merge partial results into one report
    ///
    /// The report is the same as the report of one analysis of all logs.
    Merge(MergeArgs),
}

#[derive(Args, Debug)]
#[command(after_long_help = MERGE_EXAMPLES)]
struct MergeArgs {
    /// Partial results, written with --partial
    #[arg(required = true, value_name = "PART")]
    parts: Vec<PathBuf>,

    /// Threads [default: one per core]
    #[arg(long, value_name = "N", hide_short_help = true)]
    threads: Option<NonZeroUsize>,

    /// Write one partial result instead of a report
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "report", "hot", "disk"])]
    partial: Option<PathBuf>,

    #[command(flatten)]
    show: ShowArgs,
}

/// Options of the output.
#[derive(Args, Debug)]
struct ShowArgs {
    /// Entries per ranking (URLs, hosts, …)
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: u16,

    /// RAM of the predicted cache [default: a size that suits the logs]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    hot: Option<ByteSize>,

    /// Disk of the predicted cache [default: a size that suits the logs]
    #[arg(long, value_name = "SIZE", hide_short_help = true)]
    disk: Option<ByteSize>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,

    /// Write an HTML page with plots
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Runs the command. If some logs could not be read completely, the result is printed before the error.
pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<ExitCode> {
    if let Some(AnalyzeCommand::Merge(merge)) = &args.command {
        return merge.run();
    }
    let mut sources = edgeward_logs::find(&args.logs).map_err(find_error)?;
    if let Some(machine) = &args.machine {
        let unnamed = sources
            .iter_mut()
            .filter(|source| source.machine.is_empty());
        unnamed.for_each(|source| source.machine.clone_from(machine));
    }
    let settings = args.settings()?;
    let progress = progress(&sources);
    let advance = |bytes| progress.advance(bytes);
    if let Some(out) = &args.partial {
        let written = edgeward_logs::analyze_to_partial(&sources, &settings, out, &advance);
        drop(progress);
        return print_partial(&written.map_err(analysis_error)?, out);
    }
    if let Some(folder) = &args.to_parquet {
        return parquet::write(&sources, &settings, folder, &advance);
    }
    let analysis = edgeward_logs::analyze(&sources, &settings, &advance).map_err(analysis_error)?;
    drop(progress);
    args.show.print(analysis, &label(&sources))
}

impl MergeArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let threads = threads(self.threads);
        if let Some(out) = &self.partial {
            let written = edgeward_logs::merge_to_partial(&self.parts, out, threads);
            return print_partial(&written.map_err(analysis_error)?, out);
        }
        let top = usize::from(self.show.top);
        let analysis = edgeward_logs::merge(&self.parts, threads, top).map_err(analysis_error)?;
        let label = match &self.parts[..] {
            [part] => part.display().to_string(),
            parts => format!("{} partial results", parts.len()),
        };
        self.show.print(analysis, &label)
    }
}

impl ShowArgs {
    /// Prints the result as text or JSON, and writes the page.
    fn print(&self, analysis: Analysis, label: &str) -> anyhow::Result<ExitCode> {
        if analysis.objects.requests() == 0 {
            return Err(no_result(&analysis.files).into());
        }
        let incomplete = incomplete(&analysis.files, analysis.spill_error.as_ref());
        let requested = RequestedSizes {
            ram: self.hot,
            disk: self.disk,
        };
        let document = Document::of(analysis, usize::from(self.top), requested);
        if let Some(path) = &self.report {
            let html = page::render(&document, label);
            std::fs::write(path, html)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if self.json {
            output::print_json(&document)?;
        } else {
            table::print(&document)?;
            if let Some(path) = &self.report {
                eprintln!("report: {}", path.display());
            }
        }
        document.warn();
        incomplete.map_or(Ok(ExitCode::SUCCESS), |diagnostic| Err(diagnostic.into()))
    }
}

/// Prints the size of the partial result in `out` and the errors of its logs.
fn print_partial(written: &PartialSummary, out: &Path) -> anyhow::Result<ExitCode> {
    let requests: u64 = written.files.iter().map(|file| file.requests).sum();
    eprintln!(
        "{}: {} requests for {} URLs, {}",
        out.display(),
        output::count(requests),
        output::count(written.urls),
        written.bytes
    );
    document::warn_about(&written.files);
    let incomplete = incomplete(&written.files, written.spill_error.as_ref());
    incomplete.map_or(Ok(ExitCode::SUCCESS), |diagnostic| Err(diagnostic.into()))
}

fn threads(requested: Option<NonZeroUsize>) -> usize {
    requested
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, NonZeroUsize::get)
}

/// Returns the format with this name, or the format of a format string.
pub(crate) fn named_or_compiled_format(
    text: &str,
    fields: &[(Field, String)],
) -> anyhow::Result<Format> {
    if let Some(format) = preset(text, fields) {
        return Ok(format);
    }
    let template = Template::compile(text).map_err(|error| {
        let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
        Diagnostic::new(format!("--format: {error}")).hint(format!(
            "use ncsa, json, w3c, {} or a format string; docs/how-to/analyze.md describes format strings",
            names.join(", ")
        ))
    })?;
    Ok(Format::Template(template))
}

impl AnalyzeArgs {
    fn settings(&self) -> anyhow::Result<Settings> {
        if self.memory < MEMORY_MIN {
            return Err(
                Diagnostic::new(format!("--memory {} is too little", self.memory))
                    .hint(format!("give {MEMORY_MIN} or more"))
                    .into(),
            );
        }
        let names = FieldNames::with_custom(self.fields.iter().cloned());
        let format = match self.format.as_deref() {
            None => None,
            Some(text) => Some(named_or_compiled_format(text, &self.fields)?),
        };
        let temp_folder = self.temp.clone().unwrap_or_else(std::env::temp_dir);
        let temp_max = match self.temp_max {
            Some(size) => size,
            None => ByteSize(free_bytes(&temp_folder)? / 10 * 9),
        };
        let checkpoint = self.checkpoint.clone().map(|folder| Checkpoint {
            folder,
            every: self.checkpoint_every,
        });
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
            fingerprints: self.fingerprint_bits,
            threads: threads(self.threads),
            memory: self.memory,
            temp_folder,
            temp_max,
            line_bytes_max: self.limits.line_bytes_max,
            zstd_window_log_max: self.limits.zstd_window_log,
            top_max: usize::from(self.show.top),
            checkpoint,
        })
    }
}

/// A short name of the logs, for headings.
fn label(sources: &[Source]) -> String {
    let name = |source: &Source| {
        let name = source.path.as_ref().and_then(|path| path.file_name());
        name.map_or_else(
            || source.label.clone(),
            |name| name.to_string_lossy().into_owned(),
        )
    };
    match sources {
        [source] => name(source),
        [first, rest @ ..] => format!("{} and {} more", name(first), rest.len()),
        [] => String::new(),
    }
}

fn progress(sources: &[Source]) -> Progress {
    let are_files = sources.iter().all(|source| source.path.is_some());
    let total = are_files.then(|| sources.iter().map(|source| source.bytes).sum());
    Progress::new("reading", "bytes", total)
}

/// The number of free bytes in the file system of `folder`.
fn free_bytes(folder: &Path) -> anyhow::Result<u64> {
    let volume = rustix::fs::statvfs(folder).map_err(|error| {
        Diagnostic::new(format!(
            "the folder of the temporary file cannot be used: {error}"
        ))
        .in_file(folder)
        .hint("give another folder with --temp")
    })?;
    Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
}

/// Parses the name of a JSON field, for example `url=req.path`.
pub(crate) fn json_field(text: &str) -> Result<(Field, String), String> {
    let (field, name) = text
        .split_once('=')
        .filter(|(_, name)| !name.is_empty())
        .ok_or_else(|| format!("`{text}` is not FIELD=NAME, such as url=req.path"))?;
    let Some(field) = Field::from_name(field) else {
        let names = Field::ALL.map(|(name, _)| name).join(", ");
        return Err(format!("`{field}` is not a field; use {names}"));
    };
    Ok((field, name.to_owned()))
}

/// Parses `64` or `128`.
fn fingerprint_bits(text: &str) -> Result<FingerprintBits, String> {
    match text {
        "64" => Ok(FingerprintBits::B64),
        "128" => Ok(FingerprintBits::B128),
        _ => Err("the number of fingerprint bits must be 64 or 128".to_owned()),
    }
}

/// The minimum of `--memory`. With less memory, each buffer would hold only a few rows.
const MEMORY_MIN: ByteSize = ByteSize::mib(16);

const EXAMPLES: &str = r#"Examples:
  edgeward analyze /var/log/nginx/access.log*
  edgeward analyze logs/ --report report.html
  edgeward analyze --counts 'logs/edge-*/2026-11-*.gz'
  edgeward analyze x.log --format '$host [$time_local] "$request" $status $body_bytes_sent'
  edgeward analyze /var/log/nginx --partial edge-3.part; edgeward analyze merge edge-*.part
  edgeward analyze logs/ --checkpoint kept/
  ssh edge-3 cat /var/log/nginx/access.log | edgeward analyze -
  edgeward analyze logs/ --json | jq .once_share"#;

const MERGE_EXAMPLES: &str = "Examples:
  edgeward analyze merge edge-*.part --report report.html
  edgeward analyze merge eu-*.part --partial eu.part";
