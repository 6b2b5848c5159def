//! Errors of reading a trace: the position, the problem and a remedy.

use std::error::Error;
use std::fmt;
use std::io;

use crate::compression::Compression;

/// The reason why reading stopped. The type has the size of a pointer, because every item of a reader may contain it.
#[derive(Debug)]
pub struct ReadError {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    label: String,
    position: Position,
    problem: Problem,
}

impl ReadError {
    pub(super) fn new(label: &str, position: Position, problem: Problem) -> Self {
        Self {
            inner: Box::new(Inner {
                label: label.to_owned(),
                position,
                problem,
            }),
        }
    }

    /// The input's name, as given in the options.
    pub fn label(&self) -> &str {
        &self.inner.label
    }

    /// The position in the input.
    pub fn position(&self) -> Position {
        self.inner.position
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.inner.problem
    }

    /// A remedy in terms of the command line, if one exists.
    pub fn hint(&self) -> Option<String> {
        self.inner.problem.hint()
    }
}

/// Writes the position and the problem. [`ReadError::hint`] has the remedy.
impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            label,
            position,
            problem,
        } = &*self.inner;
        write!(f, "{label}{position}: {problem}")
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.inner.problem {
            Problem::Io(source)
            | Problem::Truncated { source, .. }
            | Problem::Undecodable { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A position in an input. Bytes are counted after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The input as a whole, without a position.
    Whole,
    /// A line and the byte at which it starts.
    Line {
        /// The number of the line, counted from 1.
        number: u64,
        /// The byte at which the line starts, counted from 0.
        byte: u64,
    },
    /// A byte, counted from 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Line { number, byte } => write!(f, ", line {number} (byte {byte})"),
            Self::Byte(byte) => write!(f, ", byte {byte}"),
        }
    }
}

/// The problem of an input.
#[derive(Debug)]
#[non_exhaustive]
pub enum Problem {
    /// Reading the input failed.
    Io(io::Error),
    /// The compressed stream is truncated, for example by an incomplete download or copy.
    Truncated {
        /// The compression.
        compression: Compression,
        /// The error of the decoder.
        source: io::Error,
    },
    /// The compressed stream is corrupt, or needs more memory than allowed.
    Undecodable {
        /// The compression.
        compression: Compression,
        /// The error of the decoder.
        source: io::Error,
    },
    /// The compression is not supported.
    UnsupportedCompression {
        /// The name of the compression.
        name: &'static str,
        /// The command that decompresses it.
        tool: &'static str,
    },
    /// The input has no bytes.
    Empty,
    /// The format is unknown.
    Unrecognised {
        /// A description of the first bytes.
        beginning: String,
    },
    /// A CSV header lacks a column.
    NoColumn {
        /// The missing column.
        field: &'static str,
        /// The header line.
        header: String,
    },
    /// A field has an invalid value.
    Field {
        /// The name of the field.
        field: &'static str,
        /// The text of the field.
        found: String,
        /// A description of valid values.
        expected: &'static str,
    },
    /// A line ends before a field.
    MissingField {
        /// The name of the field.
        field: &'static str,
        /// The line.
        found: String,
    },
    /// A line has text after its last field.
    ExtraField {
        /// The additional text.
        found: String,
    },
    /// A line is longer than allowed.
    LineTooLong {
        /// The limit.
        line_bytes_max: usize,
    },
    /// A binary trace ends within a record.
    RecordTruncated {
        /// The number of bytes of the last record that are present.
        present_bytes: usize,
        /// The length of a record in bytes.
        record_bytes: usize,
    },
}

impl Problem {
    /// A remedy in terms of the command line, if one exists.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io(_) => return None,
            Self::Truncated { .. } => {
                "download or copy the file again; every record before this position was read"
                    .to_owned()
            }
            Self::Undecodable { .. } => {
                "check the file with `gzip -t` or `zstd -t`; if zstd asks for a larger window, \
                 raise --zstd-window-log or compress again without --long"
                    .to_owned()
            }
            Self::UnsupportedCompression { tool, .. } => {
                format!("decompress it in a pipe: {tool} FILE | edgeward … -")
            }
            Self::Empty => "is it the right file?".to_owned(),
            Self::Unrecognised { .. } => "name the format with --format text, csv, \
                 oracle-general, lcs, lrb, ncsa or json; for CSV without a header add --columns \
                 time=1,key=2,size=3"
                .to_owned(),
            Self::NoColumn { field, .. } => {
                format!(
                    "say which column has the {field}: --columns {field}=NAME or {field}=NUMBER"
                )
            }
            Self::Field { .. }
            | Self::MissingField { .. }
            | Self::ExtraField { .. }
            | Self::LineTooLong { .. } => {
                "if the recognised format is wrong, set --format; to skip and count malformed \
                 lines, use --skip-malformed"
                    .to_owned()
            }
            Self::RecordTruncated { .. } => {
                "the file is truncated or not oracleGeneral; every complete record was read"
                    .to_owned()
            }
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(_) => write!(f, "reading the input failed"),
            Self::Truncated { compression, .. } => {
                write!(f, "the {compression} stream is truncated")
            }
            Self::Undecodable { compression, .. } => {
                write!(f, "the {compression} stream is corrupt")
            }
            Self::UnsupportedCompression { name, .. } => {
                write!(
                    f,
                    "the input is compressed with {name}; gzip, zstd and bzip2 are supported"
                )
            }
            Self::Empty => write!(f, "the input is empty"),
            Self::Unrecognised { beginning } => {
                write!(f, "the format of the trace is not recognised: {beginning}")
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
                write!(f, "the line has text after its size: `{found}`")
            }
            Self::LineTooLong { line_bytes_max } => {
                write!(f, "the line is longer than {line_bytes_max} bytes")
            }
            Self::RecordTruncated {
                present_bytes,
                record_bytes,
            } => {
                write!(
                    f,
                    "the last record has {present_bytes} of its {record_bytes} bytes"
                )
            }
        }
    }
}

/// Formats bytes for a message on one line: escapes control characters and omits all bytes after the first 80.
pub fn printable_excerpt(bytes: &[u8]) -> String {
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
