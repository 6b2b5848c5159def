//! The file of `simulate --parquet`.

use std::path::Path;

use super::rows::Rows;
use crate::diagnostic::Diagnostic;

/// Returns an error if this build does not write Parquet.
#[cfg(not(feature = "parquet"))]
pub(super) fn check() -> Result<(), Diagnostic> {
    Err(Diagnostic::no_parquet())
}

#[cfg(not(feature = "parquet"))]
pub(super) fn write(_rows: &Rows, _path: &Path) -> anyhow::Result<()> {
    Err(Diagnostic::no_parquet().into())
}

#[cfg(feature = "parquet")]
#[expect(clippy::unnecessary_wraps, reason = "other builds return an error")]
pub(super) fn check() -> Result<(), Diagnostic> {
    Ok(())
}

/// Writes the rows with the names and types of their columns. An absent value is null.
#[cfg(feature = "parquet")]
pub(super) fn write(rows: &Rows, path: &Path) -> anyhow::Result<()> {
    use anyhow::Context as _;

    let file = std::fs::File::create(path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    file::write(rows, file).map_err(|error| {
        Diagnostic::new(format!("cannot write {}: {error}", path.display())).into()
    })
}

#[cfg(feature = "parquet")]
mod file {
    use std::fs::File;
    use std::sync::Arc;

    use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
    use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
    use parquet::errors::ParquetError;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::types::Type;

    use crate::commands::simulate::rows::{Cell, CellKind, RowColumn, Rows};

    pub(super) fn write(rows: &Rows, file: File) -> Result<(), ParquetError> {
        let compression = Compression::ZSTD(ZstdLevel::default());
        let properties = WriterProperties::builder().set_compression(compression);
        let schema = Arc::new(schema(&rows.columns)?);
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?;
        let mut group = writer.next_row_group()?;
        for (number, column) in rows.columns.iter().enumerate() {
            let cells = || rows.rows.iter().map(|row| &row[number]);
            // Parquet stores the values that exist, and for each row 1 if it has a value.
            let levels: Vec<i16> = cells()
                .map(|cell| i16::from(!matches!(cell, Cell::Absent)))
                .collect();
            match column.kind {
                CellKind::Text => {
                    let texts = cells().filter_map(|cell| match cell {
                        Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                        _ => None,
                    });
                    write_column::<ByteArrayType>(&mut group, &texts.collect::<Vec<_>>(), &levels)?;
                }
                CellKind::Count => {
                    // Not all query engines support unsigned types. Only seeds can exceed 63 bits; these wrap around.
                    let counts = cells().filter_map(|cell| match cell {
                        Cell::Count(count) => Some(count.cast_signed()),
                        _ => None,
                    });
                    write_column::<Int64Type>(&mut group, &counts.collect::<Vec<_>>(), &levels)?;
                }
                CellKind::Number => {
                    let numbers = cells().filter_map(|cell| match cell {
                        Cell::Number(number) => Some(*number),
                        _ => None,
                    });
                    write_column::<DoubleType>(&mut group, &numbers.collect::<Vec<_>>(), &levels)?;
                }
            }
        }
        group.close()?;
        writer.close()?;
        Ok(())
    }

    fn write_column<T: DataType>(
        group: &mut SerializedRowGroupWriter<'_, File>,
        values: &[T::T],
        levels: &[i16],
    ) -> Result<(), ParquetError> {
        let mut column = group.next_column()?.expect("the schema has this column");
        column
            .typed::<T>()
            .write_batch(values, Some(levels), None)?;
        column.close()
    }

    /// Returns the schema. All columns are nullable.
    fn schema(columns: &[RowColumn]) -> Result<Type, ParquetError> {
        let field = |column: &RowColumn| {
            let (physical, logical) = match column.kind {
                CellKind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
                CellKind::Count => (Physical::INT64, None),
                CellKind::Number => (Physical::DOUBLE, None),
            };
            let field = Type::primitive_type_builder(column.name, physical);
            let field = field.with_repetition(Repetition::OPTIONAL);
            Ok(Arc::new(field.with_logical_type(logical).build()?))
        };
        let fields: Result<Vec<_>, ParquetError> = columns.iter().map(field).collect();
        Type::group_type_builder("run").with_fields(fields?).build()
    }
}
