//! `edgeward trace info`: prints a summary of a trace.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use edgeward_trace::{Compression, SizeQuantiles, Summary, TraceSummary};
use edgeward_types::ByteSize;

use crate::input::{FileRead, TraceInputArgs, warn_about_skipped};
use crate::output::{self, Column, Progress, Table};

/// Show a summary of a trace: requests, objects, bytes, one-hit wonders, sizes
///
/// The counts are exact, so every object is kept in memory: 20 to 40 bytes per object. Several traces are counted
/// as one.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    trace: TraceInputArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Reads the trace and prints the summary. After a read error, it prints the summary of the requests before the
/// error.
pub(crate) fn run(args: InfoArgs) -> anyhow::Result<ExitCode> {
    let inputs = args.trace.inputs()?;
    let progress = Progress::new("reading", "bytes", inputs.bytes());
    let mut summary = Summary::default();
    let reading = inputs.read(Some(&progress), |records| {
        records.iter().for_each(|record| summary.add(record));
        Ok(())
    })?;
    drop(progress);
    let info = TraceInfo::new(&summary.finish(), &reading.files, reading.error.is_none());
    if args.json {
        output::print_json(&info)?;
    } else {
        print_table(&info)?;
        for file in &reading.files {
            warn_about_skipped(&file.label, &file.skipped);
        }
    }
    reading.error.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// The summary as a JSON document.
#[derive(Serialize)]
struct TraceInfo {
    /// True if the whole trace was read.
    complete: bool,
    requests: u64,
    objects: u64,
    /// The total size of all objects, each with its last size.
    footprint_bytes: u128,
    /// The total size of all requests.
    requested_bytes: u128,
    /// The number of objects with exactly one request.
    one_hit_objects: u64,
    /// The same number, divided by `objects`.
    one_hit_share: f64,
    /// The distribution of object sizes in bytes; `None` without objects.
    object_size: Option<SizeSummary>,
    /// The time of the earliest request.
    first_seconds: f64,
    /// The time of the latest request.
    last_seconds: f64,
    /// The time from the earliest to the latest request.
    span_seconds: f64,
    /// The number of requests with another size than the previous request for the same object.
    size_changes: u64,
    /// The number of requests with an earlier time than the previous request.
    times_backwards: u64,
    /// The number of requests with a known size: more than 0 bytes.
    sized_requests: u64,
    files: Vec<FileInfo>,
}

#[derive(Serialize)]
struct SizeSummary {
    min: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
}

#[derive(Serialize)]
struct FileInfo {
    file: String,
    format: String,
    compression: String,
    /// False if the trace has no times.
    has_times: bool,
    /// The number of blank lines, comments, and lines of an access log that are not cacheable requests.
    lines_passed_over: u64,
    /// The number of lines that could not be parsed and were skipped.
    lines_malformed: u64,
}

impl TraceInfo {
    fn new(summary: &TraceSummary, files: &[FileRead], complete: bool) -> Self {
        let seconds = |millis: u64| millis as f64 / 1000.0;
        let (first, last) = (summary.earliest.as_millis(), summary.latest.as_millis());
        Self {
            complete,
            requests: summary.requests,
            objects: summary.objects,
            footprint_bytes: summary.footprint_bytes,
            requested_bytes: summary.requested_bytes,
            one_hit_objects: summary.one_hit_objects,
            one_hit_share: summary.one_hit_share(),
            object_size: summary.sizes.map(SizeSummary::from),
            first_seconds: seconds(first),
            last_seconds: seconds(last),
            span_seconds: seconds(last - first),
            size_changes: summary.size_changes,
            times_backwards: summary.times_backwards,
            sized_requests: summary.sized_requests,
            files: files.iter().map(FileInfo::from).collect(),
        }
    }
}

impl From<SizeQuantiles> for SizeSummary {
    fn from(sizes: SizeQuantiles) -> Self {
        let SizeQuantiles {
            min,
            p50,
            p90,
            p99,
            max,
        } = sizes;
        Self {
            min,
            p50,
            p90,
            p99,
            max,
        }
    }
}

impl From<&FileRead> for FileInfo {
    fn from(file: &FileRead) -> Self {
        Self {
            file: file.label.clone(),
            format: file.format.to_string(),
            compression: file.compression.to_string(),
            has_times: file.has_times,
            lines_passed_over: file.ignored_lines,
            lines_malformed: file.skipped.lines,
        }
    }
}

fn print_table(info: &TraceInfo) -> anyhow::Result<()> {
    let mut table = Table::new([Column::words(""), Column::figures(""), Column::words("")]);
    for file in &info.files {
        let compression_text = match file.compression.as_str() {
            none if none == Compression::None.to_string() => String::new(),
            compression => format!(" in {compression}"),
        };
        table.row([
            "trace",
            &file.file,
            &format!("{}{compression_text}", file.format),
        ]);
    }
    let mut row = |name: &str, figure: String, note: String| table.row([name, &figure, &note]);
    let no_note = String::new;
    row("requests", output::count(info.requests), no_note());
    row("objects", output::count(info.objects), no_note());
    for (name, bytes) in [
        ("footprint", info.footprint_bytes),
        ("requested", info.requested_bytes),
    ] {
        row(name, count_text(bytes), bytes_text(bytes));
    }
    row(
        "requested once",
        output::count(info.one_hit_objects),
        format!("{} of the objects", output::percent(info.one_hit_share)),
    );
    if let Some(sizes) = &info.object_size {
        for (name, size) in [
            ("size min", sizes.min),
            ("size p50", sizes.p50),
            ("size p90", sizes.p90),
            ("size p99", sizes.p99),
            ("size max", sizes.max),
        ] {
            row(name, output::count(size), bytes_text(u128::from(size)));
        }
    }
    if info.files.iter().all(|file| file.has_times) {
        row("span", format!("{} s", info.span_seconds), no_note());
    } else {
        row(
            "span",
            "unknown".to_owned(),
            "the trace has no times".to_owned(),
        );
    }
    if info.sized_requests < info.requests {
        row(
            "size known in",
            output::count(info.sized_requests),
            format!("of {} requests", output::count(info.requests)),
        );
    }
    for (name, figure, note) in [
        (
            "size changes",
            info.size_changes,
            "an object has another size than before",
        ),
        (
            "time reversals",
            info.times_backwards,
            "a request is earlier than the one before",
        ),
        (
            "lines ignored",
            sum(info, |file| file.lines_passed_over),
            "blank lines, comments, and requests that are not cacheable",
        ),
        (
            "lines malformed",
            sum(info, |file| file.lines_malformed),
            "skipped",
        ),
    ] {
        if figure > 0 {
            row(name, output::count(figure), note.to_owned());
        }
    }
    // The headings are empty, so their line is removed.
    let table = table.to_string();
    let rows = table.split_once('\n').map_or("", |(_headings, rows)| rows);
    let mut out = output::stdout();
    write!(out, "{rows}")?;
    out.flush()?;
    Ok(())
}

fn sum(info: &TraceInfo, figure: impl Fn(&FileInfo) -> u64) -> u64 {
    info.files.iter().map(figure).sum()
}

fn count_text(n: u128) -> String {
    u64::try_from(n).map_or_else(|_| n.to_string(), output::count)
}

fn bytes_text(bytes: u128) -> String {
    u64::try_from(bytes).map_or_else(|_| "beyond 16 EiB".to_owned(), |b| ByteSize(b).to_string())
}

const EXAMPLES: &str = "\
Examples:
  edgeward trace info access.log.1 access.log
  zcat old.csv.gz | edgeward trace info --columns key=url,size=bytes -
  edgeward trace info --json trace.zst | jq .one_hit_share";
