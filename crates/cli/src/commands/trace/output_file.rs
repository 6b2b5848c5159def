//! The output of a trace: file, format and compression.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};

use edgeward_trace::{Compression, OutputFormat, Record, WriteOptions, Writer};

use crate::diagnostic::Diagnostic;
use crate::output;

/// Options of the output.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    /// Format [default by file name: .csv, .lrb, .oracleGeneral, .log, else text]
    #[arg(long, value_name = "FORMAT")]
    to: Option<FormatChoice>,

    /// Compression [default by file name: .zst, .gz or .bz2, else none]
    #[arg(long, value_name = "KIND", hide_short_help = true)]
    compress: Option<CompressionChoice>,

    /// Maximum number of requests in an oracle-general trace; each takes 24 bytes of memory
    #[arg(
        long,
        value_name = "N",
        default_value_t = WriteOptions::new(OutputFormat::OracleGeneral).oracle_records_max,
        hide_short_help = true
    )]
    oracle_records_max: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatChoice {
    /// Lines of `time key size`
    Text,
    /// CSV with the header `time,key,size`
    Csv,
    /// oracleGeneral of libCacheSim, with the next access of each object
    #[value(alias = "oracleGeneral")]
    OracleGeneral,
    /// Lines of `time id size` for the LRB simulator
    Lrb,
    /// NCSA combined, with synthetic clients
    Combined,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CompressionChoice {
    None,
    Gzip,
    Zstd,
    Bzip2,
}

/// A trace that is being written to a file or stdout.
pub(super) struct TraceOutput {
    writer: Writer<Box<dyn Write>>,
    label: String,
}

impl OutputArgs {
    /// Creates the output at `path`; `-` is stdout.
    pub(super) fn create(&self, path: &Path) -> anyhow::Result<TraceOutput> {
        let (label, file): (String, Box<dyn Write>) = if path.as_os_str() == "-" {
            ("stdout".to_owned(), Box::new(output::stdout()))
        } else {
            let label = path.display().to_string();
            let file = File::create(path).with_context(|| format!("cannot create {label}"))?;
            (label, Box::new(BufWriter::with_capacity(1 << 20, file)))
        };
        let writer = Writer::new(file, self.options(path))
            .with_context(|| format!("cannot write {label}"))?;
        Ok(TraceOutput { writer, label })
    }

    fn options(&self, path: &Path) -> WriteOptions {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut options = WriteOptions::for_file_name(&name);
        options.oracle_records_max = self.oracle_records_max;
        if let Some(choice) = self.to {
            options.format = match choice {
                FormatChoice::Text => OutputFormat::Text,
                FormatChoice::Csv => OutputFormat::Csv,
                FormatChoice::OracleGeneral => OutputFormat::OracleGeneral,
                FormatChoice::Lrb => OutputFormat::Lrb,
                FormatChoice::Combined => OutputFormat::Combined,
            };
        }
        if let Some(choice) = self.compress {
            options.compression = match choice {
                CompressionChoice::None => Compression::None,
                CompressionChoice::Gzip => Compression::Gzip,
                CompressionChoice::Zstd => Compression::Zstd,
                CompressionChoice::Bzip2 => Compression::Bzip2,
            };
        }
        options
    }
}

impl TraceOutput {
    pub(super) fn write(&mut self, record: &Record) -> anyhow::Result<()> {
        self.writer
            .write(record)
            .with_context(|| format!("cannot write {}", self.label))
    }

    /// Flushes the output and returns the number of records.
    pub(super) fn finish(self) -> anyhow::Result<u64> {
        let records = self.writer.records();
        let context = || format!("cannot write {}", self.label);
        let mut file = self.writer.finish().with_context(context)?;
        file.flush().with_context(context)?;
        Ok(records)
    }
}

/// Returns an error if the output is one of the inputs: creating the output would erase this input before it is read.
pub(super) fn refuse_overwriting(inputs: &[PathBuf], path: &Path) -> anyhow::Result<()> {
    let canonical_path = |path: &Path| -> io::Result<PathBuf> { path.canonicalize() };
    let Ok(target) = canonical_path(path) else {
        // The output does not exist yet, or is stdout.
        return Ok(());
    };
    let is_input = inputs
        .iter()
        .any(|input| canonical_path(input).is_ok_and(|input| input == target));
    if is_input && target.is_file() {
        return Err(Diagnostic::new("the output is one of the inputs")
            .in_file(path)
            .hint("write to another file and rename it")
            .into());
    }
    Ok(())
}
