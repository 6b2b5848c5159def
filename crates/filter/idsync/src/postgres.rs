//! Reads ids from PostgreSQL with COPY.
//!
//! A scan is one `COPY (query) TO STDOUT (FORMAT BINARY)` in a read-only transaction, which reads one state of
//! the database. An ordered scan adds a condition around the query, so that it can begin at any id: `SELECT id
//! FROM (query) AS ids(id) WHERE id >= '…' ORDER BY id`. For a simple query on an indexed column, PostgreSQL
//! reads the index in order instead of sorting.
//!
//! Changes are polled over a persistent connection. Logical replication is not used: it needs a replication
//! slot, and the server keeps its log until the client of the slot has read it. Without a client, the log can
//! fill the server's disk.

mod column;
mod tls;

use std::pin::pin;

use futures_util::StreamExt as _;
use tokio::task::JoinHandle;
use tokio_postgres::binary_copy::BinaryCopyOutStream;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Statement};

use crate::address::{Options, without_password};
use crate::changes::{ChangesConnection, Rows, Unit};
use crate::error::SourceError;
use crate::scan::{Sink, Source, SourceFuture, SourceInfo};
use column::{AfterParameter, Column, RawValue};

/// A PostgreSQL server and a query.
#[derive(Debug)]
pub(crate) struct Postgres {
    label: String,
    config: tokio_postgres::Config,
    connector: tls::Connector,
    options: Options,
}

impl Postgres {
    pub(crate) fn new(address: &str, options: Options) -> Result<Self, SourceError> {
        let (config, connector) = tls::parse(address)?;
        Ok(Self {
            label: without_password(address),
            config,
            connector,
            options,
        })
    }

    async fn connect(&self) -> Result<Session, SourceError> {
        let fail = |error| connect_error(&self.label, error);
        let (client, driver) = match &self.connector {
            tls::Connector::Unencrypted => {
                let (client, connection) = self
                    .config
                    .connect(tokio_postgres::NoTls)
                    .await
                    .map_err(fail)?;
                (client, tokio::spawn(async { _ = connection.await }))
            }
            tls::Connector::Rustls(connector) => {
                let (client, connection) =
                    self.config.connect(connector.clone()).await.map_err(fail)?;
                (client, tokio::spawn(async { _ = connection.await }))
            }
        };
        let session = Session { client, driver };
        // With the first setting, only quotes must be escaped in a literal. With the second setting, the
        // configured query cannot write to the database.
        let settings =
            "SET standard_conforming_strings = on; SET default_transaction_read_only = on";
        let result = session.client.batch_execute(settings).await;
        result.map_err(fail)?;
        Ok(session)
    }

    async fn prepare(&self, client: &Client, query: &str) -> Result<Statement, SourceError> {
        let prepared = client.prepare(query).await;
        prepared.map_err(|error| query_error(&self.label, error))
    }

    async fn read_all(&self, sink: &Sink) -> Result<(), SourceError> {
        let fail = |error| query_error(&self.label, error);
        let session = self.connect().await?;
        let client = &session.client;
        let query = without_semicolon(&self.options.query);
        // Before the transaction, because an error in a transaction ends it.
        let deterministic = has_deterministic_collation(client, query).await;
        client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .await
            .map_err(fail)?;
        let prepared = self.prepare(client, query).await?;
        if !prepared.params().is_empty() {
            return Err(SourceError::Query {
                label: self.label.clone(),
                cause: "the query has a parameter, but a scan has no value for it".into(),
            });
        }
        let [column] = prepared.columns() else {
            return Err(SourceError::Columns {
                found: prepared.columns().len(),
                expected: "only the id column is expected",
            });
        };
        let id = Column::new(column.name(), column.type_())?;
        let attempt = sink.begin(
            SourceInfo {
                form: id.form(),
                equates_texts: id.ignores_case() || !deterministic,
                column: id.name.clone(),
                rows_estimated: estimate(client, query).await,
            },
            // One span. It covers the whole query, so its bounds are empty.
            || vec![Vec::new()],
        )?;
        // The query has one span. If the span is not open, an earlier attempt has read all rows.
        let Some((number, span)) = attempt.ledger.open_spans().next() else {
            return Ok(());
        };
        let select = match (self.options.ordered, &span.position) {
            (false, _) => query.to_owned(),
            (true, position) => {
                // The condition includes the last id. With some collations, different ids compare equal, so `>`
                // could skip ids that were not read.
                let from = position.as_ref().map_or_else(String::new, |position| {
                    let position = String::from_utf8_lossy(position).replace('\'', "''");
                    format!("WHERE id >= '{position}'")
                });
                format!("SELECT id FROM (\n{query}\n) AS ids(id) {from} ORDER BY id")
            }
        };
        let copy = format!("COPY (\n{select}\n) TO STDOUT (FORMAT BINARY)");
        let stream = client.copy_out(copy.as_str()).await.map_err(fail)?;
        let mut rows = pin!(BinaryCopyOutStream::new(stream, &[Type::BYTEA]));
        // Messages name the row number alone, without a suffix.
        let mut builder = attempt.batch_builder(number, "");
        while let Some(row) = rows.next().await {
            let row = row.map_err(fail)?;
            let RawValue(raw) = row.try_get(0).map_err(fail)?;
            if builder.add_row(id.value(raw)?)? {
                // The batch is full.
                let position = if self.options.ordered {
                    id.position(raw)?
                } else {
                    None
                };
                sink.send(builder.take_batch(position)).await?;
            }
        }
        sink.send(builder.finish()).await
    }
}

impl Source for Postgres {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn query(&self) -> &str {
        &self.options.query
    }

    fn read<'a>(&'a self, sink: &'a Sink) -> SourceFuture<'a, ()> {
        Box::pin(self.read_all(sink))
    }

    fn connect_changes<'a>(
        &'a self,
        query: &'a str,
    ) -> SourceFuture<'a, Box<dyn ChangesConnection>> {
        Box::pin(async move {
            let session = self.connect().await?;
            let statement = self
                .prepare(&session.client, without_semicolon(query))
                .await?;
            let ([id, number], [after]) = (statement.columns(), statement.params()) else {
                return Err(SourceError::Columns {
                    found: statement.columns().len(),
                    expected: "a query with two columns (id and number) and one parameter `$1` is expected",
                });
            };
            let connection = PostgresChanges {
                label: self.label.clone(),
                id: Column::new(id.name(), id.type_())?,
                number: Column::number(number.name(), number.type_())?,
                after: Column::number("$1", after)?,
                session,
                statement: statement.clone(),
            };
            Ok(Box::new(connection) as Box<dyn ChangesConnection>)
        })
    }
}

/// A connection, and the task that drives it.
#[derive(Debug)]
struct Session {
    client: Client,
    driver: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection that polls changes.
struct PostgresChanges {
    label: String,
    session: Session,
    statement: Statement,
    id: Column,
    /// The column of the numbers that order the changes.
    number: Column,
    /// The parameter `$1`: the number after which changes are read.
    after: Column,
}

impl ChangesConnection for PostgresChanges {
    fn form(&self) -> edgeward_filter::IdForm {
        self.id.form()
    }

    fn unit(&self) -> Unit {
        self.number.unit()
    }

    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let fail = |error| query_error(&self.label, error);
            let after = AfterParameter {
                parameter: &self.after,
                number: after,
            };
            let changes = self.session.client.query_raw(&self.statement, [after]);
            let mut changes = pin!(changes.await.map_err(fail)?);
            while let Some(row) = changes.next().await {
                let row = row.map_err(fail)?;
                let RawValue(id) = row.try_get(0).map_err(fail)?;
                let RawValue(number) = row.try_get(1).map_err(fail)?;
                let id = self.id.value(id)?;
                if number.is_some() {
                    rows.add_row(id, self.number.as_number(number)?)?;
                } else {
                    rows.add_row_without_number(id, "the change has no number")?;
                }
            }
            Ok(())
        })
    }
}

/// Returns the number of rows that PostgreSQL's planner estimates for the query.
async fn estimate(client: &Client, query: &str) -> Option<u64> {
    let explain = format!("EXPLAIN (FORMAT JSON) {query}");
    let messages = client.simple_query(&explain).await.ok()?;
    let plan = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    })?;
    // The outermost plan is the first one.
    let (_, rows) = plan.split_once("\"Plan Rows\":")?;
    let digits = rows.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    digits[..end].parse().ok()
}

/// Returns false if the column of the query has a nondeterministic collation, which equates different texts
/// (`CREATE COLLATION … deterministic = false`, PostgreSQL 12). The statement reads no row of the query.
async fn has_deterministic_collation(client: &Client, query: &str) -> bool {
    let probe = format!(
        "SELECT NOT c.collisdeterministic FROM pg_collation c WHERE c.oid = (SELECT \
         pg_collation_for(id)::regcollation::oid FROM (SELECT id FROM (\n{query}\n) AS ids(id) WHERE false \
         UNION ALL SELECT NULL) AS probe(id))"
    );
    // The statement fails for numbers and UUIDs, which have no collation, and before PostgreSQL 13.
    let rows = client.simple_query(&probe).await.unwrap_or_default();
    let is_true = |message: &tokio_postgres::SimpleQueryMessage| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0) == Some("t"),
        _ => false,
    };
    !rows.iter().any(is_true)
}

/// Returns the query without semicolons at its end. A caller that appends text must begin a new line first, because
/// the query may end with a comment.
fn without_semicolon(query: &str) -> &str {
    query.trim_end().trim_end_matches(';')
}

fn connect_error(label: &str, error: tokio_postgres::Error) -> SourceError {
    let transient = match error.as_db_error() {
        Some(server_error) => is_transient(server_error.code()),
        // The host name cannot be resolved, or the connection was refused or closed.
        None => is_io(&error) || error.is_closed(),
    };
    SourceError::Connect {
        label: label.to_owned(),
        cause: server_cause(error),
        transient,
    }
}

fn query_error(label: &str, error: tokio_postgres::Error) -> SourceError {
    let transient = match error.as_db_error() {
        Some(server_error) => is_transient(server_error.code()),
        None => is_io(&error) || error.is_closed(),
    };
    let (label, cause) = (label.to_owned(), server_cause(error));
    if transient {
        SourceError::Lost { label, cause }
    } else {
        SourceError::Query { label, cause }
    }
}

/// Returns the server's message without the client's prefix "db error".
fn server_cause(error: tokio_postgres::Error) -> crate::Cause {
    match error.as_db_error() {
        Some(server_error) => server_error.clone().into(),
        None => error.into(),
    }
}

/// Returns true if a server error may be temporary. The error classes are in Appendix A of PostgreSQL's manual.
fn is_transient(code: &SqlState) -> bool {
    let class = &code.code()[..2];
    // 08: connection; 40: rollback, for example a recovery conflict on a standby; 53: resources, for example
    // too many connections; 57: shutdown and crash; 58: system errors.
    matches!(class, "08" | "40" | "53" | "57" | "58") && *code != SqlState::QUERY_CANCELED
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if cause.is::<std::io::Error>() {
            return true;
        }
        next = cause.source();
    }
    false
}
