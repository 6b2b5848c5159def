//! `--to-parquet`: writes the requests as Parquet files for SQL engines.

use std::path::Path;
use std::process::ExitCode;

use edgeward_logs::{Settings, Source};

use crate::complaint::Complaint;

#[cfg(not(feature = "parquet"))]
pub(super) fn write(
    _sources: &[Source],
    _settings: &Settings,
    _folder: &Path,
    _advance: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<ExitCode> {
    Err(
        Complaint::new("this build of edgeward does not write Parquet")
            .hint("build it with `cargo build --release --package edgeward-cli --features parquet`")
            .into(),
    )
}

#[cfg(feature = "parquet")]
pub(super) fn write(
    sources: &[Source],
    settings: &Settings,
    folder: &Path,
    advance: &(dyn Fn(u64) + Sync),
) -> anyhow::Result<ExitCode> {
    use edgeward_logs::ToParquetError;

    let complaint_of = |error: &ToParquetError| {
        let cause = std::error::Error::source(error);
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let complaint = Complaint::new(format!("{error}{cause}"));
        match error {
            ToParquetError::NotEmpty { .. } => complaint.hint("give a new folder"),
            ToParquetError::TooManyFiles => {
                complaint.hint("`edgeward analyze` shows the times in the logs")
            }
            _ => complaint,
        }
    };
    let written = edgeward_logs::to_parquet(sources, settings, folder, advance);
    let written = written.map_err(|error| complaint_of(&error))?;
    let incomplete = match &written.write_error {
        Some(error) => Some(complaint_of(error)),
        None => super::complaints::incomplete(&written.files, None),
    };
    if incomplete.is_some() {
        // Marks the folder for later users.
        let path = folder.join("INCOMPLETE");
        let unwritten = |error| Complaint::new(format!("cannot write {}: {error}", path.display()));
        std::fs::write(&path, "Not all logs were read completely.\n").map_err(unwritten)?;
    }
    eprintln!(
        "{}: {} requests in {} files",
        folder.display(),
        crate::output::count(written.rows),
        crate::output::count(written.parquet_files)
    );
    super::document::warn_of(&written.files);
    incomplete.map_or(Ok(ExitCode::SUCCESS), |complaint| Err(complaint.into()))
}
