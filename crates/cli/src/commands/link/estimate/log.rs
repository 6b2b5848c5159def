//! The estimate for access logs: counts the bytes of repeated responses.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use edgeward_analysis::{FieldNames, QueryRule};
use edgeward_logs::{Depth, Settings};
use edgeward_types::ByteSize;

use crate::diagnostic::Diagnostic;

use super::document::{Estimate, LogRow};

impl Estimate {
    /// Counts the bytes of a log by URL. The first response for each URL counts as new, further responses as
    /// repeated. Data that exceeds the memory is written to a temporary file of at most `temp_max` bytes.
    pub(super) fn log(
        &mut self,
        path: &Path,
        temp_folder: PathBuf,
        temp_max: ByteSize,
    ) -> anyhow::Result<()> {
        let sources = edgeward_logs::find(&[PathBuf::from(path)])?;
        let settings = Settings {
            depth: Depth::Full,
            format: None,
            names: FieldNames::default(),
            query: QueryRule::Keep,
            fingerprints: Default::default(),
            checkpoint: None,
            threads: thread::available_parallelism().map_or(1, NonZeroUsize::get),
            memory: MEMORY,
            temp_folder,
            temp_max,
            line_bytes_max: 64 << 10,
            zstd_window_log_max: 27,
            top_max: 0,
        };
        let analysis = edgeward_logs::analyze(&sources, &settings, &|bytes| {
            self.progress.advance(bytes);
        })?;
        for file in &analysis.files {
            if let Some(problem) = &file.problem {
                self.problems.push(format!("{}: {problem}", file.label));
            }
        }
        if let Some(error) = &analysis.spill_error {
            return Err(Diagnostic::new(error.to_string())
                .hint("give more space with --temp and --store-size")
                .into());
        }
        if analysis.objects.requests() == 0 {
            return Err(Diagnostic::new("the log has no line with a request")
                .in_file(path)
                .hint("`--as files` reads it as a body; `edgeward analyze` shows what is wrong with a log")
                .into());
        }
        self.document.logs.push(LogRow {
            name: path.display().to_string(),
            requests: analysis.objects.requests(),
            urls: analysis.objects.urls(),
            bytes: analysis.tally.as_ref().map_or(0, |tally| tally.total.bytes),
            repeated_bytes: analysis.objects.repeated_bytes(),
        });
        Ok(())
    }
}

/// The memory for the tables of URLs. Data that exceeds it is written to a temporary file of at most `--store-size`.
const MEMORY: ByteSize = ByteSize::mib(512);
