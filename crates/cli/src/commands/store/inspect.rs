//! `edgeward store inspect` shows the contents of a disk cache; `edgeward store verify` checks every record.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use serde::Serialize;

use edgeward_store::disk::{self, Inspection, InspectionProgress, OpenError, SegmentInspection};
use edgeward_types::ByteSize;

use crate::diagnostic::Diagnostic;
use crate::output::{self, Column, Progress, Table, count, duration};

/// Show the contents of a disk cache: segments, objects, purges, ages
///
/// Reads the header and the footer of every segment, and segments without a footer completely. Writes nothing.
/// The server that uses the store must be stopped first.
#[derive(Args, Debug)]
#[command(after_long_help = INSPECT_EXAMPLES)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    stores: StorePaths,

    /// Print a line for every segment in use
    #[arg(long)]
    segments: bool,
}

/// Read every record of a disk cache and verify its checksums
///
/// Exits with 1 if a record is corrupt or a segment is unreadable. The server treats a corrupt record as a miss, so
/// that no repair is needed. If a device has many corrupt records, replace the device. Writes nothing. The server that
/// uses the store must be stopped first.
#[derive(Args, Debug)]
#[command(after_long_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    stores: StorePaths,
}

#[derive(Args, Debug)]
struct StorePaths {
    /// Directory, file or block device of a disk cache
    #[arg(value_name = "DIR", required = true)]
    paths: Vec<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Runs `inspect`.
pub(crate) fn inspect(args: &InspectArgs) -> anyhow::Result<ExitCode> {
    let reports = inspect_all(&args.stores, "reading", |path, progress| {
        disk::inspect(path, progress)
    })?;
    print_reports(&args.stores, &reports, false, args.segments)
}

/// Runs `verify`.
pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let reports = inspect_all(&args.stores, "verifying", |path, progress| {
        disk::verify(path, progress)
    })?;
    print_reports(&args.stores, &reports, true, false)
}

fn inspect_all(
    stores: &StorePaths,
    what: &'static str,
    inspect: impl Fn(
        &std::path::Path,
        &mut dyn FnMut(InspectionProgress),
    ) -> Result<Inspection, OpenError>,
) -> anyhow::Result<Vec<Inspection>> {
    let mut reports = Vec::new();
    for path in &stores.paths {
        let mut bar = None;
        let mut advance = |progress: InspectionProgress| {
            let bar =
                bar.get_or_insert_with(|| Progress::new(what, "segments", Some(progress.segments)));
            bar.set(progress.segments_done);
        };
        reports.push(inspect(path, &mut advance).map_err(with_hint)?);
    }
    Ok(reports)
}

fn with_hint(error: OpenError) -> anyhow::Error {
    match &error {
        OpenError::Device { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Diagnostic::from_error(&error)
                .hint("there is no cache; give the path of `edgeward serve --disk`")
                .into()
        }
        _ => error.into(),
    }
}

fn print_reports(
    stores: &StorePaths,
    reports: &[Inspection],
    is_verified: bool,
    segments: bool,
) -> anyhow::Result<ExitCode> {
    if stores.json {
        let documents = reports.iter().map(|report| Store::new(report, is_verified));
        output::print_json(&documents.collect::<Vec<_>>())?;
    } else {
        let mut out = output::stdout();
        for report in reports {
            write!(out, "{}", report_text(report, is_verified))?;
            if segments {
                write!(out, "\n{}", segment_table(report))?;
            }
        }
        out.flush()?;
    }
    let is_valid = reports
        .iter()
        .all(|report| report.problems + report.unreadable_segments == 0);
    Ok(if !is_verified || is_valid {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// The text form of a report.
fn report_text(report: &Inspection, is_verified: bool) -> String {
    let total = |figure: fn(&SegmentInspection) -> u64| report.total(figure);
    let size = |bytes: u64| ByteSize(bytes).to_string();
    let in_use = report.in_use.len() as u64;
    let unsealed = report
        .in_use
        .iter()
        .filter(|segment| !segment.sealed)
        .count();
    let mut lines = vec![
        ("format version", report.format_version.to_string()),
        ("formatted", age(report.created_secs)),
        ("device", size(report.device_bytes)),
        (
            "segments",
            format!(
                "{} of {}, {} in use, {unsealed} without a footer",
                count(report.segments),
                size(report.segment_bytes),
                count(in_use),
            ),
        ),
        ("records", size(total(|segment| segment.record_bytes))),
        (
            "objects",
            format!(
                "{} in one record, {} in {} pieces",
                count(total(|segment| segment.objects)),
                count(total(|segment| segment.commits)),
                count(total(|segment| segment.pieces)),
            ),
        ),
        ("purges", count(total(|segment| segment.tombstones))),
    ];
    if let Some(oldest) = report.in_use.first() {
        lines.push(("oldest segment", age(oldest.opened_secs)));
    }
    if report.unreadable_segments > 0 {
        lines.push(("unreadable segments", count(report.unreadable_segments)));
    }
    if is_verified {
        lines.push(("verified", size(report.verified_bytes)));
        lines.push(("problems", count(report.problems)));
    }
    let mut text = format!("{}\n", report.device);
    for (name, value) in lines {
        text.push_str(&format!("  {name:<20}{value}\n"));
    }
    for problem in &report.problems_shown {
        text.push_str(&format!("  problem: {problem}\n"));
    }
    let not_shown = report.problems - report.problems_shown.len() as u64;
    if not_shown > 0 {
        text.push_str(&format!("  … and {} more\n", count(not_shown)));
    }
    text
}

fn segment_table(report: &Inspection) -> Table {
    let figures = [
        "segment", "epoch", "objects", "commits", "pieces", "purges", "bytes",
    ];
    let columns = figures.map(Column::figures).into_iter();
    let mut table = Table::new(columns.chain(["state", "opened"].map(Column::words)));
    for segment in &report.in_use {
        let state = if segment.sealed {
            "sealed"
        } else {
            "no footer"
        };
        table.row([
            segment.segment.to_string(),
            segment.epoch.to_string(),
            count(segment.objects),
            count(segment.commits),
            count(segment.pieces),
            count(segment.tombstones),
            ByteSize(segment.record_bytes).to_string(),
            state.to_owned(),
            age(segment.opened_secs),
        ]);
    }
    table
}

/// The time from `unix_secs` to now as text, for example `2.50 s ago`.
fn age(unix_secs: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(unix_secs);
    match SystemTime::now().duration_since(time) {
        Ok(since) => format!("{} ago", duration(since)),
        Err(_) => "in the future: a clock was wrong".to_owned(),
    }
}

/// The JSON document of a store.
#[derive(Serialize)]
struct Store<'a> {
    device: &'a str,
    format_version: u32,
    device_id: String,
    /// The time at which the store was formatted, in seconds since 1970.
    created_secs: u64,
    device_bytes: u64,
    segment_bytes: u64,
    /// The number of all segments, in use or not.
    segments: u64,
    /// The number of segments whose header or footer cannot be read.
    unreadable_segments: u64,
    /// The number of objects with a single record.
    objects: u64,
    objects_in_pieces: u64,
    /// The number of records that contain a part of an object's body.
    pieces: u64,
    purges: u64,
    /// The bytes of all records except purges.
    record_bytes: u64,
    in_use: Vec<Segment>,
    /// The result of `verify`; `None` for `inspect`.
    verification: Option<Verification<'a>>,
}

#[derive(Serialize)]
struct Segment {
    segment: u32,
    /// Each opening of any segment increases the epoch, so a segment with a higher epoch was opened later.
    epoch: u64,
    /// The time at which the segment was opened for writing, in seconds since 1970.
    opened_secs: u64,
    /// True if the segment is complete and has a footer.
    sealed: bool,
    /// The number of objects with a single record.
    objects: u64,
    /// The number of objects in several pieces: each has one commit record.
    commits: u64,
    pieces: u64,
    purges: u64,
    record_bytes: u64,
}

#[derive(Serialize)]
struct Verification<'a> {
    /// The bytes of records that were read and verified.
    verified_bytes: u64,
    /// The number of corrupt records, objects with a missing piece, and segments that cannot be read.
    problems: u64,
    /// Descriptions of the first problems.
    problems_shown: &'a [String],
}

impl<'a> Store<'a> {
    fn new(report: &'a Inspection, is_verified: bool) -> Self {
        let verification = is_verified.then(|| Verification {
            verified_bytes: report.verified_bytes,
            problems: report.problems,
            problems_shown: &report.problems_shown,
        });
        Self {
            device: &report.device,
            format_version: report.format_version,
            device_id: format!("{:016x}", report.device_id),
            created_secs: report.created_secs,
            device_bytes: report.device_bytes,
            segment_bytes: report.segment_bytes,
            segments: report.segments,
            unreadable_segments: report.unreadable_segments,
            objects: report.total(|segment| segment.objects),
            objects_in_pieces: report.total(|segment| segment.commits),
            pieces: report.total(|segment| segment.pieces),
            purges: report.total(|segment| segment.tombstones),
            record_bytes: report.total(|segment| segment.record_bytes),
            in_use: report.in_use.iter().map(Segment::new).collect(),
            verification,
        }
    }
}

impl Segment {
    fn new(inspected: &SegmentInspection) -> Self {
        Self {
            segment: inspected.segment,
            epoch: inspected.epoch,
            opened_secs: inspected.opened_secs,
            sealed: inspected.sealed,
            objects: inspected.objects,
            commits: inspected.commits,
            pieces: inspected.pieces,
            purges: inspected.tombstones,
            record_bytes: inspected.record_bytes,
        }
    }
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  edgeward store inspect /var/cache/edgeward
  edgeward store inspect --segments /dev/nvme1n1
  edgeward store inspect /ssd1 /ssd2 --json | jq '.[].objects'

In the table of --segments, a higher epoch means that the segment was opened later.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  edgeward store verify /var/cache/edgeward
  edgeward store verify /ssd1 /ssd2 --json || echo 'some records are corrupt'";
