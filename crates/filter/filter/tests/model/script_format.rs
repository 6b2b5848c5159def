//! The names of outcomes and answers in the scripts that clients in all languages run
//! (`vectors/filter/scripts.json`).

use edgeward_filter::client::{Answer, Reason, UpdateError};

/// Returns the outcome of a step: `taken`, or the reason for which the client refused the input.
pub(crate) fn outcome(result: &Result<(), UpdateError>) -> &'static str {
    let Err(error) = result else {
        return "taken";
    };
    match error {
        UpdateError::Manifest(_) => "unbelievable",
        UpdateError::Snapshot(_) | UpdateError::Delta(_) => "broken",
        UpdateError::OtherSet { .. } => "other-set",
        UpdateError::Replayed { .. } => "replayed",
        UpdateError::Decreased { .. } => "falling",
        UpdateError::UnknownChallenge => "not-asked",
        UpdateError::Unlisted => "unlisted",
        UpdateError::MissingEarlierIds => "early",
        UpdateError::Older => "older",
        UpdateError::Contradiction => "contradiction",
        UpdateError::SnapshotTooLarge { .. } => "too-large",
        UpdateError::OverlayFull { .. } => "overlay-full",
        other => panic!("the scripts have no name for the error {other:?}"),
    }
}

/// Returns the letter of an answer.
pub(crate) fn letter(answer: Answer) -> char {
    match answer {
        Answer::Absent => 'a',
        Answer::Maybe => 'm',
        Answer::Ask(Reason::NoFilter) => 'n',
        Answer::Ask(Reason::Stale) => 's',
        // A client that gets the hash of an id does not see its text.
        Answer::Ask(Reason::NotAnId) => panic!("the scripts have no text that is no id"),
    }
}
