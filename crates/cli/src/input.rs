//! The traces given on the command line: files that are read one after the other; `-` is stdin.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;

use edgeward_trace::{
    Columns, Compression, Format, OnError, Position, QueryRule, ReadError, ReadOptions, Record,
    Skipped, TimeUnit,
};

use crate::diagnostic::Diagnostic;
use crate::output::{self, Progress};

/// Which traces to read, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct TraceInputArgs {
    /// Traces of any known format, read as one; - for stdin
    #[arg(required = true, value_name = "TRACE")]
    files: Vec<PathBuf>,

    /// Format of the traces if it is not detected: text, csv, oracle-general, lcs, lrb, ncsa, json
    #[arg(long, value_name = "FORMAT", hide_short_help = true)]
    format: Option<Format>,

    /// Names of the CSV columns, as in time=ts,key=url,size=bytes
    ///
    /// `count` is the column of the number of requests that a line stands for; time=none means that the trace has no
    /// times. `simulate` also reads lifetimes in seconds: ttl=max_age.
    #[arg(long, value_name = "NAMES", hide_short_help = true)]
    columns: Option<Columns>,

    /// Unit of numeric times: s, ms, us, ns
    #[arg(long, value_name = "UNIT", default_value = "s", hide_short_help = true)]
    time_unit: TimeUnit,

    /// Methods of an access log that count as requests
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "GET",
        hide_short_help = true
    )]
    methods: Vec<String>,

    /// Status codes of an access log that count as requests
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "200",
        hide_short_help = true
    )]
    statuses: Vec<u16>,

    /// Remove the query from the keys of an access log
    #[arg(long, hide_short_help = true)]
    cut_query: bool,

    /// Skip and count malformed lines, instead of stopping at the first
    #[arg(long, hide_short_help = true)]
    skip_malformed: bool,

    #[command(flatten)]
    limits: LimitArgs,

    /// Read only the first N requests
    #[arg(long = "requests", value_name = "N")]
    requests_max: Option<u64>,
}

/// Limits of the memory that reading a file may take.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct LimitArgs {
    /// Maximum length of a line, in bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1 << 20,
        hide_short_help = true
    )]
    pub(crate) line_bytes_max: usize,

    /// Maximum window of a zstd file: 2 to this power, in bytes
    #[arg(
        long,
        value_name = "LOG2",
        default_value_t = 27,
        value_parser = clap::value_parser!(u32).range(10..=31),
        hide_short_help = true
    )]
    pub(crate) zstd_window_log: u32,
}

impl TraceInputArgs {
    /// Checks the arguments. Returns an error if stdin is given twice, or if a column of lifetimes is given, which
    /// only a simulation uses.
    pub(crate) fn inputs(&self) -> anyhow::Result<Inputs> {
        let inputs = self.inputs_with_ttls()?;
        if inputs.have_ttls() {
            return Err(
                Diagnostic::new("only `simulate` reads a column of lifetimes")
                    .hint("remove ttl from --columns")
                    .into(),
            );
        }
        Ok(inputs)
    }

    /// Returns true if a column of lifetimes is given.
    pub(crate) fn have_ttls(&self) -> bool {
        let columns = self.columns.as_ref();
        columns.is_some_and(|columns| columns.ttl.is_some())
    }

    /// Checks the arguments of a command that uses lifetimes. Returns an error if stdin is given twice.
    pub(crate) fn inputs_with_ttls(&self) -> anyhow::Result<Inputs> {
        let stdin = self.files.iter().filter(|file| file.as_os_str() == "-");
        if stdin.count() > 1 {
            return Err(Diagnostic::new("stdin is given twice")
                .hint("give `-` once")
                .into());
        }
        Ok(Inputs(self.clone()))
    }
}

/// The checked traces of a command line.
#[derive(Clone, Debug)]
pub(crate) struct Inputs(TraceInputArgs);

impl Inputs {
    /// Returns traces that are read with the default options. Malformed lines are skipped and counted.
    pub(crate) fn of_traces(files: Vec<PathBuf>, requests_max: Option<u64>) -> Self {
        Self(TraceInputArgs {
            files,
            format: None,
            columns: None,
            time_unit: TimeUnit::default(),
            methods: vec!["GET".to_owned()],
            statuses: vec![200],
            cut_query: false,
            skip_malformed: true,
            limits: LimitArgs {
                line_bytes_max: 1 << 20,
                zstd_window_log: 27,
            },
            requests_max,
        })
    }

    /// A short name of the traces, for headings.
    pub(crate) fn label(&self) -> String {
        match &self.0.files[..] {
            [file] if file.as_os_str() == "-" => "stdin".to_owned(),
            [file] => file.display().to_string(),
            files => format!("{} and {} more", files[0].display(), files.len() - 1),
        }
    }

    /// Returns true if the requests have lifetimes.
    pub(crate) fn have_ttls(&self) -> bool {
        self.0.have_ttls()
    }

    /// The number of requests after which reading stops, if it is limited.
    pub(crate) fn requests_max(&self) -> Option<u64> {
        self.0.requests_max
    }

    /// Returns true if stdin is one of the traces, so that the traces cannot be read a second time.
    pub(crate) fn contains_stdin(&self) -> bool {
        self.0.files.iter().any(|file| file.as_os_str() == "-")
    }

    /// The files as given on the command line; stdin is `-`.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.0.files
    }

    /// The total size of all files in bytes, or `None` if one of them is not a regular file.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.0.files.iter().try_fold(0, |sum, file| {
            let metadata = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
            Some(sum + metadata.len())
        })
    }

    /// Passes all records to `each`, in order and in batches. Then writes a warning to stderr if lines were skipped.
    pub(crate) fn for_each_batch(&self, mut each: impl FnMut(Batch<'_>)) -> anyhow::Result<()> {
        let result = self.read_batches(|batch| {
            each(batch);
            Ok(())
        })?;
        if let Some(error) = result.error {
            return Err(error);
        }
        for file in &result.files {
            warn_about_skipped(&file.label, &file.skipped);
        }
        Ok(())
    }

    /// Passes all records to `each` as they are read, reports the bytes read to `progress`, and returns the
    /// format and the skipped lines of each file.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be opened, if the first file is not a trace, or if `each` fails. All other errors end the
    /// reading and are in [`ReadResult::error`], beside the results so far.
    pub(crate) fn read(
        &self,
        progress: Option<&Progress>,
        mut each: impl FnMut(&[Record]) -> anyhow::Result<()>,
    ) -> anyhow::Result<ReadResult> {
        self.read_batches(|batch| {
            each(batch.records)?;
            if let Some(progress) = progress {
                progress.set(batch.bytes_read);
            }
            Ok(())
        })
    }

    /// Passes all records to `each` as they are read.
    fn read_batches(
        &self,
        mut each: impl FnMut(Batch<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<ReadResult> {
        let bytes_read = Arc::new(AtomicU64::new(0));
        let mut remaining = self.0.requests_max.unwrap_or(u64::MAX);
        let mut result = ReadResult {
            files: Vec::new(),
            error: None,
        };
        for file in &self.0.files {
            let (label, input) = open_file(file)?;
            let input = CountingReader {
                input,
                bytes_read: Arc::clone(&bytes_read),
            };
            let mut reader = match edgeward_trace::open(input, self.options(&label)) {
                Ok(reader) => reader,
                Err(error) if result.files.is_empty() => return Err(diagnostic_of(error)),
                Err(error) => {
                    result.error = Some(diagnostic_of(error));
                    return Ok(result);
                }
            };
            while remaining > 0 {
                let edgeward_trace::Batch { records, ttls } = match reader.next_batch_with_ttls() {
                    Ok(Some(batch)) => batch,
                    Ok(None) => break,
                    Err(error) => {
                        result.error = Some(diagnostic_of(error));
                        break;
                    }
                };
                let take =
                    usize::try_from(remaining).map_or(records.len(), |n| records.len().min(n));
                remaining -= take as u64;
                each(Batch {
                    records: &records[..take],
                    ttls: ttls.get(..take).unwrap_or_default(),
                    bytes_read: bytes_read.load(Ordering::Relaxed),
                })?;
            }
            result.files.push(FileRead {
                label,
                format: reader.format(),
                compression: reader.compression(),
                has_times: reader.has_times(),
                ignored_lines: reader.ignored_lines(),
                skipped: reader.skipped().clone(),
            });
            if result.error.is_some() {
                break;
            }
        }
        Ok(result)
    }

    fn options(&self, label: &str) -> ReadOptions {
        let args = &self.0;
        let mut options = ReadOptions::named(label);
        options.format = args.format;
        options.columns = args.columns.clone().unwrap_or_default();
        options.time_unit = args.time_unit;
        options.access_log.methods.clone_from(&args.methods);
        options.access_log.statuses.clone_from(&args.statuses);
        if args.cut_query {
            options.access_log.query = QueryRule::Cut;
        }
        if args.skip_malformed {
            options.on_error = OnError::Skip;
        }
        options.limits.line_bytes_max = args.limits.line_bytes_max;
        options.limits.zstd_window_log_max = args.limits.zstd_window_log;
        options
    }
}

/// Records in the order of the trace.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    pub(crate) records: &'a [Record],
    /// The lifetimes of the objects in seconds; empty without a column of lifetimes.
    pub(crate) ttls: &'a [u32],
    /// The number of bytes of the files that were read so far.
    pub(crate) bytes_read: u64,
}

/// The result of reading the traces.
pub(crate) struct ReadResult {
    /// The files that were opened, in order.
    pub(crate) files: Vec<FileRead>,
    /// The error that stopped reading, if any. All records before it were passed on.
    pub(crate) error: Option<anyhow::Error>,
}

/// The format of one file, and the lines that were skipped.
pub(crate) struct FileRead {
    /// The path of the file, or `stdin`.
    pub(crate) label: String,
    pub(crate) format: Format,
    pub(crate) compression: Compression,
    /// False if the trace has no times.
    pub(crate) has_times: bool,
    /// The number of blank lines, comments, and lines of an access log that do not count as requests: those with
    /// another method or status than `--methods` and `--statuses` list, or without body bytes.
    pub(crate) ignored_lines: u64,
    /// The malformed lines that were skipped because of `--skip-malformed`.
    pub(crate) skipped: Skipped,
}

/// A reader that counts the bytes it reads.
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

fn open_file(file: &Path) -> anyhow::Result<(String, Box<dyn Read + Send>)> {
    if file.as_os_str() == "-" {
        return Ok(("stdin".to_owned(), Box::new(io::stdin())));
    }
    let label = file.display().to_string();
    let opened =
        File::open(file).map_err(|error| Diagnostic::unreadable(file, "cannot open", &error))?;
    Ok((label, Box::new(opened)))
}

/// Converts a reader's error to an error for the user. The message ends with the cause.
fn diagnostic_of(error: ReadError) -> anyhow::Error {
    let mut message = error.problem().to_string();
    if let Some(cause) = std::error::Error::source(&error) {
        message = format!("{message}: {cause}");
    }
    let mut diagnostic = Diagnostic::new(message);
    diagnostic = match error.position() {
        Position::Whole => diagnostic.in_file(error.label()),
        Position::Line { number, .. } => diagnostic
            .in_file(error.label())
            .at_line(usize::try_from(number).unwrap_or(usize::MAX)),
        Position::Byte(byte) => diagnostic.in_file(format!("{}, byte {byte}", error.label())),
    };
    if let Some(hint) = error.hint() {
        diagnostic = diagnostic.hint(hint);
    }
    diagnostic.into()
}

/// Warns on stderr that malformed lines were skipped.
pub(crate) fn warn_about_skipped(label: &str, skipped: &Skipped) {
    if skipped.lines == 0 {
        return;
    }
    eprintln!(
        "warning: {} malformed lines of {label} skipped, for example",
        output::count(skipped.lines)
    );
    for example in &skipped.examples {
        eprintln!("  {example}");
    }
}
