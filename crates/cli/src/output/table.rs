//! Tables for a terminal: a heading, figures aligned right, words aligned left.

use std::fmt;

/// One column: its heading and its alignment.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    heading: String,
    /// True if the cells are aligned right.
    is_right_aligned: bool,
}

impl Column {
    /// A column of words, aligned left.
    pub(crate) fn words(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            is_right_aligned: false,
        }
    }

    /// A column of figures, aligned right.
    pub(crate) fn figures(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            is_right_aligned: true,
        }
    }
}

/// Rows below headings. Each column is as wide as its widest cell.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows yet.
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the number of cells differs from the number of columns.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(
            cells.len(),
            self.columns.len(),
            "the row has one cell for each column"
        );
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|n| {
                let cells = self.rows.iter().map(|row| width(&row[n]));
                cells
                    .chain([width(&self.columns[n].heading)])
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let headings: Vec<String> = self.columns.iter().map(|c| c.heading.clone()).collect();
        for row in std::iter::once(&headings).chain(&self.rows) {
            let mut line = String::new();
            for ((cell, column), wide) in row.iter().zip(&self.columns).zip(&widths) {
                if !line.is_empty() {
                    line.push_str(GAP);
                }
                let padding = " ".repeat(wide - width(cell));
                if column.is_right_aligned {
                    line.push_str(&padding);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&padding);
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The width of `text` on screen, in columns. A wide character counts as one column and shifts the rest of its row;
/// only the key of an object can contain wide characters.
fn width(text: &str) -> usize {
    text.chars().count()
}

const GAP: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_aligned_left_and_figures_right() {
        let mut table = Table::new([Column::words("policy"), Column::figures("OHR")]);
        table.row(["lru", "9.12 %"]);
        table.row(["adaptsize", "61.00 %"]);
        assert_eq!(
            table.to_string(),
            "policy         OHR\n\
             lru         9.12 %\n\
             adaptsize  61.00 %\n"
        );
    }

    #[test]
    fn a_line_does_not_end_in_blanks() {
        let mut table = Table::new([Column::figures("n"), Column::words("what")]);
        table.row(["1", "a"]);
        table.row(["10", "longer"]);
        assert!(table.to_string().lines().all(|line| !line.ends_with(' ')));
    }
}
