//! The destinations of the access log: a stream of lines (a file or standard output), or datagrams to a daemon (syslog
//! or journald), one for each line.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::PathBuf;

use super::journald::Journald;
use super::line::{Formatter, LogLine};
use super::syslog::Syslog;
use crate::config::LogDestination;

/// The reason why the access log cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessLogError {
    /// The file cannot be opened for appending.
    #[error("the access log {} cannot be opened", .path.display())]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The thread that writes the log cannot be started.
    #[error("the access log's thread cannot be started")]
    Thread(#[source] io::Error),
}

/// Where lines go. A destination that fails loses lines, and is opened again later.
pub(super) enum Destination {
    Stream(Stream),
    Syslog(Syslog),
    Journald(Journald),
}

impl Destination {
    /// Opens a destination. A daemon that does not listen is no error: it may start later than the edge.
    pub(super) fn open(config: &LogDestination) -> Result<Self, AccessLogError> {
        Ok(match config {
            LogDestination::Stdout | LogDestination::File(_) => Self::Stream(Stream::open(config)?),
            LogDestination::Syslog(server) => Self::Syslog(Syslog::new(server)),
            LogDestination::Journald(socket) => Self::Journald(Journald::new(socket)),
        })
    }

    /// Writes a line, or keeps it until [`flush`](Self::flush). Returns the number of lines that were lost.
    pub(super) fn write(&mut self, line: &LogLine, formatter: &mut Formatter) -> Written {
        match self {
            Self::Stream(stream) => stream.write(line, formatter),
            Self::Syslog(syslog) => syslog.write(line, formatter).map_err(Lost::of_line),
            Self::Journald(journald) => journald.write(line, formatter).map_err(Lost::of_line),
        }
    }

    /// Writes all lines that are kept.
    pub(super) fn flush(&mut self) -> Written {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::Syslog(_) | Self::Journald(_) => Ok(()),
        }
    }
}

/// The result of a write: the lines that were lost, and the reason.
pub(super) type Written = Result<(), Lost>;

/// Lines that the destination did not accept.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) lines: u64,
    pub(super) error: io::Error,
}

impl Lost {
    fn of_line(error: io::Error) -> Self {
        Self { lines: 1, error }
    }
}

/// A file or standard output. Lines are collected, so that one system call writes a few hundred of them.
pub(super) struct Stream {
    out: Box<dyn Write + Send>,
    buffer: Vec<u8>,
    /// The number of lines in the buffer.
    lines: u64,
}

impl Stream {
    fn open(destination: &LogDestination) -> Result<Self, AccessLogError> {
        let out: Box<dyn Write + Send> = match destination {
            LogDestination::File(path) => {
                let opened = OpenOptions::new().create(true).append(true).open(path);
                Box::new(opened.map_err(|source| AccessLogError::Open {
                    path: path.clone(),
                    source,
                })?)
            }
            _ => Box::new(io::stdout()),
        };
        Ok(Self {
            out,
            buffer: Vec::with_capacity(WRITE_BYTES),
            lines: 0,
        })
    }

    fn write(&mut self, line: &LogLine, formatter: &mut Formatter) -> Written {
        formatter.write(line, &mut self.buffer);
        self.buffer.push(b'\n');
        self.lines += 1;
        if self.buffer.len() >= WRITE_BYTES {
            return self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) -> Written {
        let lines = std::mem::take(&mut self.lines);
        let written = self
            .out
            .write_all(&self.buffer)
            .and_then(|()| self.out.flush());
        self.buffer.clear();
        // A line of a client with long fields must not keep its memory for ever.
        self.buffer.shrink_to(2 * WRITE_BYTES);
        written.map_err(|error| Lost { lines, error })
    }
}

/// The size of one write: a few hundred lines per system call.
const WRITE_BYTES: usize = 64 << 10;
