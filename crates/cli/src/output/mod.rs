//! The output of commands: results to stdout, progress to stderr.
//!
//! Commands write through [`stdout`] instead of `println!`, which would panic when the reader has closed the pipe.

mod figure;
mod progress;
mod table;

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

pub(crate) use figure::*;
pub(crate) use progress::{Progress, set_quiet};
pub(crate) use table::{Column, Table};

/// Returns a buffered stdout. Call `flush` at the end: when the writer is dropped, errors are ignored.
pub(crate) fn stdout() -> Stdout {
    Stdout(BufWriter::new(io::stdout().lock()))
}

/// Writes `value` to stdout as one indented JSON document.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    let mut out = stdout();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Writes `value` to stdout as one line of JSON and flushes stdout, for a program that waits for the line.
pub(crate) fn print_json_line(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(value)?;
    let mut out = stdout();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Returns true if the cause of `error` is a closed stdout: the reader of the pipe has closed it.
pub(crate) fn is_stdout_closed(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| {
            error
                .get_ref()
                .is_some_and(|inner| inner.is::<StdoutClosed>())
        })
}

/// Stdout. Its errors distinguish a closed stdout from other broken pipes, for example of a socket.
#[derive(Debug)]
pub(crate) struct Stdout(BufWriter<StdoutLock<'static>>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(mark_stdout_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark_stdout_closed)
    }
}

fn mark_stdout_closed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        io::Error::new(io::ErrorKind::BrokenPipe, StdoutClosed)
    } else {
        error
    }
}

/// The error inside the `io::Error` of a write to a stdout that its reader has closed.
#[derive(Debug)]
struct StdoutClosed;

impl fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stdout is closed")
    }
}

impl std::error::Error for StdoutClosed {}
