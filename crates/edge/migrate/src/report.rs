//! The report of a translation: one entry for each directive of the input.

use std::fmt::{self, Write as _};

use serde::Serialize;

use crate::source::Position;

/// The result of the translation of one directive. A later variant is more severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The edge behaves so without a setting, or the directive has no meaning for it.
    Implied,
    /// Settings of the result have the same effect.
    Translated,
    /// Settings of the result have a similar effect. The text of the entry has the difference.
    Differs,
    /// The result does not have the effect. The text of the entry says what to do.
    LeftOut,
}

/// The part of the behaviour that a directive changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Logs, limits of resources, and fields that inform.
    Operation,
    /// The status, body or location of a response, or the server that answers.
    Response,
    /// The responses that are stored, for how long and under which key.
    Caching,
    /// The clients that may send a request.
    Access,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operation => "operation",
            Self::Response => "response",
            Self::Caching => "caching",
            Self::Access => "access",
        })
    }
}

/// The translation of one directive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The line of the directive.
    #[serde(flatten)]
    pub at: Position,
    /// The directive as text, cut after some words.
    pub directive: String,
    /// The result.
    pub outcome: Outcome,
    /// The part of the behaviour that the directive changes.
    pub effect: Effect,
    /// The settings, the difference, or what to do.
    pub text: String,
}

impl Entry {
    /// Returns true if the directive was left out and changes caching, access or responses.
    pub fn is_loss(&self) -> bool {
        self.outcome == Outcome::LeftOut && self.effect != Effect::Operation
    }
}

/// The entries of all directives, in the order of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The entries.
    pub entries: Vec<Entry>,
}

impl Report {
    /// Returns the entries of directives that were left out and change caching, access or responses.
    pub fn losses(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_loss())
    }

    /// Returns the number of entries with an outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        let has_outcome = |entry: &&Entry| entry.outcome == outcome;
        self.entries.iter().filter(has_outcome).count()
    }

    /// Returns the report as text: what was left out first, then the differences, then the numbers of the others.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let losses: Vec<_> = self.losses().collect();
        section(
            &mut text,
            "Left out, and changes caching, access or responses:",
            &losses,
        );
        let rest: Vec<_> = self
            .entries
            .iter()
            .filter(|entry| entry.outcome == Outcome::LeftOut && !entry.is_loss())
            .collect();
        section(&mut text, "Left out, without such an effect:", &rest);
        let differing: Vec<_> = self
            .entries
            .iter()
            .filter(|entry| entry.outcome == Outcome::Differs)
            .collect();
        section(&mut text, "Translated with a difference:", &differing);
        _ = writeln!(
            text,
            "{} directives: {} translated, {} with a difference, {} not needed, {} left out, of which {} change \
             caching, access or responses.",
            self.entries.len(),
            self.count(Outcome::Translated),
            differing.len(),
            self.count(Outcome::Implied),
            self.count(Outcome::LeftOut),
            losses.len(),
        );
        text
    }
}

/// The result of a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// The configuration of the edge, in TOML.
    pub toml: String,
    /// The outcome of each directive.
    pub report: Report,
}

fn section(text: &mut String, title: &str, entries: &[&Entry]) {
    if entries.is_empty() {
        return;
    }
    _ = writeln!(text, "{title}");
    for entry in entries {
        _ = writeln!(
            text,
            "  {}: {} ({})\n      {}",
            entry.at, entry.directive, entry.effect, entry.text
        );
    }
    text.push('\n');
}
