//! Errors of an analysis that has no result or an incomplete one.

use std::io;

use edgeward_logs::{
    AnalyzeError, CheckpointError, FileReport, FindError, PartialError, SpillError,
};

use crate::diagnostic::{Diagnostic, absolute};

/// Describes an error of the analysis itself, as opposed to an error in one log.
pub(super) fn analysis_error(error: AnalyzeError) -> Diagnostic {
    let hint = match &error {
        AnalyzeError::Partial(error) => partial_hint(error),
        AnalyzeError::Checkpoint(error) => checkpoint_hint(error),
        _ => None,
    };
    let cause = std::error::Error::source(&error);
    let message = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
    let diagnostic = Diagnostic::new(message);
    match hint {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    }
}

fn partial_hint(error: &PartialError) -> Option<&'static str> {
    match error {
        PartialError::NotPartialResult { .. } => Some(
            "`edgeward analyze LOG… --partial FILE` writes a partial result; analyze logs without `merge`",
        ),
        PartialError::Version { .. } => Some(
            "merge with the version of edgeward that wrote the file, or analyze the logs again",
        ),
        PartialError::Truncated { .. } | PartialError::Corrupt { .. } => {
            Some("copy the file again, or analyze the logs again")
        }
        PartialError::OptionsDiffer { .. } => Some("analyze all logs with the same options"),
        PartialError::Duplicate { .. } => Some("give each partial result once"),
        PartialError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("give a file that `edgeward analyze LOG… --partial FILE` wrote")
        }
        _ => None,
    }
}

fn checkpoint_hint(error: &CheckpointError) -> Option<&'static str> {
    match error {
        CheckpointError::OtherOptions { .. } | CheckpointError::OtherLogs { .. } => Some(
            "run the command with the same options and logs, or remove the checkpoint folder to start again",
        ),
        CheckpointError::Changed { .. } => Some(
            "the counts of the old log cannot be removed from the checkpoint: remove the checkpoint folder to start again",
        ),
        CheckpointError::Pipe { .. } => Some("remove --checkpoint, or write the logs to a file"),
        CheckpointError::Folder { .. } | CheckpointError::Busy { .. } => {
            Some("give another folder with --checkpoint")
        }
        _ => None,
    }
}

/// Describes why the logs that the arguments name could not be found.
pub(super) fn find_error(error: FindError) -> Diagnostic {
    let hint = match &error {
        FindError::StdinTwice => "give `-` once".to_owned(),
        FindError::EmptyFolder { .. } => {
            "hidden files are skipped; give their names to read them".to_owned()
        }
        FindError::TooMany => "analyze them in parts".to_owned(),
        FindError::Missing { path, source } if source.kind() == io::ErrorKind::NotFound => {
            format!("the full path is {}", absolute(path))
        }
        _ => return Diagnostic::from_error(&error),
    };
    Diagnostic::from_error(&error).hint(hint)
}

/// Describes why an analysis found no request. The cause is a log that could not be read, or else the first
/// malformed line, or else that the logs contain no requests.
pub(super) fn no_result(files: &[FileReport]) -> Diagnostic {
    if let Some(file) = files.iter().find(|file| file.problem.is_some()) {
        return diagnostic_about(file);
    }
    let malformed = files.iter().find(|file| file.malformed.lines > 0);
    if let Some(file) = malformed {
        let mut diagnostic =
            Diagnostic::new("no line of the log could be parsed").in_file(&file.label);
        if let Some((number, problem, _)) = file.malformed.examples.first() {
            diagnostic = diagnostic
                .at_line(usize::try_from(*number).unwrap_or(usize::MAX))
                .hint(problem.clone());
        }
        return diagnostic;
    }
    Diagnostic::new("the logs contain no requests")
}

fn diagnostic_about(file: &FileReport) -> Diagnostic {
    let problem = file.problem.as_ref().expect("the log has an error");
    let diagnostic = Diagnostic::new(problem.to_string()).in_file(&file.label);
    match problem.hint() {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    }
}

/// Describes why a result is incomplete, or returns `None` if it is complete.
pub(super) fn incomplete(
    files: &[FileReport],
    spill_error: Option<&SpillError>,
) -> Option<Diagnostic> {
    if let Some(error) = spill_error {
        let cause = std::error::Error::source(error);
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let message = format!("the result is incomplete: {error}{cause}");
        return Some(Diagnostic::new(message).hint(
            "give more space with --temp DIR and --temp-max SIZE, or analyze fewer logs at a time",
        ));
    }
    let incomplete_logs = files.iter().filter(|file| file.problem.is_some()).count();
    (incomplete_logs > 0).then(|| {
        Diagnostic::new(format!(
            "the result is incomplete: {incomplete_logs} of {} logs were not read completely",
            files.len()
        ))
    })
}
