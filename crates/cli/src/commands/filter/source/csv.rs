//! CSV with a heading (RFC 4180). One column contains the ids.

use std::io::BufRead;

use crate::diagnostic::Diagnostic;

use super::file::{FileSource, LineNumber};

/// Passes every id, with its line number, to `each`.
pub(super) fn read(
    source: &FileSource,
    input: impl BufRead,
    column: Option<&str>,
    each: &mut dyn FnMut(LineNumber, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Without a limit, a missing closing quote would turn the rest of the file into one field. A record may be 1 MiB
    // longer than the longest permitted id, for its other columns.
    let input = BoundedReader {
        input,
        since_record: 0,
        limit: source.line_bytes_max.saturating_add(1 << 20),
    };
    let mut reader = csv::ReaderBuilder::new().flexible(false).from_reader(input);
    let heading = reader
        .byte_headers()
        .map_err(|e| csv_error(source, &e))?
        .clone();
    let names: Vec<_> = heading.iter().map(String::from_utf8_lossy).collect();
    if let [name] = &names[..]
        && let Some(separator) = name.chars().find(|character| ";|\t".contains(*character))
    {
        let message = format!(
            "the heading has no comma, but `{}`",
            separator.escape_default()
        );
        let hint = "the format is CSV as in RFC 4180: commas, double quotes";
        return Err(source.error_at(1, message).hint(hint).into());
    }
    let column_index = match column {
        None if names.len() == 1 => 0,
        Some(column) if names.iter().any(|name| name == column) => {
            names.iter().position(|name| name == column).unwrap_or(0)
        }
        _ => {
            let message = column.map_or_else(
                || "the CSV file has several columns, but --column is missing".to_owned(),
                |column| format!("the CSV file has no column `{column}`"),
            );
            let diagnostic = Diagnostic::new(message).in_file(source.label()).at_line(1);
            let listed = names
                .iter()
                .take(20)
                .map(|name| name.chars().take(40).collect());
            let listed: Vec<String> = listed.collect();
            let hint = format!("give --column with one of: {}", listed.join(", "));
            return Err(diagnostic.hint(hint).into());
        }
    };
    let mut record = csv::ByteRecord::new();
    loop {
        reader.get_mut().since_record = 0;
        if !reader
            .read_byte_record(&mut record)
            .map_err(|e| csv_error(source, &e))?
        {
            return Ok(());
        }
        let line = record.position().map_or(0, csv::Position::line);
        let id = &record[column_index];
        if id.len() > source.line_bytes_max {
            let message = format!("an id is longer than {} bytes", source.line_bytes_max);
            return Err(source
                .error_at(line, message)
                .hint("--line-bytes-max raises the limit")
                .into());
        }
        let id = source.id_in(line, id)?;
        if !id.is_empty() {
            each(line, id)?;
        }
    }
}

fn csv_error(source: &FileSource, error: &csv::Error) -> anyhow::Error {
    let line = error.position().map_or(0, csv::Position::line);
    let message = match error.kind() {
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("the line has {len} fields, the heading {expected_len}"),
        csv::ErrorKind::Io(error) => format!("cannot read the file: {error}"),
        _ => error.to_string(),
    };
    source
        .error_at(line, message)
        .hint("the format is CSV as in RFC 4180: commas, double quotes")
        .into()
}

/// A reader that returns an error if a record exceeds `limit` bytes.
struct BoundedReader<R> {
    input: R,
    /// The number of bytes read from `input` since the caller requested the current record. The CSV reader reads ahead,
    /// so a part of the record may have been read before.
    since_record: usize,
    limit: usize,
}

impl<R: BufRead> std::io::Read for BoundedReader<R> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.since_record > self.limit {
            return Err(std::io::Error::other(
                "the record exceeds the limit; a closing quote may be missing",
            ));
        }
        let count = self.input.read(out)?;
        self.since_record += count;
        Ok(count)
    }
}
