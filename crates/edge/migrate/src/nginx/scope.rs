//! Inheritance: the directives that apply in a block.

use super::parse::Directive;
use crate::ledger::Ledger;

/// The blocks around a position, the innermost last.
///
/// nginx inherits a directive from the nearest block that has it; all directives of that name in this block apply, and
/// none of an outer block. This holds for directives with one value and for lists such as `add_header` alike.
#[derive(Clone, Debug)]
pub(super) struct Scope<'t> {
    levels: Vec<&'t [Directive]>,
}

impl<'t> Scope<'t> {
    pub(super) fn new(level: &'t [Directive]) -> Self {
        Self {
            levels: vec![level],
        }
    }

    /// Returns the scope of a block in this scope.
    pub(super) fn within(&self, block: &'t [Directive]) -> Self {
        let mut levels = self.levels.clone();
        levels.push(block);
        Self { levels }
    }

    /// Returns the directives of the innermost block.
    pub(super) fn here(&self) -> &'t [Directive] {
        self.levels.last().copied().unwrap_or_default()
    }

    /// Returns all blocks, the outermost first.
    pub(super) fn levels(&self) -> &[&'t [Directive]] {
        &self.levels
    }

    /// Returns the directives that apply, by a list of names that inherit together, such as `allow` and `deny`.
    pub(super) fn nearest(&self, names: &[&str], ledger: &Ledger) -> Vec<&'t Directive> {
        let mut found: Vec<&'t Directive> = Vec::new();
        for level in self.levels.iter().rev() {
            let matching = level.iter().filter(|d| names.contains(&d.name.as_str()));
            if found.is_empty() {
                found.extend(matching);
            } else {
                matching.for_each(|directive| ledger.overridden(directive));
            }
        }
        found
    }

    /// Returns the directive that applies.
    pub(super) fn one(&self, name: &str, ledger: &Ledger) -> Option<&'t Directive> {
        self.nearest(&[name], ledger).first().copied()
    }
}
