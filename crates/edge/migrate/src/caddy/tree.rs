//! The directives of a Caddyfile.

use crate::ledger;
use crate::source::Position;

/// A directive with its words and its block. Site blocks and matchers are directives, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive {
    /// The number of the directive, unique within a translation.
    pub(super) id: usize,
    /// The first word. For a site it is the first address, and empty for the block of global options.
    pub(super) name: String,
    /// The other words, without quotes.
    pub(super) args: Vec<String>,
    /// The line of the first word.
    pub(super) at: Position,
    /// The directives between the braces.
    pub(super) block: Option<Vec<Self>>,
}

/// The longest text of a directive in a message.
const TEXT_CHARS_MAX: usize = 80;

impl Directive {
    /// Returns a word after the name.
    pub(super) fn arg(&self, index: usize) -> &str {
        self.args.get(index).map_or("", String::as_str)
    }

    /// Returns the directives of the block.
    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Returns the matcher in front of the other words: `*`, a path or the name of a matcher.
    pub(super) fn matcher(&self) -> Option<&str> {
        let first = self.args.first()?;
        let is_matcher = first == "*" || first.starts_with(['/', '@']);
        is_matcher.then_some(first.as_str())
    }

    /// Returns the words behind the matcher.
    pub(super) fn words(&self) -> &[String] {
        &self.args[usize::from(self.matcher().is_some())..]
    }
}

impl ledger::Numbered for Directive {
    fn id(&self) -> usize {
        self.id
    }
}

impl ledger::Node for Directive {
    fn at(&self) -> &Position {
        &self.at
    }

    fn text(&self) -> String {
        let words = [&self.name].into_iter().chain(&self.args);
        let words: Vec<&str> = words
            .map(String::as_str)
            .filter(|word| !word.is_empty())
            .collect();
        let whole = words.join(" ");
        let plain = whole.chars().map(|c| if c.is_control() { ' ' } else { c });
        let mut text: String = plain.take(TEXT_CHARS_MAX).collect();
        if whole.chars().count() > TEXT_CHARS_MAX {
            text.push('…');
        }
        if self.block.is_some() {
            text.push_str(if text.is_empty() { "{…}" } else { " {…}" });
        }
        text
    }

    fn children(&self) -> &[Self] {
        self.inner()
    }
}

/// Visits all directives, those of blocks too.
pub(super) fn each<'t>(directives: &'t [Directive], visit: &mut dyn FnMut(&'t Directive)) {
    for directive in directives {
        visit(directive);
        each(directive.inner(), visit);
    }
}
