//! The first half: a thread reads log after log and takes their requests in.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use edgeward_analysis::{
    Entry, Fingerprints, Format, Parser, Sample, Tally, Unrecognised, recognise,
};
use edgeward_trace::raw::{self, Buffer, Decoder};
use edgeward_trace::{Compression, Problem};
use edgeward_types::Timestamp;

use crate::ahead::Ahead;
use crate::analyze::{Depth, Settings};
use crate::find::Source;
use crate::lines::{Line, for_each_line};
use crate::row::Row;
use crate::spill::{Partitions, Spill, SpillError};

/// What came of one log.
#[derive(Debug)]
pub struct FileReport {
    /// What it is called.
    pub label: String,
    /// The machine that wrote it, as far as its folder tells.
    pub machine: String,
    /// How it was compressed, once that was seen.
    pub compression: Option<Compression>,
    /// How its lines were laid out, once that was seen.
    pub format: Option<Format>,
    /// Lines read.
    pub lines: u64,
    /// Lines that told of a request for a URL.
    pub requests: u64,
    /// Lines that told of none: blank, comments, connections that ended before they asked.
    pub passed_over: u64,
    /// Lines left out because they could not be understood.
    pub malformed: MalformedLines,
    /// Lines earlier than one before them.
    pub backwards: Backwards,
    /// Why the rest of it was not read, if it was not.
    pub problem: Option<FileProblem>,
}

/// Lines left out because they could not be understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MalformedLines {
    /// How many.
    pub lines: u64,
    /// The first few: number, what is wrong, and how the line begins.
    pub examples: Vec<(u64, String, String)>,
}

/// Lines earlier than one before them. Servers that log a request at its end with the time of its
/// beginning go back by seconds; a clock that was set goes back by more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backwards {
    /// How many.
    pub lines: u64,
    /// The farthest a line lay behind the latest before it.
    pub millis_max: u64,
}

/// Why a log, or the rest of it, was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// It cannot be opened.
    #[error("it cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// It breaks off, is damaged, or cannot be read further.
    #[error("{}{}", .0, cause(.0))]
    Read(Problem),
    /// It is no log of a known format.
    #[error("{}", unrecognised(.0))]
    Unrecognised(Unrecognised),
    /// There was no room for what it tells, see [`crate::Analysis::spill_error`].
    #[error("there was no room for the rest of it")]
    NoRoom,
}

impl FileProblem {
    /// The way out, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Open(_) | Self::NoRoom => None,
            Self::Read(problem) => problem.hint(),
            Self::Unrecognised(found) if found.binary => {
                Some("is it the right file? gzip, zstd and bzip2 are recognised".to_owned())
            }
            Self::Unrecognised(_) => {
                Some("if it has a format of its own, say which with --format".to_owned())
            }
        }
    }
}

fn cause(problem: &Problem) -> String {
    match problem {
        Problem::Io(source)
        | Problem::CutShort { source, .. }
        | Problem::Undecodable { source, .. } => format!(": {source}"),
        _ => String::new(),
    }
}

fn unrecognised(found: &Unrecognised) -> String {
    if found.binary {
        "it is no text".to_owned()
    } else if found.first_line.is_empty() {
        "it begins with blank lines and comments only".to_owned()
    } else {
        let line = raw::shown(found.first_line.trim_ascii());
        format!("its format is not recognised: `{line}`")
    }
}

/// One thread's share of the logs.
pub(crate) struct Worker<'a, R> {
    settings: &'a Settings,
    spill: &'a Spill,
    progress: &'a (dyn Fn(u64) + Sync),
    /// Whether there is a thread to spare for decoding.
    ahead: bool,
    fingerprints: Fingerprints,
    pub(crate) partitions: Partitions<R>,
    pub(crate) full: Option<(Tally, Sample)>,
    pub(crate) spill_error: Option<SpillError>,
    pub(crate) reports: Vec<(usize, FileReport)>,
}

impl<'a, R: Row> Worker<'a, R> {
    pub(crate) fn new(
        settings: &'a Settings,
        spill: &'a Spill,
        progress: &'a (dyn Fn(u64) + Sync),
        sample_max: usize,
        ahead: bool,
    ) -> Self {
        Self {
            settings,
            spill,
            progress,
            ahead,
            fingerprints: Fingerprints::new(settings.query),
            partitions: Partitions::new(spill.chunk_bytes),
            full: (settings.depth == Depth::Full)
                .then(|| (Tally::default(), Sample::new(sample_max))),
            spill_error: None,
            reports: Vec::new(),
        }
    }

    /// Reads logs until none are left. `order` says which is next.
    pub(crate) fn run(mut self, sources: &[Source], order: &[usize], next: &AtomicUsize) -> Self {
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = self.read(&sources[at]);
            self.reports.push((at, report));
        }
        self
    }

    fn read(&mut self, source: &Source) -> FileReport {
        let mut report = FileReport {
            label: source.label.clone(),
            machine: source.machine.clone(),
            compression: None,
            format: None,
            lines: 0,
            requests: 0,
            passed_over: 0,
            malformed: MalformedLines::default(),
            backwards: Backwards::default(),
            problem: None,
        };
        if let Err(problem) = self.try_read(source, &mut report) {
            report.problem = Some(problem);
        }
        report
    }

    fn try_read(&mut self, source: &Source, report: &mut FileReport) -> Result<(), FileProblem> {
        if self.spill.failed() {
            return Err(FileProblem::NoRoom);
        }
        let input: Box<dyn Read + Send> = match &source.path {
            Some(path) => Box::new(File::open(path).map_err(FileProblem::Open)?),
            None => Box::new(io::stdin()),
        };
        let metered = Metered {
            input,
            progress: self.progress,
        };
        let mut decoder = Decoder::open(Box::new(metered), self.settings.zstd_window_log_max)
            .map_err(FileProblem::Read)?;
        let compression = decoder.compression();
        report.compression = Some(compression);
        if self.ahead && compression != Compression::None {
            return thread::scope(|scope| {
                let mut input = Ahead::start(scope, decoder);
                self.read_decoded(&mut input, compression, report)
            });
        }
        self.read_decoded(&mut decoder, compression, report)
    }

    fn read_decoded(
        &mut self,
        mut input: &mut dyn Read,
        compression: Compression,
        report: &mut FileReport,
    ) -> Result<(), FileProblem> {
        let problem = |failure| FileProblem::Read(compression.problem_of(failure));
        let mut buffer = Buffer::new();
        while !buffer.ended() && buffer.filled().len() < BEGINNING_BYTES {
            buffer.fill(&mut input);
        }
        if buffer.filled().starts_with(UTF8_BOM) {
            buffer.consume(UTF8_BOM.len());
        }
        if buffer.filled().is_empty() {
            // An empty log is what rotation leaves behind.
            return buffer.take_failure().map_or(Ok(()), |f| Err(problem(f)));
        }
        let format = match &self.settings.format {
            Some(format) => format.clone(),
            None => recognise(buffer.filled(), &self.settings.names)
                .map_err(FileProblem::Unrecognised)?,
        };
        let mut parser = Parser::new(&format);
        report.format = Some(format);
        self.read_lines(&mut buffer, input, &mut parser, report);
        if let Some(failure) = buffer.take_failure() {
            return Err(problem(failure));
        }
        if self.spill.failed() {
            return Err(FileProblem::NoRoom);
        }
        Ok(())
    }

    fn read_lines(
        &mut self,
        buffer: &mut Buffer,
        mut input: &mut dyn Read,
        parser: &mut Parser,
        report: &mut FileReport,
    ) {
        let line_bytes_max = self.settings.line_bytes_max;
        let machine = report.machine.clone();
        let mut latest = Timestamp::ZERO;
        report.lines = for_each_line(buffer, &mut input, line_bytes_max, |number, line| {
            let line = match line {
                Line::Whole(line) => line,
                Line::TooLong(beginning) => {
                    let what = format!("the line is longer than {line_bytes_max} bytes");
                    note(&mut report.malformed, number, beginning, || what);
                    return true;
                }
            };
            match parser.parse(line) {
                Ok(Some(entry)) => {
                    if !self.take(&entry, &machine) {
                        return false;
                    }
                    report.requests += 1;
                    if let Some(time) = entry.time {
                        if time < latest {
                            let millis = latest.as_millis() - time.as_millis();
                            report.backwards.lines += 1;
                            report.backwards.millis_max = report.backwards.millis_max.max(millis);
                        } else {
                            latest = time;
                        }
                    }
                }
                Ok(None) => report.passed_over += 1,
                Err(what) => note(&mut report.malformed, number, line, || what.to_string()),
            }
            // Once a thousand lines: another thread may have found the disk full.
            number % 1024 != 0 || !self.spill.failed()
        });
    }

    /// Takes a request in; false if there is no room.
    #[inline]
    fn take(&mut self, entry: &Entry<'_>, machine: &str) -> bool {
        let fingerprint = self.fingerprints.of(entry);
        let row = R::of(fingerprint, entry);
        if let Err(error) = self.partitions.push(row, self.spill) {
            self.spill_error = Some(error);
            return false;
        }
        if let Some((tally, sample)) = &mut self.full {
            let url = self.fingerprints.counted(entry.url);
            tally.add(entry, fingerprint, url, machine.as_bytes());
            sample.add(entry, fingerprint);
        }
        true
    }
}

#[cold]
fn note(malformed: &mut MalformedLines, number: u64, line: &[u8], what: impl FnOnce() -> String) {
    malformed.lines += 1;
    if malformed.examples.len() < EXAMPLES_MAX {
        malformed.examples.push((number, what(), raw::shown(line)));
    }
}

/// An input that says how far it was read.
struct Metered<'a> {
    input: Box<dyn Read + Send>,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Read for Metered<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        (self.progress)(count as u64);
        Ok(count)
    }
}

/// A few hundred lines, for recognising the format.
const BEGINNING_BYTES: usize = 64 << 10;

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

const EXAMPLES_MAX: usize = 5;
