//! Errors of an analysis that has no result or an incomplete one.

use std::io;

use edgeward_logs::{
    AnalyzeError, CheckpointError, FileReport, FindError, PartialError, SpillError,
};

use crate::complaint::{Complaint, whole};

/// Describes an error of the analysis itself, as opposed to an error in one log.
pub(super) fn of_analysis(error: AnalyzeError) -> Complaint {
    let hint = match &error {
        AnalyzeError::Partial(error) => partial_hint(error),
        AnalyzeError::Checkpoint(error) => checkpoint_hint(error),
        _ => None,
    };
    let cause = std::error::Error::source(&error);
    let message = cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"));
    let complaint = Complaint::new(message);
    match hint {
        Some(hint) => complaint.hint(hint),
        None => complaint,
    }
}

fn partial_hint(error: &PartialError) -> Option<&'static str> {
    match error {
        PartialError::NotOne { .. } => Some(
            "`edgeward analyze LOG… --partial FILE` writes a partial result; analyze logs without `merge`",
        ),
        PartialError::Version { .. } => {
            Some("merge with the version of edgeward that wrote it, or analyze the logs again")
        }
        PartialError::CutShort { .. } | PartialError::Damaged { .. } => {
            Some("copy it again, or analyze the logs again")
        }
        PartialError::Differs { .. } => Some("analyze all logs with the same options"),
        PartialError::Twice { .. } => Some("give each partial result once"),
        PartialError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Some("give a file that `edgeward analyze LOG… --partial FILE` wrote")
        }
        _ => None,
    }
}

fn checkpoint_hint(error: &CheckpointError) -> Option<&'static str> {
    match error {
        CheckpointError::Asked { .. } | CheckpointError::Stranger { .. } => {
            Some("run the command with the same options, or remove the folder to start again")
        }
        CheckpointError::Changed { .. } => Some(
            "its part of the counts cannot be removed: remove the checkpoint folder to start again",
        ),
        CheckpointError::Pipe { .. } => Some("remove --checkpoint, or write the logs to a file"),
        CheckpointError::Folder { .. } | CheckpointError::Busy { .. } => {
            Some("give another folder with --checkpoint")
        }
        _ => None,
    }
}

pub(super) fn complaint_of(error: FindError) -> Complaint {
    let hint = match &error {
        FindError::StdinTwice => "give `-` once".to_owned(),
        FindError::EmptyFolder { .. } => {
            "hidden files are skipped; give their names to read them".to_owned()
        }
        FindError::TooMany => "analyze them in parts".to_owned(),
        FindError::Missing { path, source } if source.kind() == io::ErrorKind::NotFound => {
            format!("the full path is {}", whole(path))
        }
        _ => return Complaint::of(&error),
    };
    Complaint::of(&error).hint(hint)
}

/// Describes why there is no result: the first error of a log.
pub(super) fn nothing_read(files: &[FileReport]) -> Complaint {
    if let Some(file) = files.iter().find(|file| file.problem.is_some()) {
        return complaint_about(file);
    }
    let malformed = files.iter().find(|file| file.malformed.lines > 0);
    if let Some(file) = malformed {
        let mut complaint =
            Complaint::new("no line of the log could be parsed").in_file(&file.label);
        if let Some((number, what, _)) = file.malformed.examples.first() {
            complaint = complaint
                .at_line(usize::try_from(*number).unwrap_or(usize::MAX))
                .hint(what.clone());
        }
        return complaint;
    }
    Complaint::new("the logs contain no requests")
}

fn complaint_about(file: &FileReport) -> Complaint {
    let problem = file.problem.as_ref().expect("it has one");
    let complaint = Complaint::new(problem.to_string()).in_file(&file.label);
    match problem.hint() {
        Some(hint) => complaint.hint(hint),
        None => complaint,
    }
}

/// Describes why a result is incomplete, or returns `None` if it is complete.
pub(super) fn incomplete(
    files: &[FileReport],
    spill_error: Option<&SpillError>,
) -> Option<Complaint> {
    if let Some(error) = spill_error {
        let cause = std::error::Error::source(error);
        let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
        let message = format!("the result is incomplete: {error}{cause}");
        return Some(Complaint::new(message).hint(
            "give more space with --temp DIR and --temp-max SIZE, or analyze fewer logs at a time",
        ));
    }
    let cut = files.iter().filter(|file| file.problem.is_some()).count();
    (cut > 0).then(|| {
        Complaint::new(format!(
            "the result is incomplete: {cut} of {} logs were not read completely",
            files.len()
        ))
    })
}
