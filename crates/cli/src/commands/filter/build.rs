//! `edgeward filter build`: builds a filter file from a source of ids.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use edgeward_filter::guava::{Funnel, GuavaBuilder, GuavaFilter, GuavaHash};
use edgeward_filter::{
    BuildError, Filter, FilterParams, Full, IdHash, IdHasher, StaticBuilder, UpdatableFilter,
    bytes_limit,
};
use edgeward_publish::build_workspace;
use edgeward_types::{ByteSize, Seed, Timestamp};

use super::build_args::BuildArgs;
use super::source_reader::{SourceReader, too_many};
use crate::diagnostic::Diagnostic;
use crate::output::{self, Column, Progress, Table};

/// Builds the filter and prints a report.
pub(crate) fn run(args: &BuildArgs) -> anyhow::Result<ExitCode> {
    check_share(args.least_share)?;
    let (reading, report) = if let Some(funnel) = args.guava {
        build_guava(args, funnel)?
    } else {
        build_edgeward(args)?
    };
    if reading.malformed > 0 {
        let count = output::count(reading.malformed);
        let label = &reading.label;
        eprintln!("warning: {count} lines of {label} are not ids and were skipped");
    }
    reading.finish()?;
    if args.json {
        output::print_json(&report)?;
    } else {
        report.print()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds a filter in edgeward's format.
fn build_edgeward(args: &BuildArgs) -> anyhow::Result<(SourceReader<'_>, Report)> {
    let start = Instant::now();
    // The text names the hash function: a checkpoint has hashes, and is valid only for the same function.
    let mut reading = SourceReader::begin(args, &format!("xxh3 {}", args.hash_seed))?;
    let hasher = IdHasher {
        form: reading.form,
        seed: args.hash_seed,
    };
    let hash = |id: &[u8]| Ok([hasher.hash_canonical(id).0]);
    let params = FilterParams {
        hasher,
        epoch: args.epoch.unwrap_or(reading.began_ms / 1000),
        // The filter states the time at which reading began, because ids that were added later may be missing.
        built: Some(Timestamp::from_secs(reading.began_ms / 1000)),
        ids_max: args.ids_max.max(args.capacity.unwrap_or(0)),
        ..FilterParams::with_rate(args.fpr)
    };
    let (filter, read) = match (args.updatable, args.capacity) {
        (false, _) => {
            let mut builder = StaticBuilder::new(params);
            reading.for_each(hash, |[id]| Ok(builder.insert(IdHash(id))?))?;
            let read = start.elapsed();
            (solve(builder, args.threads)?, read)
        }
        (true, Some(capacity)) => {
            let mut filter = UpdatableFilter::new(params, capacity).map_err(build_error)?;
            reading.for_each(hash, |[id]| {
                filter.insert(IdHash(id)).map_err(full_error)?;
                Ok(())
            })?;
            (filter.to_filter(params.epoch), start.elapsed())
        }
        (true, None) => {
            let mut ids = Vec::new();
            reading.for_each(hash, |[id]| {
                ids.push(IdHash(id));
                Ok(())
            })?;
            let read = start.elapsed();
            ids.sort_unstable();
            ids.dedup();
            let capacity = ids.len() as u64 + ids.len() as u64 / 10;
            let mut filter = UpdatableFilter::new(params, capacity).map_err(build_error)?;
            filter.insert_many(&ids).map_err(full_error)?;
            (filter.to_filter(params.epoch), read)
        }
    };
    let build = start.elapsed() - read;
    let info = filter.info();
    let replaced = std::fs::read(&args.output).unwrap_or_default();
    let before = Filter::open(&replaced[..]).map_or(0, |replaced| replaced.info().ids);
    check_count(args, info.ids, before)?;
    write_atomically(&args.output, filter.bytes())?;
    let report = Report {
        file: args.output.clone(),
        construction: info.construction.name(),
        complete_ms: reading.began_ms,
        ids_read: reading.ids,
        ids_read_before: reading.ids_before,
        ids_malformed: reading.malformed,
        setbacks: reading.interruptions,
        ids: info.ids,
        capacity_ids: info.capacity_ids,
        bytes: info.bytes,
        bits_per_id: info.bytes as f64 * 8.0 / info.ids.max(1) as f64,
        times_the_limit: info.bytes as f64 / bytes_limit(info.ids.max(1), args.fpr.share()),
        asked_rate: args.fpr.share(),
        expected_rate: info.expected_rate,
        measured_rate: filter.measured_rate(MEASURE_PROBES, Seed(0)),
        read_seconds: read.as_secs_f64(),
        build_seconds: build.as_secs_f64(),
    };
    Ok((reading, report))
}

/// Builds a filter in Guava's format.
fn build_guava(args: &BuildArgs, funnel: Funnel) -> anyhow::Result<(SourceReader<'_>, Report)> {
    let start = Instant::now();
    let mut reading = SourceReader::begin(args, &format!("Guava {}", funnel.name()))?;
    let mut builder = GuavaBuilder::new();
    let label = reading.label.clone();
    let hash = |id: &[u8]| {
        let hash = funnel.hash(id);
        let hash = hash.map_err(|error| Diagnostic::new(error.to_string()).in_file(&label))?;
        Ok(hash.words())
    };
    reading.for_each(hash, |words| {
        builder.insert(GuavaHash::from_words(words));
        Ok(())
    })?;
    let read = start.elapsed();
    let (filter, ids) = builder.finish(args.fpr)?;
    let bytes = filter.to_bytes();
    let build = start.elapsed() - read;
    let replaced = std::fs::read(&args.output).unwrap_or_default();
    // A Guava filter does not state its number of ids. With the same functions, its size is proportional to the number.
    let before = GuavaFilter::from_bytes(&replaced)
        .ok()
        .filter(|replaced| replaced.functions() == filter.functions())
        .map_or(0.0, |_| {
            ids as f64 * replaced.len() as f64 / bytes.len() as f64
        });
    check_count(args, ids, before as u64)?;
    write_atomically(&args.output, &bytes)?;
    let bytes = bytes.len() as u64;
    let report = Report {
        file: args.output.clone(),
        construction: "Guava BloomFilter (MURMUR128_MITZ_64)",
        complete_ms: reading.began_ms,
        ids_read: reading.ids,
        ids_read_before: reading.ids_before,
        ids_malformed: reading.malformed,
        setbacks: reading.interruptions,
        ids,
        capacity_ids: ids,
        bytes,
        bits_per_id: bytes as f64 * 8.0 / ids.max(1) as f64,
        times_the_limit: bytes as f64 / bytes_limit(ids.max(1), args.fpr.share()),
        asked_rate: args.fpr.share(),
        expected_rate: filter.expected_rate(),
        measured_rate: filter.measured_rate(MEASURE_PROBES, Seed(0)),
        read_seconds: read.as_secs_f64(),
        build_seconds: build.as_secs_f64(),
    };
    Ok((reading, report))
}

pub(super) fn check_share(least_share: f64) -> anyhow::Result<()> {
    if (0.0..=1.0).contains(&least_share) {
        return Ok(());
    }
    let message = format!("--least-share {least_share} is not between 0 and 1");
    Err(Diagnostic::new(message).into())
}

/// Refuses a source without ids, and one with much fewer ids than the filter that it replaces: the source is probably
/// incomplete, and the filter would answer "absent" for ids that exist.
fn check_count(args: &BuildArgs, ids: u64, before: u64) -> anyhow::Result<()> {
    if args.least_share == 0.0 {
        return Ok(());
    }
    let message = if ids == 0 {
        "the source has no ids".to_owned()
    } else if (ids as f64) < before as f64 * args.least_share {
        let (ids, before) = (output::count(ids), output::count(before));
        let output = args.output.display();
        format!("the source has only {ids} ids, and {output} has {before}")
    } else {
        return Ok(());
    };
    let hint = "check the source; --least-share 0 accepts any number of ids";
    Err(Diagnostic::new(message).hint(hint).into())
}

/// Builds the filter with several threads: the shards of a static filter are independent of each other.
fn solve(builder: StaticBuilder, threads: Option<NonZeroUsize>) -> anyhow::Result<Filter<Vec<u8>>> {
    let progress = Progress::new("building", "ids", Some(builder.ids_added()));
    let (assembly, tasks) = builder.into_plan().map_err(build_error)?.split();
    let threads = threads
        .or_else(|| thread::available_parallelism().ok())
        .map_or(1, NonZeroUsize::get)
        .min(tasks.len());
    let tasks = Mutex::new(tasks.into_iter());
    let next_task = || {
        tasks
            .lock()
            .expect("no thread panics while it holds the lock")
            .next()
    };
    let mut parts = Vec::new();
    thread::scope(|scope| -> Result<(), BuildError> {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> Result<Vec<_>, BuildError> {
                    let (mut built_parts, mut workspace) = (Vec::new(), build_workspace());
                    while let Some(task) = next_task() {
                        let ids = task.ids_added();
                        built_parts.push(task.solve(&mut workspace)?);
                        progress.advance(ids);
                    }
                    Ok(built_parts)
                })
            })
            .collect();
        for worker in workers {
            parts.extend(worker.join().expect("a build thread does not panic")?);
        }
        Ok(())
    })
    .map_err(build_error)?;
    assembly.join(parts).map_err(build_error)
}

fn full_error(error: Full) -> anyhow::Error {
    Diagnostic::new(error.to_string())
        .hint("give a higher --capacity, or omit --capacity to count the ids first")
        .into()
}

fn build_error(error: BuildError) -> anyhow::Error {
    let hint = match error {
        BuildError::TooMany { ids_max } => return too_many(ids_max),
        BuildError::RateTooLow => "give a higher --fpr, or omit --updatable",
        _ => "give another --hash-seed",
    };
    Diagnostic::new(error.to_string()).hint(hint).into()
}

/// Writes a temporary file and renames it, so that a reader never sees an incomplete filter.
fn write_atomically(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.part", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = std::fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is reported; an error of the removal is ignored.
        _ = std::fs::remove_file(&temporary);
    }
    written.with_context(cannot)
}

/// The report of a build.
#[derive(Debug, Serialize)]
struct Report {
    file: PathBuf,
    construction: &'static str,
    /// The time at which reading of the source began, in milliseconds since 1970. Ids added later may be missing.
    complete_ms: u64,
    /// Includes repeated ids and the ids read by earlier, interrupted runs.
    ids_read: u64,
    /// The part of `ids_read` that was read by interrupted runs.
    ids_read_before: u64,
    /// The number of lines or rows that were skipped because they do not have the form of an id.
    ids_malformed: u64,
    /// The number of times that the connection to the database was lost.
    setbacks: u64,
    /// The number of distinct ids in the filter.
    ids: u64,
    /// The number of ids that the filter can hold.
    capacity_ids: u64,
    bytes: u64,
    bits_per_id: f64,
    /// The size as a multiple of the information-theoretic lower bound.
    times_the_limit: f64,
    /// The false-positive rate given with `--fpr`.
    asked_rate: f64,
    /// The false-positive rate computed from the built filter.
    expected_rate: f64,
    /// The false-positive rate of [`MEASURE_PROBES`] queries.
    measured_rate: f64,
    read_seconds: f64,
    build_seconds: f64,
}

impl Report {
    fn print(&self) -> anyhow::Result<()> {
        let mut table = Table::new([Column::words(""), Column::words("")]);
        let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
        row("filter", self.construction.to_owned());
        row(
            "ids",
            format!(
                "{} of {} read",
                output::count(self.ids),
                output::count(self.ids_read)
            ),
        );
        if self.capacity_ids > self.ids {
            row("capacity", output::count(self.capacity_ids));
        }
        let size = format!(
            "{}, {:.2} bits per id, {:.2} times the lower bound",
            ByteSize(self.bytes),
            self.bits_per_id,
            self.times_the_limit
        );
        row("size", size);
        let rates = format!(
            "{} requested, {} expected, {} measured",
            output::percent(self.asked_rate),
            output::percent(self.expected_rate),
            output::percent(self.measured_rate)
        );
        row("false positives", rates);
        let step = |ids: u64, seconds: f64| {
            let time = output::duration(Duration::from_secs_f64(seconds));
            let speed = output::per_second(ids as f64 / seconds.max(1e-9));
            format!("{time}, {speed} ids")
        };
        if self.ids_read_before > 0 {
            row("read by earlier runs", output::count(self.ids_read_before));
        }
        if self.setbacks > 0 {
            let times = output::count(self.setbacks);
            row("connection lost", format!("{times} times"));
        }
        let ids_read_now = self.ids_read - self.ids_read_before;
        row("reading", step(ids_read_now, self.read_seconds));
        row("building", step(self.ids_read, self.build_seconds));
        let mut out = output::stdout();
        // The table has no headings, so its first line is empty and is removed.
        let text = table.to_string();
        write!(out, "{}", text.trim_start())?;
        writeln!(out, "{}", self.file.display())?;
        out.flush()?;
        Ok(())
    }
}

/// The number of queries that measure the false-positive rate. They take at most a tenth of a second and
/// measure a rate of 1 % with a relative error of a hundredth.
const MEASURE_PROBES: u64 = 1_000_000;
