//! The first half of an analysis: threads read logs and store their requests.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::UNIX_EPOCH;

use edgeward_analysis::{Entry, Format, Parser, UnrecognisedKind, detect_format};
use edgeward_trace::Compression;
use edgeward_trace::raw::{Buffer, Decoder};
use edgeward_types::Timestamp;

use crate::ahead::DecodeAhead;
use crate::analyze::Settings;
use crate::find::Source;
use crate::lines::{Line, Lines};
use crate::report::{ERROR_LOG, FileProblem, FileReport, FileState, ResumePoint};

/// A log to read, or the rest of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// The index of the log in the list of sources.
    pub(crate) source: usize,
    /// The index of the log in the list of sources sorted by name. It numbers the logs in samples, so that samples
    /// do not depend on the order of the sources or on the thread that reads the log.
    pub(crate) log: u32,
    /// The position at which reading continues, and the number of lines before it. `None` if the log is read
    /// from its start.
    pub(crate) rest: Option<(ResumePoint, u64)>,
}

/// Decides when reading is interrupted for a checkpoint: after all threads together have read `bytes_max` bytes,
/// counted before decompression.
#[derive(Debug)]
pub(crate) struct Pause {
    bytes_max: u64,
    bytes: AtomicU64,
}

impl Pause {
    pub(crate) const fn after(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: AtomicU64::new(0),
        }
    }

    fn is_reached(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.bytes_max
    }
}

/// Receives the requests of a thread. Each thread has its own sink.
pub(crate) trait RequestSink: Send {
    /// Starts a log: the following requests belong to it.
    fn begin(&mut self, task: Task);

    /// Stores a request. `machine` is the name of the machine that wrote the log. A name in the line itself takes
    /// precedence. Returns false if space ran out.
    fn take(&mut self, entry: &Entry<'_>, machine: &str) -> bool;

    /// Returns true if space ran out in any thread. All threads then stop.
    fn is_full(&self) -> bool;
}

/// The state that all threads share.
pub(crate) struct Shared<'a> {
    pub(crate) sources: &'a [Source],
    pub(crate) tasks: &'a [Task],
    /// The index of the next task that no thread has taken.
    pub(crate) next: AtomicUsize,
    pub(crate) settings: &'a Settings,
    /// Called after each read with the number of bytes, counted before decompression.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
    pub(crate) pause: Pause,
    /// True if there are enough threads to decompress each log in a thread of its own.
    pub(crate) ahead: bool,
}

/// A thread that reads logs, and its results.
pub(crate) struct Worker<'a, I> {
    shared: &'a Shared<'a>,
    pub(crate) sink: I,
    pub(crate) reports: Vec<(Task, FileReport)>,
}

impl<'a, I: RequestSink> Worker<'a, I> {
    pub(crate) fn new(shared: &'a Shared<'a>, sink: I) -> Self {
        Self {
            shared,
            sink,
            reports: Vec::new(),
        }
    }

    /// Reads logs until all are read or reading is interrupted.
    pub(crate) fn run(mut self) -> Self {
        while !self.shared.pause.is_reached()
            && let Some(task) = self.shared.next()
        {
            let source = &self.shared.sources[task.source];
            let mut report = FileReport::new(&source.label, &source.machine);
            self.sink.begin(task);
            match self.read(source, task.rest, &mut report) {
                Err(problem) if self.is_error_log(source, &problem) => {
                    report.format = Some(ERROR_LOG);
                }
                Err(problem) => report.problem = Some(problem),
                Ok(()) => {}
            }
            self.reports.push((task, report));
        }
        self
    }

    /// Returns true if a log without a known format is the error log of a server, by its content or its name. Servers
    /// write it beside their access logs, so it is an error only if it is the only log.
    fn is_error_log(&self, source: &Source, problem: &FileProblem) -> bool {
        let FileProblem::Unrecognised(found) = problem else {
            return false;
        };
        let name = source.path.as_ref().and_then(|path| path.file_name());
        let is_named_so = name.is_some_and(|name| name.to_string_lossy().contains("error"));
        self.shared.sources.len() > 1
            && match found.kind {
                UnrecognisedKind::ErrorLog => true,
                UnrecognisedKind::Text | UnrecognisedKind::Json => is_named_so,
                UnrecognisedKind::Binary => false,
            }
    }

    fn read(
        &mut self,
        source: &Source,
        rest: Option<(ResumePoint, u64)>,
        report: &mut FileReport,
    ) -> Result<(), FileProblem> {
        if self.sink.is_full() {
            return Err(FileProblem::OutOfSpace);
        }
        let Some(path) = &source.path else {
            return self.read_from(Box::new(io::stdin()), report);
        };
        let mut file = File::open(path).map_err(FileProblem::Open)?;
        report.found = file_state(&file);
        let Some((rest, lines)) = rest else {
            return self.read_from(Box::new(file), report);
        };
        // Reading is interrupted only in uncompressed logs, so this log is uncompressed.
        let format = self.format(&beginning(&mut file).map_err(FileProblem::Open)?)?;
        let position = SeekFrom::Start(rest.position);
        file.seek(position).map_err(FileProblem::Open)?;
        report.compression = Some(Compression::None);
        report.rest = Some(rest);
        let mut input = self.with_progress(Box::new(file));
        self.read_lines(&mut Buffer::new(), &mut input, &format, report, lines)
    }

    fn with_progress(&self, input: Box<dyn Read + Send + 'a>) -> ProgressReader<'a> {
        ProgressReader {
            input,
            progress: self.shared.progress,
            pause: &self.shared.pause,
        }
    }

    fn read_from(
        &mut self,
        input: Box<dyn Read + Send + 'a>,
        report: &mut FileReport,
    ) -> Result<(), FileProblem> {
        let input = Box::new(self.with_progress(input));
        let mut decoder = Decoder::open(input, self.shared.settings.zstd_window_log_max)
            .map_err(FileProblem::Read)?;
        let compression = decoder.compression();
        report.compression = Some(compression);
        if self.shared.ahead && compression != Compression::None {
            return thread::scope(|scope| {
                let mut input = DecodeAhead::start(scope, decoder);
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
        let mut buffer = Buffer::new();
        while !buffer.ended() && buffer.filled().len() < BEGINNING_BYTES {
            buffer.fill(&mut input);
            // If a log is truncated while its server keeps it open, the server continues at its old position. The
            // bytes before are zeros.
            if buffer.offset() == 0 || buffer.filled().first() == Some(&0) {
                let zeros = buffer
                    .filled()
                    .iter()
                    .take_while(|byte| **byte == 0)
                    .count();
                buffer.consume(zeros);
            }
        }
        if buffer.filled().starts_with(UTF8_BOM) {
            buffer.consume(UTF8_BOM.len());
        }
        if buffer.filled().is_empty() {
            // Log rotation leaves empty logs, so an empty log is not an error.
            let failure = buffer.take_failure();
            return failure.map_or(Ok(()), |failure| {
                Err(FileProblem::Read(compression.problem_of(failure)))
            });
        }
        let format = self.format(buffer.filled())?;
        self.read_lines(&mut buffer, input, &format, report, 0)
    }

    fn format(&self, beginning: &[u8]) -> Result<Format, FileProblem> {
        match &self.shared.settings.format {
            Some(format) => Ok(format.clone()),
            // A log in JSON is recognised by the names of its fields.
            None => detect_format(beginning, &self.shared.settings.names)
                .map_err(FileProblem::Unrecognised),
        }
    }

    /// Reads lines to the end of the log, or until reading is interrupted. `before` is the number of lines that
    /// an earlier run has read.
    fn read_lines(
        &mut self,
        buffer: &mut Buffer,
        input: &mut dyn Read,
        format: &Format,
        report: &mut FileReport,
        before: u64,
    ) -> Result<(), FileProblem> {
        let shared = self.shared;
        let mut parser = Parser::new(format);
        report.format = Some(format.name());
        let compression = report.compression.unwrap_or_default();
        // A later run cannot continue in the middle of a compressed log. It cannot continue in a W3C log
        // either, because the columns are declared at the start. The log must be a regular file that was not empty
        // when it was opened.
        let can_pause = compression == Compression::None
            && *format != Format::W3c
            && report.found.is_some_and(|found| found.bytes > 0);
        let line_bytes_max = shared.settings.line_bytes_max;
        let machine = report.machine.clone();
        let resumed = report.rest.take();
        let mut latest = resumed.map_or(Timestamp::ZERO, |rest| rest.latest);
        // `rejected` is 1 if the sink had no space for the last line. This line does not count as read.
        let (mut paused, mut rejected) = (false, 0);
        let mut lines = Lines::new(buffer, line_bytes_max, before);
        while let Some((number, line)) = lines.next(input) {
            let line = match line {
                Line::Whole(line) => line,
                Line::TooLong(beginning) => {
                    let problem = format!("the line is longer than {line_bytes_max} bytes");
                    report.malformed.note(number, beginning, || problem);
                    continue;
                }
            };
            // Lines in the common format have a separate branch, so that the compiler keeps their fields in
            // registers.
            if let Some(entry) = parser.parse_common(line) {
                if !self.sink.take(&entry, &machine) {
                    rejected = 1;
                    break;
                }
                report.request(entry.time, &mut latest);
            } else {
                match parser.parse(line) {
                    Ok(Some(entry)) => {
                        if !self.sink.take(&entry, &machine) {
                            rejected = 1;
                            break;
                        }
                        report.request(entry.time, &mut latest);
                    }
                    Ok(None) => report.passed_over += 1,
                    Err(problem) => report.malformed.note(number, line, || problem.to_string()),
                }
            }
            if number % LINES_PER_CHECK == 0 {
                paused = can_pause && shared.pause.is_reached();
                // The sink may be full because another thread has run out of space.
                if paused || self.sink.is_full() {
                    break;
                }
            }
        }
        lines.consume();
        let last = lines.number();
        report.lines = last - before - rejected;
        if paused {
            report.rest = Some(ResumePoint {
                position: resumed.map_or(0, |rest| rest.position) + buffer.offset(),
                latest,
            });
            return Ok(());
        }
        if let Some(failure) = buffer.take_failure() {
            return Err(FileProblem::Read(compression.problem_of(failure)));
        }
        if self.sink.is_full() {
            return Err(FileProblem::OutOfSpace);
        }
        Ok(())
    }
}

impl Shared<'_> {
    fn next(&self) -> Option<Task> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.tasks.get(at).copied()
    }
}

/// Returns the size and modification time of a regular file, or `None` for a pipe.
pub(crate) fn file_state(file: &File) -> Option<FileState> {
    let metadata = file.metadata().ok().filter(|metadata| metadata.is_file())?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(FileState {
        bytes: metadata.len(),
        modified: Timestamp::from_millis(u64::try_from(modified.as_millis()).ok()?),
    })
}

fn beginning(file: &mut File) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::with_capacity(BEGINNING_BYTES);
    loop {
        let mut input = file
            .by_ref()
            .take((BEGINNING_BYTES - beginning.len()) as u64);
        let count = input.read_to_end(&mut beginning)?;
        let zeros = beginning.iter().take_while(|byte| **byte == 0).count();
        beginning.drain(..zeros);
        if count == 0 || zeros == 0 {
            break;
        }
    }
    let text = beginning.strip_prefix(UTF8_BOM);
    Ok(text.map_or_else(|| beginning.clone(), <[u8]>::to_vec))
}

/// An input that reports the number of bytes read to the progress function and to the pause.
struct ProgressReader<'a> {
    input: Box<dyn Read + Send + 'a>,
    progress: &'a (dyn Fn(u64) + Sync),
    pause: &'a Pause,
}

impl Read for ProgressReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        self.pause.bytes.fetch_add(count as u64, Ordering::Relaxed);
        (self.progress)(count as u64);
        Ok(count)
    }
}

/// The number of bytes from which the format is detected: a few hundred lines.
const BEGINNING_BYTES: usize = 64 << 10;

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";

/// The number of lines between two checks for a pause.
const LINES_PER_CHECK: u64 = 1024;
