//! Why a trace could not be read: what, where, and the way out.

use std::error::Error;
use std::fmt;
use std::io;

use crate::compression::Compression;

/// Why reading stopped. Small, for it travels in every item a reader yields.
#[derive(Debug)]
pub struct ReadError {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    label: String,
    place: Place,
    problem: Problem,
}

impl ReadError {
    pub(super) fn new(label: &str, place: Place, problem: Problem) -> Self {
        Self {
            inner: Box::new(Inner {
                label: label.to_owned(),
                place,
                problem,
            }),
        }
    }

    /// The input's name, as given in the options.
    pub fn label(&self) -> &str {
        &self.inner.label
    }

    /// Where in the input.
    pub fn place(&self) -> Place {
        self.inner.place
    }

    /// What is wrong there.
    pub fn problem(&self) -> &Problem {
        &self.inner.problem
    }

    /// The way out, in terms of the command line, where there is one.
    pub fn hint(&self) -> Option<String> {
        self.inner.problem.hint()
    }
}

/// The place, then what is wrong there; the way out is [`ReadError::hint`]'s.
impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            label,
            place,
            problem,
        } = &*self.inner;
        write!(f, "{label}{place}: {problem}")
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.inner.problem {
            Problem::Io(source)
            | Problem::CutShort { source, .. }
            | Problem::Undecodable { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Where in an input something is wrong. Bytes are counted after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The input as a whole.
    Whole,
    /// A line, counted from 1, and the byte it starts at.
    Line {
        /// The line, counted from 1.
        number: u64,
        /// Where it starts.
        byte: u64,
    },
    /// A byte, counted from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Line { number, byte } => write!(f, ", line {number} (byte {byte})"),
            Self::Byte(byte) => write!(f, ", byte {byte}"),
        }
    }
}

/// What is wrong with an input.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// The source of the bytes failed.
    Io(io::Error),
    /// The compressed stream ends in the middle: a download or a copy that broke off.
    CutShort {
        /// Which compression.
        compression: Compression,
        /// The decoder's own words.
        source: io::Error,
    },
    /// The compressed stream is damaged, or asks for more memory than allowed.
    Undecodable {
        /// Which compression.
        compression: Compression,
        /// The decoder's own words.
        source: io::Error,
    },
    /// A compression known by sight and not read.
    ForeignCompression {
        /// Its name.
        name: &'static str,
        /// The command that takes it off.
        tool: &'static str,
    },
    /// There is not a single byte.
    Empty,
    /// The content is no format we know; what was seen says why.
    Unrecognised {
        /// What the first bytes look like.
        seen: String,
    },
    /// A CSV header lacks a column.
    NoColumn {
        /// What the column would hold.
        field: &'static str,
        /// The names there are.
        header: String,
    },
    /// A field does not hold what it must.
    Field {
        /// Which field.
        field: &'static str,
        /// What it holds.
        found: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// A line ends before a field.
    MissingField {
        /// Which field.
        field: &'static str,
        /// The line as it stands.
        found: String,
    },
    /// A line goes on after its last field.
    ExtraField {
        /// What follows.
        found: String,
    },
    /// A line is longer than allowed.
    LineTooLong {
        /// The bound.
        line_bytes_max: usize,
    },
    /// A binary trace ends within a record.
    RecordCutShort {
        /// Bytes of the last record that are there.
        have: usize,
        /// Bytes of a record.
        need: usize,
    },
}

impl Problem {
    /// The way out, in terms of the command line, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io(_) => return None,
            Self::CutShort { .. } => {
                "fetch or copy the file again; every record before this point was read".to_owned()
            }
            Self::Undecodable { .. } => {
                "check the file with `gzip -t` or `zstd -t`; if zstd asks for a larger window, \
                 raise --zstd-window-log or compress again without --long"
                    .to_owned()
            }
            Self::ForeignCompression { tool, .. } => {
                format!("decompress it on the way: {tool} FILE | edgeward … -")
            }
            Self::Empty => "is it the right file?".to_owned(),
            Self::Unrecognised { .. } => "name the format with --format text, csv, \
                 oracle-general, lrb or ncsa; for CSV without a header add --columns \
                 time=1,key=2,size=3"
                .to_owned(),
            Self::NoColumn { field, .. } => {
                format!("say which column it is: --columns {field}=NAME or {field}=NUMBER")
            }
            Self::Field { .. }
            | Self::MissingField { .. }
            | Self::ExtraField { .. }
            | Self::LineTooLong { .. } => {
                "if the format is not the right one name it with --format; to leave out and \
                 count such lines use --skip-malformed"
                    .to_owned()
            }
            Self::RecordCutShort { .. } => {
                "the file is cut, or not oracleGeneral; every whole record was read".to_owned()
            }
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => write!(f, "the input cannot be read"),
            Self::CutShort { compression, .. } => {
                write!(f, "the {compression} stream ends in the middle")
            }
            Self::Undecodable { compression, .. } => {
                write!(f, "the {compression} stream cannot be decoded")
            }
            Self::ForeignCompression { name, .. } => {
                write!(
                    f,
                    "the input is compressed with {name}; gzip, zstd and bzip2 are read"
                )
            }
            Self::Empty => write!(f, "the input is empty"),
            Self::Unrecognised { seen } => {
                write!(f, "the trace's format is not recognised: {seen}")
            }
            Self::NoColumn { field, header } => {
                write!(f, "the header has no column for the {field}: {header}")
            }
            Self::Field {
                field,
                found,
                expected,
            } => write!(f, "{field} is `{found}`, not {expected}"),
            Self::MissingField { field, found } => {
                write!(f, "the line has no {field}: `{found}`")
            }
            Self::ExtraField { found } => {
                write!(f, "the line goes on after its size: `{found}`")
            }
            Self::LineTooLong { line_bytes_max } => {
                write!(f, "the line is longer than {line_bytes_max} bytes")
            }
            Self::RecordCutShort { have, need } => {
                write!(f, "the last record has {have} of its {need} bytes")
            }
        }
    }
}

/// Bytes as they can be shown in one line of a terminal: printable, and not too many.
pub fn shown(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 80;
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let mut text = String::new();
    for c in String::from_utf8_lossy(cut).chars() {
        if c.is_control() {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    if cut.len() < bytes.len() {
        text.push('…');
    }
    text
}
