//! Batches: several thousand ids in their canonical form, in one allocation. A batch belongs to one span: a
//! part of a scan that is read independently of the others.

use edgeward_filter::{IdForm, IdText};

use crate::error::SourceError;
use crate::value::{ID_BYTES_MAX, Value};

/// Ids of one span of a scan, and the progress that this batch makes in the span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The ids, one after another.
    bytes: Vec<u8>,
    /// The end of each id in `bytes`.
    ends: Vec<u32>,
    /// The rows and the position of this batch.
    pub progress: SpanProgress,
}

/// The progress that one batch makes in its span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanProgress {
    /// The index of the span.
    pub span: usize,
    /// The number of rows of this batch: ids and malformed rows.
    pub rows: u64,
    /// The number of rows of this batch that were skipped because they are malformed.
    pub malformed: u64,
    /// The position after this batch. If an attempt to read the span fails after the ids of this batch were
    /// persisted, the next attempt begins at this position. `None` at the end of the span, and if the source reports
    /// no positions.
    pub position: Option<Vec<u8>>,
    /// True if these rows are the last ones of the span.
    pub ends_span: bool,
}

impl Batch {
    /// Returns the ids in their canonical form.
    pub fn ids(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|n| {
            let start = n.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.bytes[start as usize..self.ends[n] as usize]
        })
    }

    /// Returns the number of ids.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the batch has no ids. An empty batch may still be the last one of its span.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn for_span(span: usize) -> Self {
        Self {
            progress: SpanProgress {
                span,
                ..SpanProgress::default()
            },
            ..Self::default()
        }
    }

    pub(crate) fn push(&mut self, id: &[u8]) {
        self.bytes.extend_from_slice(id);
        let end = u32::try_from(self.bytes.len()).expect("a batch is closed long before 4 GiB");
        self.ends.push(end);
    }

    pub(crate) fn is_full(&self, batch_ids: usize) -> bool {
        self.progress.rows >= batch_ids as u64 || self.bytes.len() >= BATCH_BYTES
    }
}

/// Builds batches from the rows of one span.
#[derive(Debug)]
pub struct BatchBuilder {
    batch: Batch,
    rules: RowRules,
    /// The number of rows of the span that were read so far, in all attempts. Error messages state it as the row
    /// number.
    rows: u64,
    /// A text for error messages, which follows the row number and names the span, for example ` of tokens 1 to 9`.
    /// Empty if the span is the whole scan.
    row_suffix: String,
    column: String,
}

/// The settings by which rows are converted to ids and collected in batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowRules {
    pub(crate) form: IdForm,
    pub(crate) skip_malformed: bool,
    /// A batch is full when it has this many rows. Malformed rows count too.
    pub(crate) batch_ids: usize,
}

impl BatchBuilder {
    pub(crate) fn new(
        rules: RowRules,
        span: usize,
        rows: u64,
        row_suffix: String,
        column: String,
    ) -> Self {
        Self {
            batch: Batch::for_span(span),
            rules,
            rows,
            row_suffix,
            column,
        }
    }

    /// Adds a row's value. Returns true if the batch is full and must be closed.
    pub fn add_row(&mut self, value: Value<'_>) -> Result<bool, SourceError> {
        self.rows += 1;
        self.batch.progress.rows += 1;
        let mut buffer = IdText::default();
        match value.canonical(self.rules.form, &mut buffer) {
            Ok(id) => self.batch.push(id),
            Err(_) if self.rules.skip_malformed => self.batch.progress.malformed += 1,
            Err(what) => {
                return Err(SourceError::NotAnId {
                    row: format!("row {}{}", self.rows, self.row_suffix),
                    column: self.column.clone(),
                    what,
                });
            }
        }
        Ok(self.batch.is_full(self.rules.batch_ids))
    }

    /// Returns the rows since the last batch as a batch. `position` is the position after the last of these rows.
    pub fn take_batch(&mut self, position: Option<Vec<u8>>) -> Batch {
        let next = Batch::for_span(self.batch.progress.span);
        let mut closed = std::mem::replace(&mut self.batch, next);
        closed.progress.position = position;
        closed
    }

    /// Returns the last batch of the span.
    pub fn finish(mut self) -> Batch {
        let mut last = self.take_batch(None);
        last.progress.ends_span = true;
        last
    }
}

/// A batch is full when its ids have this many bytes: 16 ids of the maximum length, or 29,000 UUIDs as text.
const BATCH_BYTES: usize = 1 << 20;
const _: () = assert!(BATCH_BYTES >= 16 * ID_BYTES_MAX);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn builder(skip_malformed: bool) -> BatchBuilder {
        let rules = RowRules {
            form: IdForm::Integer,
            skip_malformed,
            batch_ids: 3,
        };
        BatchBuilder::new(rules, 5, 10, " of tokens".to_owned(), "id".to_owned())
    }

    #[test]
    fn an_error_names_the_malformed_row() {
        let error = builder(false)
            .add_row(Value::Text(b"x"))
            .expect_err("the value is not an id");
        assert_eq!(
            error.to_string(),
            "row 11 of tokens, column `id`: `x` is not a valid integer"
        );
    }

    #[test]
    fn skipped_rows_are_counted_and_fill_a_batch() {
        let mut builder = builder(true);
        assert!(!builder.add_row(Value::Null).expect("the row is skipped"));
        assert!(
            !builder
                .add_row(Value::Integer(-4))
                .expect("the column has ids")
        );
        assert!(
            builder
                .add_row(Value::Text(b"x"))
                .expect("the row is skipped")
        );
        let batch = builder.take_batch(Some(vec![1]));
        let progress = &batch.progress;
        assert_eq!(
            (progress.rows, progress.malformed, progress.span),
            (3, 2, 5)
        );
        assert_eq!(batch.ids().collect::<Vec<_>>(), [b"-4"]);
        assert!(builder.finish().progress.ends_span);
    }

    proptest! {
        /// A batch returns its ids in the order in which they were added.
        #[test]
        fn a_batch_keeps_its_ids(ids: Vec<Vec<u8>>) {
            let mut batch = Batch::default();
            ids.iter().for_each(|id| batch.push(id));
            prop_assert!(batch.ids().eq(ids.iter().map(Vec::as_slice)));
            prop_assert_eq!(batch.len(), ids.len());
        }
    }
}
