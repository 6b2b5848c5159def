//! What came of each log.

use std::io;

use edgeward_analysis::wire::{Garbled, Reader, Writer};
use edgeward_analysis::{Format, Unrecognised};
use edgeward_trace::raw;
use edgeward_trace::{Compression, Problem};
use edgeward_types::Timestamp;

/// What came of one log.
#[derive(Debug)]
pub struct FileReport {
    /// What it is called.
    pub label: String,
    /// The machine that wrote it, as far as its folder tells.
    pub machine: String,
    /// Its size as it lay there and the time of its last change, where it was a file. By these a log
    /// is known again when an analysis goes on.
    pub found: Option<Found>,
    /// How it was compressed, once that was seen.
    pub compression: Option<Compression>,
    /// How its lines were laid out, once that was seen.
    pub format: Option<&'static str>,
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
    /// Where to go on, if reading was interrupted.
    pub rest: Option<Rest>,
    /// Why the rest of it was not read, if it was not.
    pub problem: Option<FileProblem>,
}

/// What a file was like when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its size.
    pub bytes: u64,
    /// When it was changed last.
    pub modified: Timestamp,
}

/// Where in a log to go on, and what must be known for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Bytes of whole lines before it.
    pub position: u64,
    /// The latest time among these lines.
    pub latest: Timestamp,
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
    /// A partial result tells so.
    #[error("{what}")]
    Told {
        /// What was wrong.
        what: String,
        /// The way out, where there is one.
        hint: Option<String>,
    },
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
            Self::Told { hint, .. } => hint.clone(),
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
    /// Nothing of it was read yet.
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

    /// A line told of a request, where the latest before it was at `latest`.
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

    /// Adds what came of the rest.
    pub(crate) fn go_on(&mut self, rest: Self) {
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

    pub(crate) fn read_from(from: &mut Reader<'_>) -> Result<Self, Garbled> {
        let mut report = Self::new(&string(from)?, &string(from)?);
        if flag(from)? {
            report.found = Some(Found {
                bytes: from.number()?,
                modified: Timestamp::from_millis(from.number()?),
            });
        }
        report.compression = known(from, &COMPRESSIONS, |c| c.to_string())?;
        report.format = known(from, &Format::NAMES, |name| (*name).to_owned())?;
        report.lines = from.counted()?;
        report.requests = from.counted()?;
        report.passed_over = from.counted()?;
        report.backwards.lines = from.counted()?;
        report.backwards.millis_max = from.number()?;
        report.malformed.lines = from.counted()?;
        let examples = from.count(3)?;
        if examples > EXAMPLES_MAX {
            return Err(from.garbled());
        }
        for _ in 0..examples {
            let example = (from.number()?, string(from)?, string(from)?);
            report.malformed.examples.push(example);
        }
        if flag(from)? {
            report.rest = Some(Rest {
                position: from.number()?,
                latest: Timestamp::from_millis(from.number()?),
            });
        }
        if flag(from)? {
            let what = string(from)?;
            let hint = Some(string(from)?).filter(|hint| !hint.is_empty());
            report.problem = Some(FileProblem::Told { what, hint });
        }
        Ok(report)
    }
}

/// One of a few things, by its name, or nothing for no name.
fn known<T: Copy>(
    from: &mut Reader<'_>,
    all: &[T],
    name: impl Fn(&T) -> String,
) -> Result<Option<T>, Garbled> {
    let wanted = string(from)?;
    if wanted.is_empty() {
        return Ok(None);
    }
    let found = all.iter().find(|one| name(one) == wanted);
    found.copied().map(Some).ok_or_else(|| from.garbled())
}

pub(crate) fn flag(from: &mut Reader<'_>) -> Result<bool, Garbled> {
    match from.byte()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(from.garbled()),
    }
}

pub(crate) fn string(from: &mut Reader<'_>) -> Result<String, Garbled> {
    let text = from.text()?;
    String::from_utf8(text.to_vec()).map_err(|_| from.garbled())
}

const EXAMPLES_MAX: usize = 5;

const COMPRESSIONS: [Compression; 4] = [
    Compression::None,
    Compression::Gzip,
    Compression::Zstd,
    Compression::Bzip2,
];
