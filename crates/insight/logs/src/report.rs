//! The report of each log: what was read, and which problems occurred.

use std::io;

use edgeward_analysis::wire::{DecodeError, Reader, Writer};
use edgeward_analysis::{Format, UnrecognisedFormat, UnrecognisedKind};
use edgeward_trace::raw;
use edgeward_trace::{Compression, Problem};
use edgeward_types::Timestamp;

/// The report of one log.
#[derive(Debug)]
pub struct FileReport {
    /// The name of the log.
    pub label: String,
    /// The machine that wrote the log, taken from the name of its folder.
    pub machine: String,
    /// The size and modification time of the log, if it is a file. They show if the log has changed when an
    /// analysis continues.
    pub found: Option<FileState>,
    /// The compression, or `None` before it is detected.
    pub compression: Option<Compression>,
    /// The name of the format, or `None` before it is detected. `error-log` is an error log beside other logs, which is
    /// not read.
    pub format: Option<&'static str>,
    /// The number of lines read.
    pub lines: u64,
    /// The number of lines with a request for a URL.
    pub requests: u64,
    /// The number of lines without a request: empty lines, comments, and connections that ended before a
    /// request.
    pub passed_over: u64,
    /// Lines that could not be parsed.
    pub malformed: MalformedLines,
    /// Lines whose time is earlier than the time of a previous line.
    pub backwards: Backwards,
    /// The position at which a later run continues, if reading was interrupted.
    pub rest: Option<ResumePoint>,
    /// The problem that stopped reading before the end of the log, if there was a problem.
    pub problem: Option<FileProblem>,
}

/// The state of a file when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// The size in bytes.
    pub bytes: u64,
    /// The time of the last modification.
    pub modified: Timestamp,
}

/// The position at which an analysis continues in a log, and the state of the analysis there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The position in the log: the number of bytes of the lines that were read.
    pub position: u64,
    /// The latest time in the lines that were read.
    pub latest: Timestamp,
}

/// Lines that could not be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MalformedLines {
    /// The number of lines.
    pub lines: u64,
    /// The first few of these lines: line number, problem, and beginning of the line.
    pub examples: Vec<(u64, String, String)>,
}

/// Lines whose time is earlier than the time of a previous line. If a server logs a request at its end but with
/// its start time, the difference is a few seconds. After a reset of the clock it may be larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backwards {
    /// The number of lines.
    pub lines: u64,
    /// The largest difference between the time of a line and the latest time of the lines before it, in
    /// milliseconds.
    pub millis_max: u64,
}

/// Why a log, or the rest of it, was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileProblem {
    /// The log cannot be opened.
    #[error("it cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// The log is truncated, corrupt, or cannot be read further.
    #[error("{}{}", .0, cause(.0))]
    Read(Problem),
    /// The log has no known format.
    #[error("{}", unrecognised(.0))]
    Unrecognised(UnrecognisedFormat),
    /// The temporary file could not grow, see [`crate::Analysis::spill_error`].
    #[error("space ran out before the rest of it was read")]
    OutOfSpace,
    /// A problem read from a partial result: a file with the statistics of one machine's logs.
    #[error("{what}")]
    Recorded {
        /// The text of the problem.
        what: String,
        /// A hint, if available.
        hint: Option<String>,
    },
}

impl FileProblem {
    /// Returns a hint for the user, if available.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Open(_) | Self::OutOfSpace => None,
            Self::Read(problem) => problem.hint(),
            Self::Unrecognised(found) => match found.kind {
                UnrecognisedKind::Binary => Some(
                    "check the path; compressed logs may be gzip, zstd or bzip2".to_owned(),
                ),
                UnrecognisedKind::ErrorLog => None,
                UnrecognisedKind::Json => Some(
                    "state the names of its fields: --fields url=NAME,status=NAME,bytes=NAME,time=NAME"
                        .to_owned(),
                ),
                UnrecognisedKind::Text => {
                    Some("if it has another format, give it with --format".to_owned())
                }
            },
            Self::Recorded { hint, .. } => hint.clone(),
        }
    }
}

fn cause(problem: &Problem) -> String {
    match problem {
        Problem::Io(source)
        | Problem::Truncated { source, .. }
        | Problem::Undecodable { source, .. } => format!(": {source}"),
        _ => String::new(),
    }
}

fn unrecognised(found: &UnrecognisedFormat) -> String {
    if found.kind == UnrecognisedKind::Binary {
        "it is not text".to_owned()
    } else if found.kind == UnrecognisedKind::ErrorLog {
        "it is the error log of a server, which has no requests".to_owned()
    } else if found.first_line.is_empty() {
        "its first lines are empty lines and comments only".to_owned()
    } else {
        let line = raw::printable_excerpt(found.first_line.trim_ascii());
        format!("its format is not recognised: `{line}`")
    }
}

impl MalformedLines {
    #[cold]
    pub(crate) fn note(&mut self, number: u64, line: &[u8], what: impl FnOnce() -> String) {
        self.lines += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples
                .push((number, what(), raw::printable_excerpt(line)));
        }
    }
}

impl FileReport {
    /// Makes an empty report.
    pub(crate) fn new(label: &str, machine: &str) -> Self {
        Self {
            label: label.to_owned(),
            machine: machine.to_owned(),
            found: None,
            compression: None,
            format: None,
            lines: 0,
            requests: 0,
            passed_over: 0,
            malformed: MalformedLines::default(),
            backwards: Backwards::default(),
            rest: None,
            problem: None,
        }
    }

    /// Counts a line with a request. `latest` is the latest time of the previous lines, and is updated.
    #[inline]
    pub(crate) fn request(&mut self, time: Option<Timestamp>, latest: &mut Timestamp) {
        self.requests += 1;
        let Some(time) = time else {
            return;
        };
        if time >= *latest {
            *latest = time;
            return;
        }
        let millis = latest.as_millis() - time.as_millis();
        self.backwards.lines += 1;
        self.backwards.millis_max = self.backwards.millis_max.max(millis);
    }

    /// Adds the report of the part of the log that a later run has read.
    pub(crate) fn append(&mut self, rest: Self) {
        self.found = rest.found;
        self.compression = rest.compression.or(self.compression);
        self.format = rest.format.or(self.format);
        self.lines += rest.lines;
        self.requests += rest.requests;
        self.passed_over += rest.passed_over;
        self.malformed.lines += rest.malformed.lines;
        self.malformed.examples.extend(rest.malformed.examples);
        self.malformed.examples.truncate(EXAMPLES_MAX);
        self.backwards.lines += rest.backwards.lines;
        self.backwards.millis_max = self.backwards.millis_max.max(rest.backwards.millis_max);
        self.rest = rest.rest;
        self.problem = rest.problem;
    }

    pub(crate) fn write_to(&self, out: &mut Writer) {
        out.text(self.label.as_bytes());
        out.text(self.machine.as_bytes());
        out.byte(u8::from(self.found.is_some()));
        if let Some(found) = &self.found {
            out.number(found.bytes);
            out.number(found.modified.as_millis());
        }
        let compression = self.compression.map(|compression| compression.to_string());
        out.text(compression.unwrap_or_default().as_bytes());
        out.text(self.format.unwrap_or_default().as_bytes());
        for number in [
            self.lines,
            self.requests,
            self.passed_over,
            self.backwards.lines,
            self.backwards.millis_max,
            self.malformed.lines,
        ] {
            out.number(number);
        }
        out.number(self.malformed.examples.len() as u64);
        for (line, what, text) in &self.malformed.examples {
            out.number(*line);
            out.text(what.as_bytes());
            out.text(text.as_bytes());
        }
        out.byte(u8::from(self.rest.is_some()));
        if let Some(rest) = &self.rest {
            out.number(rest.position);
            out.number(rest.latest.as_millis());
        }
        out.byte(u8::from(self.problem.is_some()));
        if let Some(problem) = &self.problem {
            out.text(problem.to_string().as_bytes());
            out.text(problem.hint().unwrap_or_default().as_bytes());
        }
    }

    pub(crate) fn read_from(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut report = Self::new(&string(from)?, &string(from)?);
        if flag(from)? {
            report.found = Some(FileState {
                bytes: from.number()?,
                modified: Timestamp::from_millis(from.number()?),
            });
        }
        report.compression = read_name(from, &COMPRESSIONS, |c| c.to_string())?;
        let formats: Vec<_> = Format::names().into_iter().chain([ERROR_LOG]).collect();
        report.format = read_name(from, &formats, |name| (*name).to_owned())?;
        report.lines = from.counted()?;
        report.requests = from.counted()?;
        report.passed_over = from.counted()?;
        report.backwards.lines = from.counted()?;
        report.backwards.millis_max = from.number()?;
        report.malformed.lines = from.counted()?;
        // An example has a number and two texts, each of at least one byte.
        let examples = from.count(3)?;
        if examples > EXAMPLES_MAX {
            return Err(from.decode_error());
        }
        for _ in 0..examples {
            let example = (from.number()?, string(from)?, string(from)?);
            report.malformed.examples.push(example);
        }
        if flag(from)? {
            report.rest = Some(ResumePoint {
                position: from.number()?,
                latest: Timestamp::from_millis(from.number()?),
            });
        }
        if flag(from)? {
            let what = string(from)?;
            let hint = Some(string(from)?).filter(|hint| !hint.is_empty());
            report.problem = Some(FileProblem::Recorded { what, hint });
        }
        Ok(report)
    }
}

/// Decodes a name and returns the value in `all` that has this name, or `None` if the name is empty.
fn read_name<T: Copy>(
    from: &mut Reader<'_>,
    all: &[T],
    name: impl Fn(&T) -> String,
) -> Result<Option<T>, DecodeError> {
    let name_read = string(from)?;
    if name_read.is_empty() {
        return Ok(None);
    }
    let found = all.iter().find(|one| name(one) == name_read);
    found.copied().map(Some).ok_or_else(|| from.decode_error())
}

/// Decodes a Boolean.
pub(crate) fn flag(from: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match from.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(from.decode_error()),
    }
}

/// Decodes a text in UTF-8.
pub(crate) fn string(from: &mut Reader<'_>) -> Result<String, DecodeError> {
    let text = from.text()?;
    String::from_utf8(text.to_vec()).map_err(|_| from.decode_error())
}

/// The name of the format of an error log that lies beside other logs. None of its lines is read.
pub(crate) const ERROR_LOG: &str = "error-log";

/// The maximum number of malformed lines that a report quotes.
const EXAMPLES_MAX: usize = 5;

const COMPRESSIONS: [Compression; 4] = [
    Compression::None,
    Compression::Gzip,
    Compression::Zstd,
    Compression::Bzip2,
];
