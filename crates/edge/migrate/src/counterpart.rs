//! Rows about the constructs of another server: the counterpart of each at the edge. The tables of the documentation
//! are made from them.

use std::fmt::Write as _;

use crate::report::{Effect, Outcome};

/// The counterpart of a construct at the edge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counterpart {
    /// The translation writes settings. The effect counts if a use of the construct was not translated.
    Settings(Effect),
    /// No setting is needed.
    Implied,
    /// The edge has no counterpart.
    Missing(Effect),
}

/// A row: names of constructs, the counterpart, and a text in Markdown.
pub(crate) type Row = (&'static [&'static str], Counterpart, &'static str);

/// Returns the outcome, the effect and a text for a construct that no part of the translation has used. `row` is its
/// row, and `page` the page of the documentation with all rows.
pub(crate) fn unused(row: Option<&Row>, page: &str) -> (Outcome, Effect, String) {
    match row {
        Some((_, Counterpart::Implied, text)) => (Outcome::Implied, Effect::Operation, plain(text)),
        Some((_, Counterpart::Missing(effect), text)) => (Outcome::LeftOut, *effect, plain(text)),
        Some((_, Counterpart::Settings(effect), text)) => {
            let text = format!(
                "not used by a part of the input that was translated; {}",
                plain(text)
            );
            (Outcome::LeftOut, *effect, text)
        }
        None => {
            let text = format!("unknown to this translation; look for it in docs/how-to/{page}");
            (Outcome::LeftOut, Effect::Response, text)
        }
    }
}

/// Returns a text without the marks of Markdown.
pub(crate) fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// Returns the rows as a table in Markdown, with the name of the other server.
pub(crate) fn markdown(server: &str, rows: &[Row]) -> String {
    let mut text = format!("| {server} | edgeward |\n|---|---|\n");
    for (names, counterpart, edge) in rows {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let edge = match counterpart {
            Counterpart::Settings(_) | Counterpart::Implied => (*edge).to_owned(),
            Counterpart::Missing(_) => format!("**left out**: {edge}"),
        };
        _ = writeln!(text, "| {} | {edge} |", names.join(", "));
    }
    text
}
