//! Reads ids from a file or stdin: text with one id per line, or CSV with a heading. Compressed files and UTF-16 are
//! decoded.
//!
//! A source passes its ids on one by one and does not store them. The crate `edgeward-idsync` reads databases.

mod csv;
mod encoding;
mod file;
mod lines;

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;

use crate::diagnostic::Diagnostic;
use crate::output::Progress;
use file::SourceFormat;
pub(super) use file::{FileSource, LineNumber};

/// Options of the source of ids.
#[derive(Args, Clone, Debug)]
pub(super) struct SourceArgs {
    /// Ids: text or .csv file, - for stdin, or database
    ///
    /// A text file has one id per line. The address of a database begins with postgres://, sqlite:// or cassandra://.
    #[arg(long, short, value_name = "SOURCE")]
    source: PathBuf,

    /// CSV column with the ids; the source, even stdin, is then read as CSV
    #[arg(long, value_name = "NAME")]
    column: Option<String>,

    /// Maximum length of an id or CSV line, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = LINE_BYTES_MAX, hide_short_help = true)]
    line_bytes_max: usize,
}

/// The default maximum length of a line, in bytes: longer than any real id, and small enough to buffer.
const LINE_BYTES_MAX: usize = 1 << 20;

impl SourceArgs {
    /// Options with default limits, for a command that names its source in another flag.
    pub(super) fn new(source: PathBuf, column: Option<String>) -> Self {
        Self {
            source,
            column,
            line_bytes_max: LINE_BYTES_MAX,
        }
    }

    /// The address of the database, or `None` if the source is a file.
    pub(super) fn database(&self) -> Option<&str> {
        let text = self.source.to_str()?;
        edgeward_idsync::is_database(text).then_some(text)
    }

    /// Checks the options of a file of ids. Returns an error if the source is a database.
    pub(super) fn to_file_source(&self) -> anyhow::Result<FileSource> {
        if self.database().is_some() {
            let message = "this command needs a file of ids, and the source is a database";
            let hint = "build a filter from the database with `edgeward filter build`";
            return Err(Diagnostic::new(message).hint(hint).into());
        }
        let is_csv = self
            .source
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("csv"));
        let format = if is_csv || self.column.is_some() {
            SourceFormat::Csv {
                column: self.column.clone(),
            }
        } else {
            SourceFormat::Lines
        };
        Ok(FileSource {
            path: self.source.clone(),
            format,
            line_bytes_max: self.line_bytes_max,
        })
    }
}

impl FileSource {
    /// Passes every id to `each`, with its line number.
    pub(super) fn for_each(
        &self,
        mut each: impl FnMut(LineNumber, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (input, bytes): (Box<dyn Read + Send>, Option<u64>) = if self.path.as_os_str() == "-" {
            (Box::new(io::stdin()), None)
        } else {
            let file = File::open(&self.path)
                .map_err(|error| Diagnostic::unreadable(&self.path, "cannot open", &error))?;
            let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file);
            (Box::new(file), metadata.map(|metadata| metadata.len()))
        };
        let bytes_read = Arc::new(AtomicU64::new(0));
        let reader = CountingReader {
            input,
            bytes_read: Arc::clone(&bytes_read),
        };
        let progress = Progress::new("reading ids", "bytes", bytes);
        let mut ids = 0u64;
        let mut count_and_pass = |line: LineNumber, id: &[u8]| {
            ids += 1;
            if ids.is_multiple_of(1 << 14) {
                progress.set(bytes_read.load(Ordering::Relaxed));
            }
            each(line, id)
        };
        let input = encoding::decoded(self, Box::new(reader))?;
        match &self.format {
            SourceFormat::Lines => lines::read(self, input, &mut count_and_pass),
            SourceFormat::Csv { column } => {
                csv::read(self, input, column.as_deref(), &mut count_and_pass)
            }
        }
    }
}

/// A reader that counts the bytes that were read from it.
struct CountingReader {
    input: Box<dyn Read + Send>,
    bytes_read: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(out)?;
        self.bytes_read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
