//! The columns of the Parquet files that access logs are converted to. Each request becomes one row.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use edgeward_analysis::{Entry, Outcome, type_of};

/// The values of a column.
#[derive(Default)]
struct Column<T> {
    values: Vec<T>,
    /// For each row, 1 if the column has a value and 0 for null: the definition levels of Parquet.
    definition_levels: Vec<i16>,
}

impl<T> Column<T> {
    fn push(&mut self, value: Option<T>) {
        self.definition_levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }

    fn clear(&mut self) {
        self.values.clear();
        self.definition_levels.clear();
    }
}

/// The rows of the next row group, by column.
#[derive(Default)]
pub(super) struct Columns {
    time: Column<i64>,
    status: Column<i32>,
    bytes: Column<i64>,
    fingerprint: Column<i64>,
    method: Column<ByteArray>,
    host: Column<ByteArray>,
    url: Column<ByteArray>,
    media_type: Column<ByteArray>,
    cache: Column<ByteArray>,
    machine: Column<ByteArray>,
}

impl Columns {
    pub(super) fn len(&self) -> usize {
        self.url.definition_levels.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a request. `fingerprint` is the hash of the URL. `machine` is used if the entry does not name a machine.
    pub(super) fn push(&mut self, entry: &Entry<'_>, fingerprint: u64, url: &[u8], machine: &str) {
        let time = entry.time.map(|time| time.as_millis());
        self.time
            .push(time.and_then(|time| i64::try_from(time).ok()));
        self.status
            .push((entry.status > 0).then(|| i32::from(entry.status)));
        let bytes = entry.bytes.and_then(|bytes| i64::try_from(bytes).ok());
        self.bytes.push(bytes);
        // Not all query engines support unsigned types, so the bits of the fingerprint are stored as a signed
        // number.
        self.fingerprint.push(Some(fingerprint.cast_signed()));
        self.method.push(text(entry.method));
        // Host names are case-insensitive (RFC 9110, section 4.2.3).
        self.host.push(text(&entry.host.to_ascii_lowercase()));
        self.url.push(text(url));
        self.media_type.push(text(type_of(entry)));
        self.cache.push(entry.outcome.map(|outcome| {
            let word = match outcome {
                Outcome::Hit => "hit",
                Outcome::Miss => "miss",
                Outcome::Pass => "pass",
            };
            ByteArray::from(word)
        }));
        let machine = if entry.machine.is_empty() {
            machine.as_bytes()
        } else {
            entry.machine
        };
        self.machine.push(text(machine));
    }

    /// Writes a row group in the order of [`schema`] and clears the columns.
    pub(super) fn write(
        &mut self,
        writer: &mut SerializedFileWriter<File>,
    ) -> Result<(), ParquetError> {
        let mut group = writer.next_row_group()?;
        macro_rules! column {
            ($name:ident, $type:ty) => {
                let mut column = group.next_column()?.expect("the schema has this column");
                let (values, definition_levels) =
                    (&self.$name.values, &self.$name.definition_levels);
                column
                    .typed::<$type>()
                    .write_batch(values, Some(definition_levels), None)?;
                column.close()?;
                self.$name.clear();
            };
        }
        column!(time, Int64Type);
        column!(status, Int32Type);
        column!(bytes, Int64Type);
        column!(fingerprint, Int64Type);
        column!(method, ByteArrayType);
        column!(host, ByteArrayType);
        column!(url, ByteArrayType);
        column!(media_type, ByteArrayType);
        column!(cache, ByteArrayType);
        column!(machine, ByteArrayType);
        group.close()?;
        Ok(())
    }
}

/// Returns the text in UTF-8, or `None` if it is empty. Invalid bytes are replaced, so different URLs may have
/// equal texts. Their fingerprints differ.
fn text(bytes: &[u8]) -> Option<ByteArray> {
    if bytes.is_empty() {
        return None;
    }
    Some(match String::from_utf8_lossy(bytes) {
        std::borrow::Cow::Borrowed(text) => ByteArray::from(text),
        std::borrow::Cow::Owned(text) => ByteArray::from(text.into_bytes()),
    })
}

/// Returns the schema. All columns are nullable.
pub(super) fn schema() -> Type {
    let column = |name: &str, physical_type, logical_type| {
        let column = Type::primitive_type_builder(name, physical_type)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical_type)
            .build();
        Arc::new(column.expect("the logical type fits the physical type"))
    };
    let string = |name| column(name, Physical::BYTE_ARRAY, Some(LogicalType::String));
    let time = LogicalType::timestamp(true, TimeUnit::MILLIS);
    let fields = vec![
        column("time", Physical::INT64, Some(time)),
        column("status", Physical::INT32, None),
        column("bytes", Physical::INT64, None),
        column("fingerprint", Physical::INT64, None),
        string("method"),
        string("host"),
        string("url"),
        string("type"),
        string("cache"),
        string("machine"),
    ];
    Type::group_type_builder("request")
        .with_fields(fields)
        .build()
        .expect("the column names differ")
}
