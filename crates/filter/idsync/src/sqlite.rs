//! Reads ids from a SQLite file, opened read-only.
//!
//! One statement reads all rows, so the scan reads one state of the file, however long the scan takes. In WAL
//! mode, other programs can write to the database during the scan. The SQLite library blocks the calling
//! thread, so a progress handler checks for cancellation every 10,000 SQLite instructions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_filter::IdForm;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement, ToSql};

use crate::address::Options;
use crate::changes::{ChangesConnection, Rows};
use crate::error::SourceError;
use crate::scan::{Sink, Source, SourceFuture, SourceInfo};
use crate::value::Value;

/// A SQLite file and a query.
#[derive(Debug)]
pub(crate) struct Sqlite {
    address: String,
    file: PathBuf,
    options: Options,
}

impl Sqlite {
    pub(crate) fn new(address: &str, options: Options) -> Result<Self, SourceError> {
        let file = address.strip_prefix("sqlite://").unwrap_or(address);
        if file.is_empty() || file.contains('\0') {
            return Err(SourceError::Address {
                url: address.to_owned(),
                why: "no file given; write sqlite://ids.db or sqlite:///var/lib/ids.db".to_owned(),
            });
        }
        Ok(Self {
            address: address.to_owned(),
            file: file.into(),
            options,
        })
    }

    fn connect(&self) -> Result<Connection, SourceError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&self.file, flags).and_then(|connection| {
            // Another program locks the file during a checkpoint or a commit, usually for less than 10 s.
            connection.busy_timeout(std::time::Duration::from_secs(10))?;
            // Opening the connection does not read the file. This statement reads it and reports a corrupt file.
            connection.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
            Ok(connection)
        });
        opened.map_err(|error| SourceError::Connect {
            label: self.label(),
            transient: is_transient(&error),
            cause: error.into(),
        })
    }

    fn prepare<'c>(
        &self,
        connection: &'c Connection,
        query: &str,
    ) -> Result<Statement<'c>, SourceError> {
        let statement = connection.prepare(query).map_err(|e| self.fail(e))?;
        if statement.readonly() {
            return Ok(statement);
        }
        Err(SourceError::Query {
            label: self.label(),
            cause: "the query would change the database".into(),
        })
    }

    fn fail(&self, error: rusqlite::Error) -> SourceError {
        let (label, transient) = (self.label(), is_transient(&error));
        let cause = error.into();
        if transient {
            SourceError::Lost { label, cause }
        } else {
            SourceError::Query { label, cause }
        }
    }

    /// Counts the rows of the query. Returns `None` if counting fails, or takes more than `COUNT_CALLBACKS_MAX`
    /// progress callbacks. Each callback subtracts 1 from `callbacks_left`.
    fn estimate(&self, connection: &Connection, callbacks_left: &AtomicU64) -> Option<u64> {
        callbacks_left.store(COUNT_CALLBACKS_MAX, Ordering::Relaxed);
        let query = without_semicolon(&self.options.query);
        let count = format!("SELECT count(*) FROM (\n{query}\n)");
        let counted = connection.query_row(&count, [], |row| row.get::<_, i64>(0));
        callbacks_left.store(u64::MAX, Ordering::Relaxed);
        counted.ok().and_then(|count| u64::try_from(count).ok())
    }

    /// Returns true if the collation of the column is NOCASE, RTRIM or another one that equates different texts. The
    /// statement compares a constant that has the collation of the column, and reads no row.
    fn equates_texts(&self, connection: &Connection) -> bool {
        let query = without_semicolon(&self.options.query);
        let probe = format!(
            "WITH ids(id) AS (\n{query}\n), probe(id) AS (SELECT id FROM ids WHERE 0 UNION ALL SELECT 'a') \
             SELECT id = 'A' OR id = 'a ' FROM probe"
        );
        // A query that cannot be a part of another one, such as a PRAGMA, has no column with a collation.
        let equal = connection.query_row(&probe, [], |row| row.get(0));
        equal.unwrap_or(false)
    }

    async fn read_all(&self, sink: &Sink) -> Result<(), SourceError> {
        let mut connection = self.connect()?;
        let callbacks_left = Arc::new(AtomicU64::new(u64::MAX));
        let (cancelled, remaining) = (sink.cancellation(), Arc::clone(&callbacks_left));
        let interrupt = move || {
            let left = remaining.load(Ordering::Relaxed);
            if left != u64::MAX {
                remaining.store(left.saturating_sub(1), Ordering::Relaxed);
            }
            left == 0 || cancelled()
        };
        connection
            .progress_handler(INSTRUCTIONS_PER_CALLBACK, Some(interrupt))
            .map_err(|e| self.fail(e))?;
        let prepared = self.prepare(&connection, &self.options.query)?;
        let columns: Vec<_> = prepared.columns().collect();
        let [column] = &columns[..] else {
            return Err(SourceError::Columns {
                found: columns.len(),
                expected: "only the id column is expected",
            });
        };
        let info = SourceInfo {
            form: form_of(column.decl_type()),
            equates_texts: self.equates_texts(&connection),
            column: column.name().to_owned(),
            rows_estimated: self.estimate(&connection, &callbacks_left),
        };
        // The ledger records which parts (spans) of the scan are read. A SQLite query is a single span, which needs
        // no bounds. If an earlier attempt has read all rows, no span is open.
        let attempt = sink.begin(info, || vec![Vec::new()])?;
        let Some((number, span)) = attempt.ledger.open_spans().next() else {
            return Ok(());
        };
        let position = span.position.as_deref().and_then(Position::from_bytes);
        let query = without_semicolon(&self.options.query);
        let query = match (self.options.ordered, &position) {
            (false, _) => query.to_owned(),
            (true, None) => format!("WITH ids(id) AS (\n{query}\n) SELECT id FROM ids ORDER BY id"),
            // The condition includes the last id: with a case-insensitive collation, ids that follow may
            // compare equal to the last id.
            (true, Some(_)) => format!(
                "WITH ids(id) AS (\n{query}\n) SELECT id FROM ids WHERE id >= ?1 ORDER BY id"
            ),
        };
        let mut statement = self.prepare(&connection, &query)?;
        let position = position.filter(|_| self.options.ordered);
        let mut rows = statement
            .query(rusqlite::params_from_iter(position.iter()))
            .map_err(|e| self.fail(e))?;
        let mut builder = attempt.batch_builder(number, "");
        while let Some(row) = rows.next().map_err(|e| self.fail(e))? {
            let value = row.get_ref(0).map_err(|e| self.fail(e))?;
            // `add_row` returns true if the batch is full.
            if builder.add_row(id_of(value, &prepared)?)? {
                let reached = self
                    .options
                    .ordered
                    .then(|| Position::from_value(value).to_bytes());
                sink.send(builder.take_batch(reached)).await?;
            }
        }
        sink.send(builder.finish()).await
    }
}

impl Source for Sqlite {
    fn label(&self) -> String {
        self.address.clone()
    }

    fn query(&self) -> &str {
        &self.options.query
    }

    fn read<'a>(&'a self, sink: &'a Sink) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let cancelled = sink.cancellation();
            let read = self.read_all(sink).await;
            // SQLite reports only that the statement was interrupted, not that the caller cancelled the scan.
            read.map_err(|error| match error {
                SourceError::Query { .. } if cancelled() => SourceError::Cancelled,
                error => error,
            })
        })
    }

    fn connect_changes<'a>(
        &'a self,
        query: &'a str,
    ) -> SourceFuture<'a, Box<dyn ChangesConnection>> {
        Box::pin(async move {
            let connection = self.connect()?;
            let form = {
                let statement = self.prepare(&connection, query)?;
                let columns: Vec<_> = statement.columns().collect();
                if columns.len() != 2 || statement.parameter_count() != 1 {
                    return Err(SourceError::Columns {
                        found: columns.len(),
                        expected: "a query with two columns (id and number) and one parameter is expected",
                    });
                }
                form_of(columns[0].decl_type())
            };
            let source = Self {
                address: self.address.clone(),
                file: self.file.clone(),
                options: Options::new(query),
            };
            Ok(Box::new(SqliteChanges {
                source,
                connection,
                form,
            }) as Box<dyn ChangesConnection>)
        })
    }
}

/// A connection that polls changes.
struct SqliteChanges {
    source: Sqlite,
    connection: Connection,
    form: IdForm,
}

impl ChangesConnection for SqliteChanges {
    fn form(&self) -> IdForm {
        self.form
    }

    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let fail = |error| self.source.fail(error);
            let mut statement = self
                .source
                .prepare(&self.connection, &self.source.options.query)?;
            // `changes` borrows `statement`, so the names of the columns are read from a second statement.
            let prepared = self
                .source
                .prepare(&self.connection, &self.source.options.query)?;
            let mut changes = statement.query([after]).map_err(fail)?;
            while let Some(row) = changes.next().map_err(fail)? {
                // In SQLite, any column can contain a value of any type. A scan fails at a REAL id (`id_of`). A poll
                // counts the row as malformed instead, and continues with the next row.
                let id = match row.get_ref(0).map_err(fail)? {
                    ValueRef::Real(_) => Value::Other("REAL"),
                    value => id_of(value, &prepared)?,
                };
                let number = row.get_ref(1).map_err(fail)?;
                if let ValueRef::Integer(number) = number {
                    rows.add_row(id, number)?;
                } else {
                    let column = prepared.column_name(1).unwrap_or_default();
                    let error = format!("column `{column}` is {}, not INTEGER", number.data_type());
                    rows.add_row_without_number(id, &error)?;
                }
            }
            Ok(())
        })
    }
}

fn id_of<'a>(value: ValueRef<'a>, prepared: &Statement<'_>) -> Result<Value<'a>, SourceError> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Integer(number),
        ValueRef::Text(text) => Value::Text(text),
        ValueRef::Blob(bytes) => Value::Bytes(bytes),
        ValueRef::Real(_) => {
            return Err(SourceError::ColumnType {
                column: prepared.column_name(0).unwrap_or_default().to_owned(),
                type_name: "REAL".to_owned(),
            });
        }
    })
}

/// Returns the form of ids by the declared type of their column. SQLite itself allows any value in any column.
fn form_of(declared: Option<&str>) -> IdForm {
    let declared = declared.unwrap_or_default().to_ascii_uppercase();
    if declared.contains("INT") {
        IdForm::Integer
    } else if declared.contains("UUID") || declared.contains("GUID") {
        IdForm::Uuid
    } else {
        IdForm::Text
    }
}

/// Returns the query without semicolons at its end. Added text must begin on a new line, because a comment may
/// end the query.
fn without_semicolon(query: &str) -> &str {
    query.trim_end().trim_end_matches(';')
}

fn is_transient(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    code.is_some_and(|code| {
        matches!(
            code,
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::SystemIoFailure
        )
    })
}

/// The position of a scan: the type and the bytes of the last id.
#[derive(Clone, Debug, PartialEq)]
enum Position {
    Integer(i64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Position {
    fn from_value(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Text(text) => Self::Text(text.to_vec()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.to_vec()),
            // SQLite sorts NULL first, then numbers, then text. A scan that continues at the smallest integer
            // therefore reads all numbers and texts again and omits only NULL, which is not an id.
            ValueRef::Null | ValueRef::Real(_) => Self::Integer(i64::MIN),
        }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let (kind, bytes) = match self {
            Self::Integer(number) => (b'i', &number.to_le_bytes()[..]),
            Self::Text(text) => (b't', &text[..]),
            Self::Blob(bytes) => (b'b', &bytes[..]),
        };
        [&[kind], bytes].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, bytes) = bytes.split_first()?;
        Some(match kind {
            b'i' => Self::Integer(i64::from_le_bytes(bytes.try_into().ok()?)),
            b't' => Self::Text(bytes.to_vec()),
            b'b' => Self::Blob(bytes.to_vec()),
            _ => return None,
        })
    }
}

impl ToSql for Position {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The number of SQLite instructions between two progress callbacks. SQLite executes them in about 100 µs.
const INSTRUCTIONS_PER_CALLBACK: i32 = 10_000;

/// The largest number of progress callbacks while counting rows. Counting then takes at most about 100 ms. The
/// limit is low because the count is only used for a progress bar.
const COUNT_CALLBACKS_MAX: u64 = 1000;
