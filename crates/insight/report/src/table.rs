//! Tables. Columns of words are left-aligned, columns of figures are right-aligned.

use std::fmt::{self, Write as _};

use crate::text::Html;

/// The heading and the alignment of a column.
#[derive(Clone, Debug)]
pub struct Column {
    heading: String,
    figures: bool,
}

impl Column {
    /// Returns a left-aligned column of words.
    pub fn words(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            figures: false,
        }
    }

    /// Returns a right-aligned column of figures.
    pub fn figures(heading: impl Into<String>) -> Self {
        Self {
            heading: heading.into(),
            figures: true,
        }
    }
}

/// A table. Cells are texts; figures include their units.
#[derive(Clone, Debug)]
pub struct Table {
    caption: Option<String>,
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            caption: None,
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Sets the caption above the table.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = Some(caption.into());
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    /// Panics if the number of cells differs from the number of columns.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) -> &mut Self {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(
            cells.len(),
            self.columns.len(),
            "a row needs one cell for each column"
        );
        self.rows.push(cells);
        self
    }

    pub(crate) fn render(&self, out: &mut String) -> fmt::Result {
        // The arrow keys scroll an element that can have the focus.
        out.push_str(
            "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"table\"><table>",
        );
        if let Some(caption) = &self.caption {
            write!(out, "<caption>{}</caption>", Html(caption))?;
        }
        out.push_str("<thead><tr>");
        for Column { heading, figures } in &self.columns {
            let class = if *figures { " class=\"n\"" } else { "" };
            write!(out, "<th scope=\"col\"{class}>{}</th>", Html(heading))?;
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for (cell, column) in row.iter().zip(&self.columns) {
                let class = if column.figures { " class=\"n\"" } else { "" };
                write!(out, "<td{class}>{}</td>", Html(cell))?;
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        Ok(())
    }
}
