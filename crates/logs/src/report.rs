//! The report of each log.

use std::io;

use edgeward_analysis::wire::{DecodeError, Reader, Writer};
use edgeward_analysis::{Format, UnrecognisedFormat};
use edgeward_trace::raw;
use edgeward_trace::{Compression, Problem};
use edgeward_types::Timestamp;

/// The report of one log.
#[derive(Debug)]
pub struct FileReport {
    /// The name of the log.
    pub label: String,
    /// The machine that wrote it, taken from its folder.
    pub machine: String,
    /// Its size and modification time, if it is a file. They identify a log when an analysis continues.
    pub found: Option<FileState>,
    /// Its compression, once detected.
    pub compression: Option<Compression>,
    /// Its format, once detected.
    pub format: Option<&'static str>,
    /// Lines read.
    pub lines: u64,
    /// Lines with a request for a URL.
    pub requests: u64,
    /// Lines without a request: empty lines, comments, connections that ended before a request.
    pub passed_over: u64,
    /// Lines that could not be parsed.
    pub malformed: MalformedLines,
    /// Lines with an earlier time than a line before.
    pub backwards: Backwards,
    /// Where to continue, if reading was interrupted.
    pub rest: Option<ResumePoint>,
    /// Why the remaining lines were not read, if any remain.
    pub problem: Option<FileProblem>,
}

/// The state of a file when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Its size.
    pub bytes: u64,
    /// Its modification time.
    pub modified: Timestamp,
}

/// Where to continue in a log, and the state needed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// Bytes of complete lines before the position.
    pub position: u64,
    /// The latest time in these lines.
    pub latest: Timestamp,
}

/// Lines that could not be parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MalformedLines {
    /// The number of lines.
    pub lines: u64,
    /// The first few lines: number, problem, and start of the line.
    pub examples: Vec<(u64, String, String)>,
}

/// Lines with an earlier time than a line before. Servers that log a request at its end with its start time go
/// back by seconds. A clock that was reset goes back further.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backwards {
    /// The number of lines.
    pub lines: u64,
    /// The largest difference to the latest earlier line, in milliseconds.
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
    /// Space ran out, see [`crate::Analysis::spill_error`].
    #[error("space ran out before the rest of it was read")]
    NoRoom,
    /// The problem as recorded in a partial result.
    #[error("{what}")]
    Recorded {
        /// The problem.
        what: String,
        /// A hint, if available.
        hint: Option<String>,
    },
}

impl FileProblem {
    /// Returns a hint for the user, if available.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Open(_) | Self::NoRoom => None,
            Self::Read(problem) => problem.hint(),
            Self::Unrecognised(found) if found.binary => {
                Some("check the path; compressed logs may be gzip, zstd or bzip2".to_owned())
            }
            Self::Unrecognised(_) => {
                Some("if it has another format, give it with --format".to_owned())
            }
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
    if found.binary {
        "it is not text".to_owned()
    } else if found.first_line.is_empty() {
        "its first lines are empty lines and comments only".to_owned()
    } else {
        let line = raw::shown(found.first_line.trim_ascii());
        format!("its format is not recognised: `{line}`")
    }
}

impl MalformedLines {
    #[cold]
    pub(crate) fn note(&mut self, number: u64, line: &[u8], what: impl FnOnce() -> String) {
        self.lines += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push((number, what(), raw::shown(line)));
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

    /// Counts a line with a request. `latest` is the latest time of the lines before.
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

    /// Adds the report of the continued part.
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
        report.format = read_name(from, &Format::NAMES, |name| (*name).to_owned())?;
        report.lines = from.counted()?;
        report.requests = from.counted()?;
        report.passed_over = from.counted()?;
        report.backwards.lines = from.counted()?;
        report.backwards.millis_max = from.number()?;
        report.malformed.lines = from.counted()?;
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

/// Decodes one of the values in `all` by its name, or `None` for an empty name.
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

pub(crate) fn flag(from: &mut Reader<'_>) -> Result<bool, DecodeError> {
    match from.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(from.decode_error()),
    }
}

pub(crate) fn string(from: &mut Reader<'_>) -> Result<String, DecodeError> {
    let text = from.text()?;
    String::from_utf8(text.to_vec()).map_err(|_| from.decode_error())
}

const EXAMPLES_MAX: usize = 5;

const COMPRESSIONS: [Compression; 4] = [
    Compression::None,
    Compression::Gzip,
    Compression::Zstd,
    Compression::Bzip2,
];
