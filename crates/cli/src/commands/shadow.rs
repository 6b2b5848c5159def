//! `edgeward shadow`: sends the requests of another cache's clients to an edge under test, and compares the answers.

mod args;
mod document;
mod log;
mod page;
mod text;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use edgeward_replay::load::Stop;
use edgeward_replay::shadow::{FeederMode, Shadow, ShadowProgress, listen};
use edgeward_shadow::ShadowReport;

use crate::diagnostic::Diagnostic;
use crate::output::{self, Progress};
use crate::signals::Signals;

pub(crate) use args::ShadowArgs;
use document::Document;

/// Runs until the end of the source, the end of the duration or a signal. Exit codes: 0 no difference, 1 differences,
/// 2 the comparison could not run, or no request was compared.
pub(crate) fn run(args: &ShadowArgs) -> anyhow::Result<ExitCode> {
    let stop = Stop::default();
    let plan = args.plan(stop.clone())?;
    let default_host = args.default_host(&plan);
    let mut signals = Signals::listen()?;
    let mirror = args.mirror.map(listen).transpose()?;
    if let Some(listener) = &mirror {
        eprintln!("receiving mirrored requests at {}", listener.local_addr()?);
    }
    let source = match &args.source {
        None => None,
        Some(_) => Some(log::Source::open(args, default_host)?),
    };
    let shadow = Shadow::new(plan);
    let progress = shadow.progress();
    // A tool may end while this thread waits for a signal.
    let of_signal = stop.clone();
    thread::spawn(move || {
        signals.next();
        of_signal.request();
    });
    let reading = source.map(|source| {
        let feeder = shadow.feeder(match (args.mirror, args.is_stdin()) {
            (Some(_), _) => FeederMode::Observe,
            (None, true) => FeederMode::Drop,
            (None, false) => FeederMode::Wait,
        });
        let stop = stop.clone();
        thread::spawn(move || source.run(&feeder, &stop))
    });
    let sending = thread::spawn(move || shadow.run(mirror));
    let mut page_written = Instant::now();
    show_progress(args.duration, &progress, &stop, || {
        if args.report.is_some() && page_written.elapsed() >= PAGE_INTERVAL {
            page_written = Instant::now();
            // The page is written again at the end, which reports an error.
            _ = write_page(args, &progress.report());
        }
        sending.is_finished()
    });
    join(sending)?;
    let reading = match reading {
        // A read from stdin cannot be interrupted, so its thread ends with the process.
        Some(reading) if args.is_stdin() && !reading.is_finished() => Ok(None),
        Some(reading) => join(reading),
        None => Ok(None),
    };
    let mut report = progress.report();
    if let Ok(position) = &reading {
        report.log.clone_from(position);
    }
    print(args, &report)?;
    // An error of the log ends the run, and the result before it is printed.
    reading?;
    if report.compared == 0 {
        let hint = match report.errors.first() {
            Some(error) => format!("{}: {}", error.side.as_str(), error.example),
            None if report.requests == 0 => {
                "no request arrived: check the log, or the mirror of nginx".to_owned()
            }
            None => "all requests were skipped".to_owned(),
        };
        return Err(Diagnostic::new("no request was compared").hint(hint).into());
    }
    Ok(ExitCode::from(u8::from(report.differences > 0)))
}

fn document<'a>(args: &'a ShadowArgs, report: &'a ShadowReport) -> Document<'a> {
    Document {
        edge: &args.edge,
        incumbent: args.incumbent.as_deref(),
        report,
    }
}

fn print(args: &ShadowArgs, report: &ShadowReport) -> anyhow::Result<()> {
    let document = document(args, report);
    match args.json {
        true => output::print_json(&document)?,
        false => text::print(&document)?,
    }
    // Last: a page that cannot be written must not cost the result.
    write_page(args, report)?;
    if let (Some(path), false) = (&args.report, args.json) {
        eprintln!("report: {}", path.display());
    }
    Ok(())
}

fn write_page(args: &ShadowArgs, report: &ShadowReport) -> anyhow::Result<()> {
    match &args.report {
        Some(path) => std::fs::write(path, page::render(&document(args, report)))
            .with_context(|| format!("cannot write {}", path.display())),
        None => Ok(()),
    }
}

/// Shows the progress until the run ends, and ends it after the duration.
fn show_progress(
    duration: Option<Duration>,
    counts: &ShadowProgress,
    stop: &Stop,
    mut is_finished: impl FnMut() -> bool,
) {
    let shown = Progress::new("shadow", "requests", None);
    let started = Instant::now();
    while !is_finished() {
        let (answered, differences, errors) = counts.counts();
        let (of_incumbent, of_edge) = counts.hit_ratios();
        let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), output::percent);
        shown.describe(format!(
            "{} differences, {} errors, hits {} incumbent, {} edge",
            output::count(differences),
            output::count(errors),
            ratio(of_incumbent),
            ratio(of_edge),
        ));
        shown.set(answered);
        if duration.is_some_and(|duration| started.elapsed() >= duration) {
            stop.request();
        }
        thread::park_timeout(PROGRESS_INTERVAL);
    }
}

fn join<T, E: Into<anyhow::Error>>(thread: thread::JoinHandle<Result<T, E>>) -> anyhow::Result<T> {
    let result = thread.join();
    let result = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    result.map_err(Into::into)
}

const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// The time between two writes of the page, so that a run of days can be watched.
const PAGE_INTERVAL: Duration = Duration::from_secs(60);
