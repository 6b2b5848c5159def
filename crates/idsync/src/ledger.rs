//! What of a scan is done.
//!
//! A scan falls into spans: one for a query that is read in order, one for each range of tokens of a
//! ring. A span is read from its beginning, or from the position that was reached in it. What is
//! read twice does no harm, since a filter holds an id once; what is left out would. So a position
//! always says "everything before this has been handed over", and whoever is unsure begins again.

use crate::batch::Reached;

/// The spans of a scan and what has been read of each. Empty before the source was asked for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub(crate) spans: Vec<Span>,
}

/// A part of a scan that can be read by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// What it covers, in the source's own words.
    pub bounds: Vec<u8>,
    /// How far it was read, in the source's own words; none at its beginning.
    pub position: Option<Vec<u8>>,
    /// Whether all of it was read.
    pub done: bool,
    /// Rows read in it, those of given-up attempts included.
    pub rows: u64,
    /// Rows of it that were left out because they are no ids.
    pub malformed: u64,
}

impl Ledger {
    /// One over these spans, nothing read.
    pub fn over(bounds: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let unread = |bounds| Span {
            bounds,
            ..Span::default()
        };
        Self {
            spans: bounds.into_iter().map(unread).collect(),
        }
    }

    /// The same with a span read up to `position`.
    ///
    /// # Panics
    /// When there is no such span.
    #[must_use]
    pub fn at(mut self, span: usize, position: Vec<u8>) -> Self {
        self.spans[span].position = Some(position);
        self
    }

    /// Its spans.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// The spans that are not read to their end, with their numbers.
    pub fn open(&self) -> impl Iterator<Item = (usize, &Span)> {
        self.spans.iter().enumerate().filter(|(_, span)| !span.done)
    }

    /// Takes note of rows read.
    ///
    /// # Panics
    /// When they are of no span of this ledger.
    pub(crate) fn note(&mut self, reached: &Reached) {
        let span = &mut self.spans[reached.span];
        // A checkpoint that somebody made up may claim any number.
        span.rows = span.rows.saturating_add(reached.rows);
        span.malformed = span.malformed.saturating_add(reached.malformed);
        span.done |= reached.ends_span;
        if reached.position.is_some() {
            span.position.clone_from(&reached.position);
        }
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.spans
            .iter()
            .fold(0, |sum, span| sum.saturating_add(span.rows))
    }

    /// Rows left out so far.
    pub fn malformed(&self) -> u64 {
        self.spans
            .iter()
            .fold(0, |sum, span| sum.saturating_add(span.malformed))
    }

    /// Spans read to their end.
    pub fn done(&self) -> usize {
        self.spans.iter().filter(|span| span.done).count()
    }
}
