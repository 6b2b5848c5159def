//! The outcome of each directive.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::report::{Effect, Entry, Outcome, Report};
use crate::source::Position;

/// A part of the input with a number, which is unique within a translation.
pub(crate) trait Numbered {
    /// Returns the number.
    fn id(&self) -> usize;
}

impl<N: Numbered> Numbered for &N {
    fn id(&self) -> usize {
        (**self).id()
    }
}

/// A directive or statement of the input with those in its block.
pub(crate) trait Node: Numbered + Sized {
    /// Returns the line of the node.
    fn at(&self) -> &Position;

    /// Returns the node as text for a message.
    fn text(&self) -> String;

    /// Returns the nodes of the block.
    fn children(&self) -> &[Self];
}

/// Records what became of each directive. A directive may be used several times, for example by each location that
/// inherits it; the most severe outcome counts.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    records: RefCell<BTreeMap<usize, Record>>,
}

/// The difference of an exception by a name.
pub(super) const LENIENT: &str = "the exception is for names as origins may read them: the edge also admits requests \
                                  with %-encoded names, with NAME[] and without a value. Let the origin check these \
                                  requests";

#[derive(Clone, Debug)]
struct Record {
    /// False if the directive was only found to be overridden. Any other record replaces it.
    is_used: bool,
    outcome: Outcome,
    effect: Effect,
    text: String,
}

impl Ledger {
    /// Records that settings have the effect of a directive.
    pub(super) fn translated(&self, directive: &impl Numbered, settings: &str) {
        self.record(directive, Outcome::Translated, Effect::Operation, settings);
    }

    /// Records that a directive needs no setting.
    pub(super) fn implied(&self, directive: &impl Numbered, text: &str) {
        self.record(directive, Outcome::Implied, Effect::Operation, text);
    }

    /// Records a difference.
    pub(super) fn differs(&self, directive: &impl Numbered, effect: Effect, text: &str) {
        self.record(directive, Outcome::Differs, effect, text);
    }

    /// Records that a directive was left out, and what to do.
    pub(super) fn left_out(&self, directive: &impl Numbered, effect: Effect, text: &str) {
        self.record(directive, Outcome::LeftOut, effect, text);
    }

    /// Records that denials and redirects have exceptions for names of parameters, by their lines.
    pub(super) fn lenient<N: Node>(&self, tree: &[N], answers: &[Position]) {
        for answer in answers {
            let mut rest: Vec<&N> = tree.iter().rev().collect();
            let mut found = None;
            while let Some(node) = rest.pop() {
                rest.extend(node.children().iter().rev());
                if node.at() == answer && node.children().is_empty() {
                    found = Some(node);
                }
            }
            if let Some(node) = found {
                self.left_out(node, Effect::Access, LENIENT);
            }
        }
    }

    /// Records that other directives override this one for all uses so far.
    pub(super) fn overridden(&self, directive: &impl Numbered) {
        let text = "overridden by the same directive of an inner block".to_owned();
        self.records
            .borrow_mut()
            .entry(directive.id())
            .or_insert(Record {
                is_used: false,
                outcome: Outcome::Implied,
                effect: Effect::Operation,
                text,
            });
    }

    /// Records an outcome for all directives of a block that have none.
    pub(super) fn rest_of_block<N: Node>(
        &self,
        block: &[N],
        outcome: Outcome,
        effect: Effect,
        text: &str,
    ) {
        for directive in block {
            if !self.has(directive) {
                self.record(directive, outcome, effect, text);
            }
            self.rest_of_block(directive.children(), outcome, effect, text);
        }
    }

    /// Returns true if a directive has an outcome.
    pub(super) fn has(&self, directive: &impl Numbered) -> bool {
        self.records.borrow().contains_key(&directive.id())
    }

    /// Returns true if a directive was left out, or has no outcome yet.
    pub(super) fn is_left_out(&self, directive: &impl Numbered) -> bool {
        let records = self.records.borrow();
        let record = records.get(&directive.id());
        record.is_none_or(|record| record.outcome == Outcome::LeftOut)
    }

    fn record(&self, directive: &impl Numbered, outcome: Outcome, effect: Effect, text: &str) {
        let record = Record {
            is_used: true,
            outcome,
            effect,
            text: text.to_owned(),
        };
        let mut records = self.records.borrow_mut();
        match records.get(&directive.id()) {
            Some(old) if old.is_used && (old.outcome, old.effect) >= (outcome, effect) => {}
            _ => _ = records.insert(directive.id(), record),
        }
    }

    /// Returns the report. `otherwise` returns the outcome of a directive without a record.
    pub(super) fn report<N: Node>(
        self,
        tree: &[N],
        otherwise: impl Fn(&N) -> (Outcome, Effect, String),
    ) -> Report {
        let records = self.records.into_inner();
        let mut report = Report::default();
        let mut rest: Vec<&N> = tree.iter().rev().collect();
        while let Some(directive) = rest.pop() {
            rest.extend(directive.children().iter().rev());
            let (outcome, effect, text) = match records.get(&directive.id()) {
                Some(record) => (record.outcome, record.effect, record.text.clone()),
                None => otherwise(directive),
            };
            report.entries.push(Entry {
                at: directive.at().clone(),
                directive: directive.text(),
                outcome,
                effect,
                text,
            });
        }
        report
    }
}
