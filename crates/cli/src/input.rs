//! Traces named on the command line: files one after the other, `-` for stdin.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use edgeward_trace::{
    AccessLogRules, Columns, Format, OnError, QueryRule, ReadOptions, Record, Skipped,
};

use crate::output;

/// Which traces to read, and how.
#[derive(Args, Clone, Debug)]
pub(crate) struct TraceArgs {
    /// Traces, read one after the other as one; - for stdin. Compression and format are recognised
    #[arg(required = true, value_name = "TRACE")]
    files: Vec<PathBuf>,

    /// The traces' format, where it is not recognised: text, csv, oracle-general, lrb, ncsa
    #[arg(long, value_name = "FORMAT", hide_short_help = true)]
    format: Option<Format>,

    /// Which CSV columns hold what, as in time=ts,key=url,size=bytes
    #[arg(long, value_name = "NAMES", hide_short_help = true)]
    columns: Option<Columns>,

    /// Leave the query out of an access log's keys
    #[arg(long, hide_short_help = true)]
    cut_query: bool,

    /// Leave malformed lines out and count them, instead of stopping at the first
    #[arg(long, hide_short_help = true)]
    skip_malformed: bool,

    /// Only the first so many requests
    #[arg(long = "requests", value_name = "N")]
    requests_max: Option<u64>,
}

impl TraceArgs {
    /// The checked form.
    pub(crate) fn inputs(&self) -> anyhow::Result<Inputs> {
        let stdin = self.files.iter().filter(|file| file.as_os_str() == "-");
        if stdin.count() > 1 {
            return Err(crate::complaint::Complaint::new("stdin is named twice")
                .hint("name `-` once")
                .into());
        }
        Ok(Inputs(self.clone()))
    }
}

/// Traces that can be read.
#[derive(Clone, Debug)]
pub(crate) struct Inputs(TraceArgs);

impl Inputs {
    /// What to call them in a heading.
    pub(crate) fn label(&self) -> String {
        match &self.0.files[..] {
            [file] if file.as_os_str() == "-" => "stdin".to_owned(),
            [file] => file.display().to_string(),
            files => format!("{} and {} more", files[0].display(), files.len() - 1),
        }
    }

    /// How many requests are read at the most.
    pub(crate) fn requests_max(&self) -> Option<u64> {
        self.0.requests_max
    }

    /// Whether a second reading would find nothing: stdin is among them.
    pub(crate) fn read_once(&self) -> bool {
        self.0.files.iter().any(|file| file.as_os_str() == "-")
    }

    /// Gives all records, in order and in batches, to `each`. Says how many lines were left out.
    pub(crate) fn for_each_batch(&self, mut each: impl FnMut(&mut [Record])) -> anyhow::Result<()> {
        let mut left = self.0.requests_max.unwrap_or(u64::MAX);
        let mut batch: Vec<Record> = Vec::with_capacity(BATCH_RECORDS);
        for file in &self.0.files {
            let (label, input): (String, Box<dyn Read + Send>) = if file.as_os_str() == "-" {
                ("stdin".to_owned(), Box::new(io::stdin()))
            } else {
                let label = file.display().to_string();
                let opened = File::open(file).with_context(|| format!("cannot open {label}"))?;
                (label, Box::new(opened))
            };
            let mut reader = edgeward_trace::open(input, self.options(&label))?;
            while left > 0 {
                let Some(records) = reader.next_batch()? else {
                    break;
                };
                let take = usize::try_from(left).map_or(records.len(), |n| records.len().min(n));
                left -= take as u64;
                batch.extend_from_slice(&records[..take]);
                if batch.len() >= BATCH_RECORDS {
                    each(&mut batch);
                    batch.clear();
                }
            }
            warn_of_skipped(&label, reader.skipped());
        }
        if !batch.is_empty() {
            each(&mut batch);
        }
        Ok(())
    }

    fn options(&self, label: &str) -> ReadOptions {
        let TraceArgs {
            format,
            columns,
            cut_query,
            skip_malformed,
            ..
        } = &self.0;
        let mut options = ReadOptions::named(label);
        options.format = *format;
        if let Some(columns) = columns {
            options.columns = columns.clone();
        }
        if *cut_query {
            options.access_log = AccessLogRules {
                query: QueryRule::Cut,
                ..options.access_log
            };
        }
        if *skip_malformed {
            options.on_error = OnError::Skip;
        }
        options
    }
}

fn warn_of_skipped(label: &str, skipped: &Skipped) {
    if skipped.lines == 0 {
        return;
    }
    eprintln!(
        "warning: {} malformed lines of {label} left out, such as",
        output::count(skipped.lines)
    );
    for example in &skipped.examples {
        eprintln!("  {example}");
    }
}

/// Enough records for threads to be worth waking: some milliseconds of simulation.
const BATCH_RECORDS: usize = 1 << 16;
