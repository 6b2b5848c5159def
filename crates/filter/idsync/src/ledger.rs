//! The ledger of a scan: its parts (spans) and their progress.
//!
//! A scan consists of spans. A query to PostgreSQL or SQLite is one span; in Cassandra each token range of the
//! ring is a span. A scan that fails is continued by another attempt. Each attempt reads a span from its last recorded
//! position, or from its start. Reading an id twice has no effect,
//! because a filter contains each id once. For an id that is not read, the filter would answer *absent*, which
//! is wrong. A position is therefore recorded only if all ids before this position were delivered.

use crate::batch::SpanProgress;

/// The spans of a scan and their progress. The ledger is empty until the source has planned the spans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub(crate) spans: Vec<Span>,
}

/// A part of a scan that can be read independently.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The bounds of the span. Only the source can decode them.
    pub bounds: Vec<u8>,
    /// The position up to which the span is read. Only the source can decode it. `None` if an attempt must read
    /// the span from its start.
    pub position: Option<Vec<u8>>,
    /// True if the whole span is read.
    pub done: bool,
    /// The number of rows read. A row that a later attempt reads again counts again.
    pub rows: u64,
    /// The number of rows skipped because they are malformed.
    pub malformed: u64,
}

impl Ledger {
    /// Returns a ledger with one unread span for each of `bounds`.
    pub fn with_spans(bounds: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let unread = |bounds| Span {
            bounds,
            ..Span::default()
        };
        Self {
            spans: bounds.into_iter().map(unread).collect(),
        }
    }

    /// Returns the ledger with one span read up to `position`.
    ///
    /// Panics if the ledger has no span with this index.
    #[must_use]
    pub fn with_position(mut self, span: usize, position: Vec<u8>) -> Self {
        self.spans[span].position = Some(position);
        self
    }

    /// Returns the spans.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the spans that are not completely read, with their indexes.
    pub fn open_spans(&self) -> impl Iterator<Item = (usize, &Span)> {
        self.spans.iter().enumerate().filter(|(_, span)| !span.done)
    }

    /// Records the progress of a batch.
    ///
    /// Panics if the batch belongs to no span of this ledger.
    pub(crate) fn record(&mut self, progress: &SpanProgress) {
        let span = &mut self.spans[progress.span];
        // A ledger may be restored from a forged checkpoint with any numbers, so the sums could overflow.
        span.rows = span.rows.saturating_add(progress.rows);
        span.malformed = span.malformed.saturating_add(progress.malformed);
        span.done |= progress.ends_span;
        if progress.position.is_some() {
            span.position.clone_from(&progress.position);
        }
    }

    /// Returns the number of rows read so far.
    pub fn rows(&self) -> u64 {
        self.spans
            .iter()
            .fold(0, |sum, span| sum.saturating_add(span.rows))
    }

    /// Returns the number of malformed rows skipped so far.
    pub fn malformed(&self) -> u64 {
        self.spans
            .iter()
            .fold(0, |sum, span| sum.saturating_add(span.malformed))
    }

    /// Returns the number of completely read spans.
    pub fn completed(&self) -> usize {
        self.spans.iter().filter(|span| span.done).count()
    }
}
