//! What commands say: results to stdout, progress to stderr.
//!
//! Commands write through [`stdout`] rather than `println!`, because a reader that has seen
//! enough and closed the pipe is not an error, and `println!` would panic on it.

mod figure;
mod progress;
mod table;

use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use serde::Serialize;

pub(crate) use figure::*;
pub(crate) use progress::{Progress, set_quiet};
pub(crate) use table::{Column, Table};

/// Stdout, buffered; call `flush` at the end (or drop it where a lost error does not matter).
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

/// Writes `value` to stdout as one line of JSON, at once: for a program that waits for it.
pub(crate) fn print_json_line(value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string(value)?;
    let mut out = stdout();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Whether this error is only that the reader of our stdout went away.
pub(crate) fn stdout_closed(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.get_ref().is_some_and(|inner| inner.is::<Closed>()))
}

/// Stdout, with a closed pipe told apart from every other broken pipe (a socket's, say).
#[derive(Debug)]
pub(crate) struct Stdout(BufWriter<StdoutLock<'static>>);

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(mark_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark_closed)
    }
}

fn mark_closed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::BrokenPipe {
        io::Error::new(io::ErrorKind::BrokenPipe, Closed)
    } else {
        error
    }
}

/// The mark inside an `io::Error` that stdout's reader is gone.
#[derive(Debug)]
struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of stdout is gone")
    }
}

impl std::error::Error for Closed {}
