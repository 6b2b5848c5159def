//! `--to-parquet`: writes the requests as Parquet files for SQL engines.

use std::path::Path;
use std::process::ExitCode;

use edgeward_logs::{Settings, Source};

use crate::diagnostic::Diagnostic;

#[cfg(not(feature = "parquet"))]
pub(super) fn write(
    _sources: &[Source],
    _settings: &Settings,
    _folder: &Path,
    _advance: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<ExitCode> {
    Err(Diagnostic::no_parquet().into())
}

/// Writes the requests of all sources to `folder`. Calls `advance` with the number of bytes read since its last call.
#[cfg(feature = "parquet")]
pub(super) fn write(
    sources: &[Source],
    settings: &Settings,
    folder: &Path,
    advance: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<ExitCode> {
    use edgeward_logs::ToParquetError;

    let diagnostic_of = |error: &ToParquetError| {
        let cause = std::error::Error::source(error);
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let diagnostic = Diagnostic::new(format!("{error}{cause}"));
        match error {
            ToParquetError::NotEmpty { .. } => diagnostic.hint("give a new folder"),
            // Few days are open at a time. A request of a closed day opens another file for its day.
            ToParquetError::TooManyFiles => {
                diagnostic.hint(
                    "each day has files of its own: sort the logs by time, or remove logs with wrong times",
                )
            }
            _ => diagnostic,
        }
    };
    let written = edgeward_logs::to_parquet(sources, settings, folder, advance);
    let written = written.map_err(|error| diagnostic_of(&error))?;
    let incomplete = match &written.write_error {
        Some(error) => Some(diagnostic_of(error)),
        None => super::diagnostics::incomplete(&written.files, None),
    };
    if incomplete.is_some() {
        // The file shows later users of the folder that its data are incomplete.
        let path = folder.join("INCOMPLETE");
        let unwritten =
            |error| Diagnostic::new(format!("cannot write {}: {error}", path.display()));
        std::fs::write(&path, "Not all logs were read completely.\n").map_err(unwritten)?;
    }
    eprintln!(
        "{}: {} requests in {} files",
        folder.display(),
        crate::output::count(written.rows),
        crate::output::count(written.parquet_files)
    );
    super::document::warn_about(&written.files);
    incomplete.map_or(Ok(ExitCode::SUCCESS), |diagnostic| Err(diagnostic.into()))
}
