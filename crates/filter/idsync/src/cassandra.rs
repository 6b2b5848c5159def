//! Reads ids from Cassandra (or ScyllaDB), by token ranges.
//!
//! Cassandra cannot return the rows of a table in the order of the ids. Each partition has a token, and the
//! tokens form a ring. The scan divides the ring at the boundaries between the nodes, and divides long ranges
//! further. Each token range is a span of the scan, read page by page with `token(key) > ? AND token(key) <=
//! ?`. Several spans are read concurrently. If reading a span fails, the next attempt reads this span again
//! from its start.
//!
//! A scan of Cassandra does not read one state of the database. A row that was written before the scan began is
//! certain to be read only if at least one replica both confirmed the write and answers the scan. Examples:
//! writes and scan with consistency `quorum`; or writes with `all` and a scan with `one`. The address selects
//! the consistency of the scan (`?consistency=local_quorum`, the default).

mod address;
mod cql;
mod ring;

use std::sync::Arc;
use std::time::Duration;

use futures_util::{TryStreamExt as _, stream};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::ColumnIterator;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError};
use scylla::frame::response::result::{ColumnSpec, ColumnType, NativeType};
use scylla::response::PagingState;
use scylla::statement::Statement;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;

use crate::address::{Options, without_password};
use crate::changes::{ChangesConnection, Rows, Unit};
use crate::error::SourceError;
use crate::scan::{Attempt, Sink, Source, SourceFuture, SourceInfo};
use crate::value::Value;
use address::ClusterAddress;
use edgeward_filter::IdForm;

/// A cluster and a query.
#[derive(Debug)]
pub(crate) struct Cassandra {
    label: String,
    cluster: ClusterAddress,
    options: Options,
}

impl Cassandra {
    pub(crate) fn new(address: &str, options: Options) -> Result<Self, SourceError> {
        let cluster = ClusterAddress::parse(address).map_err(|why| SourceError::Address {
            url: without_password(address),
            why,
        })?;
        Ok(Self {
            label: without_password(address),
            cluster,
            options,
        })
    }

    async fn connect(&self) -> Result<Session, SourceError> {
        let profile = ExecutionProfile::builder()
            .consistency(self.cluster.consistency)
            // Reading a page of an uncached table takes less than 30 s, even under load. A request that takes
            // longer fails with a transient error, and the caller makes another attempt.
            .request_timeout(Some(Duration::from_secs(30)))
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes(&self.cluster.nodes)
            .default_execution_profile_handle(profile.into_handle())
            .connection_timeout(Duration::from_secs(10))
            .keepalive_interval(Duration::from_secs(10));
        if let Some(tls) = &self.cluster.tls {
            builder = builder.tls_context(Some(Arc::clone(tls)));
        }
        if let Some((user, password)) = &self.cluster.user {
            builder = builder.user(user, password);
        }
        if let Some(datacenter) = &self.cluster.datacenter {
            builder = builder.prefer_datacenter(datacenter.clone());
        }
        if let Some(keyspace) = &self.cluster.keyspace {
            builder = builder
                .use_keyspace(keyspace, true)
                .keyspaces_to_fetch([keyspace]);
        }
        builder.build().await.map_err(|error| SourceError::Connect {
            label: self.label.clone(),
            cause: error.into(),
            transient: true,
        })
    }

    async fn prepare(
        &self,
        session: &Session,
        query: &str,
    ) -> Result<PreparedStatement, SourceError> {
        let mut statement = Statement::new(query);
        statement.set_is_idempotent(true);
        statement.set_page_size(self.cluster.page_rows);
        session.prepare(statement).await.map_err(|error| {
            let transient = match &error {
                PrepareError::AllAttemptsFailed { first_attempt } => is_transient(first_attempt),
                _ => true,
            };
            self.fail(transient, error.into())
        })
    }

    /// Returns the error for a cause: `Lost` if another attempt may succeed, otherwise `Query`.
    fn fail(&self, transient: bool, cause: crate::Cause) -> SourceError {
        let label = self.label.clone();
        if transient {
            SourceError::Lost { label, cause }
        } else {
            SourceError::Query { label, cause }
        }
    }

    fn execution_error(&self, error: ExecutionError) -> SourceError {
        let transient = match &error {
            ExecutionError::LastAttemptError(attempt) => is_transient(attempt),
            ExecutionError::BadQuery(_) => false,
            _ => true,
        };
        self.fail(transient, error.into())
    }

    /// Makes one attempt to read all ids, as [`Source::read`] describes.
    async fn read_all(&self, sink: &Sink) -> Result<(), SourceError> {
        let session = self.connect().await?;
        let query = without_semicolon(&self.options.query);
        let prepared = self.prepare(&session, query).await?;
        let specs = prepared.get_current_result_set_col_specs();
        let specs = specs.get();
        let [column] = specs.as_slice() else {
            return Err(SourceError::Columns {
                found: specs.len(),
                expected: "only the id column is expected",
            });
        };
        let encoding = Encoding::id(column)?;
        let state = session.get_cluster_state();
        let table = column.table_spec();
        let keys = state
            .get_keyspace(table.ks_name())
            .and_then(|keyspace| {
                let view = || Some(&keyspace.views.get(table.table_name())?.view_metadata);
                keyspace.tables.get(table.table_name()).or_else(view)
            })
            .map(|table| &table.partition_key);
        let range_query = keys
            .ok_or_else(|| format!("the table {} has no schema", table.table_name()))
            .and_then(|keys| cql::with_token_range(query, keys))
            .map_err(|why| self.fail(false, why.into()))?;
        let info = SourceInfo {
            form: encoding.form(),
            equates_texts: false,
            column: column.name().to_owned(),
            // `ScanHandle::progress` computes a better estimate from the number of completed spans than the
            // server can.
            rows_estimated: None,
        };
        let attempt = sink.begin(info, || {
            let tokens = state.replica_locator().ring().iter();
            let ranges = ring::ranges(tokens.map(|(token, _)| token.value()), self.cluster.ranges);
            ranges.into_iter().map(ring::Range::to_bytes).collect()
        })?;
        let range_statement = self.prepare(&session, &range_query).await?;
        let open_spans = attempt.ledger.open_spans().map(|(number, _)| Ok(number));
        let parallel = self.options.parallel.get() as usize;
        let token_scan = TokenScan {
            source: self,
            session: &session,
            range_statement: &range_statement,
            encoding,
            attempt: &attempt,
            sink,
        };
        stream::iter(open_spans)
            .try_for_each_concurrent(parallel, |number| token_scan.read_span(number))
            .await
    }
}

/// The state that the spans of an attempt share.
struct TokenScan<'a> {
    source: &'a Cassandra,
    session: &'a Session,
    range_statement: &'a PreparedStatement,
    encoding: Encoding,
    attempt: &'a Attempt,
    sink: &'a Sink,
}

impl TokenScan<'_> {
    async fn read_span(&self, number: usize) -> Result<(), SourceError> {
        let fail = |error| self.source.execution_error(error);
        let span = &self.attempt.ledger.spans()[number];
        let Some(range) = ring::Range::from_bytes(&span.bounds) else {
            return Err(SourceError::Query {
                label: self.source.label.clone(),
                cause: "the checkpoint belongs to another kind of database".into(),
            });
        };
        let mut builder = self
            .attempt
            .batch_builder(number, format!(" of tokens {range}"));
        let mut paging_state = PagingState::start();
        loop {
            let bounds = (range.after, range.last);
            let page = self
                .session
                .execute_single_page(self.range_statement, bounds, paging_state);
            let (page, next_state) = page.await.map_err(fail)?;
            let invalid = |error: crate::Cause| self.source.fail(false, error);
            let page = page.into_rows_result().map_err(|e| invalid(e.into()))?;
            let rows = page.rows::<ColumnIterator<'_, '_>>();
            for row in rows.map_err(|e| invalid(e.into()))? {
                let mut row = row.map_err(|e| invalid(e.into()))?;
                let id = row.next().transpose().map_err(|e| invalid(e.into()))?;
                let raw = id.and_then(|id| id.slice).map(|slice| slice.as_slice());
                let value = self.encoding.value(raw).map_err(|e| invalid(e.into()))?;
                if builder.add_row(value)? {
                    self.sink.send(builder.take_batch(None)).await?;
                }
            }
            match next_state.into_paging_control_flow() {
                std::ops::ControlFlow::Break(()) => break,
                std::ops::ControlFlow::Continue(next) => paging_state = next,
            }
        }
        self.sink.send(builder.finish()).await
    }
}

impl Source for Cassandra {
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
            let statement = self.prepare(&session, without_semicolon(query)).await?;
            let specs = statement.get_current_result_set_col_specs();
            let specs = specs.get();
            let variables = statement.get_variable_col_specs();
            let ([id, number], [after]) = (specs.as_slice(), variables.as_slice()) else {
                return Err(SourceError::Columns {
                    found: specs.len(),
                    expected: "a query with two columns (id and number) and one parameter `?` is expected",
                });
            };
            let connection = CassandraChanges {
                id: Encoding::id(id)?,
                number: Encoding::number(number)?,
                after: Encoding::number(after)?,
                source: Self {
                    label: self.label.clone(),
                    cluster: self.cluster.clone(),
                    options: self.options.clone(),
                },
                session,
                statement: statement.clone(),
            };
            Ok(Box::new(connection) as Box<dyn ChangesConnection>)
        })
    }
}

/// A session that polls changes.
struct CassandraChanges {
    source: Cassandra,
    session: Session,
    statement: PreparedStatement,
    /// The encodings of the two columns of the query: the id, and the number of the change.
    id: Encoding,
    number: Encoding,
    /// The encoding of the query's parameter: the number after which changes are read.
    after: Encoding,
}

impl ChangesConnection for CassandraChanges {
    fn form(&self) -> IdForm {
        self.id.form()
    }

    fn unit(&self) -> Unit {
        match self.number {
            // Milliseconds since 1970, in UTC.
            Encoding::Time => Unit::Time {
                per_second: 1000,
                zero: 0,
                ahead: Duration::ZERO,
            },
            _ => Unit::Number,
        }
    }

    /// Passes the rows in the order of their numbers. Cassandra does not sort the rows of several partitions by
    /// their numbers, so this function first reads and sorts all rows of the poll.
    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()> {
        Box::pin(async move {
            let invalid = |error: crate::Cause| self.source.fail(false, error);
            let mut changes: Vec<(Option<i64>, Option<Arc<[u8]>>)> = Vec::new();
            let mut paging_state = PagingState::start();
            loop {
                let (session, statement) = (&self.session, &self.statement);
                let page = match self.after {
                    Encoding::Time => {
                        let after = (CqlTimestamp(after),);
                        session
                            .execute_single_page(statement, after, paging_state)
                            .await
                    }
                    Encoding::Int4 => {
                        let after = after.clamp(i32::MIN.into(), i32::MAX.into());
                        let after = (i32::try_from(after).expect("the value was clamped"),);
                        session
                            .execute_single_page(statement, after, paging_state)
                            .await
                    }
                    _ => {
                        session
                            .execute_single_page(statement, (after,), paging_state)
                            .await
                    }
                };
                let (page, next_state) =
                    page.map_err(|error| self.source.execution_error(error))?;
                let page = page.into_rows_result().map_err(|e| invalid(e.into()))?;
                let read = page.rows::<ColumnIterator<'_, '_>>();
                for row in read.map_err(|e| invalid(e.into()))? {
                    let mut row = row.map_err(|e| invalid(e.into()))?;
                    let mut next = || {
                        let column = row.next().transpose().map_err(|e| invalid(e.into()))?;
                        let slice = column.and_then(|column| column.slice);
                        Ok::<_, SourceError>(slice.map(|slice| slice.as_slice()))
                    };
                    let (id, number) = (next()?, next()?);
                    let number = self.number.value(number).map_err(|e| invalid(e.into()))?;
                    let number = match number {
                        Value::Integer(number) => Some(number),
                        _ => None,
                    };
                    changes.push((number, id.map(Arc::from)));
                }
                if changes.len() > CHANGES_MAX {
                    return Err(invalid(
                        format!("the query returned more than {CHANGES_MAX} changes at once")
                            .into(),
                    ));
                }
                match next_state.into_paging_control_flow() {
                    std::ops::ControlFlow::Break(()) => break,
                    std::ops::ControlFlow::Continue(next) => paging_state = next,
                }
            }
            changes.sort_unstable_by_key(|(number, _)| *number);
            for (number, id) in changes {
                let id = self
                    .id
                    .value(id.as_deref())
                    .map_err(|e| invalid(e.into()))?;
                match number {
                    Some(number) => rows.add_row(id, number)?,
                    None => rows.add_row_without_number(id, "the change has no number")?,
                }
            }
            Ok(())
        })
    }
}

/// The encoding of a column's values in the CQL protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Int1,
    Int2,
    Int4,
    Int8,
    Uuid,
    Text,
    Bytes,
    /// Milliseconds since 1970.
    Time,
}

impl Encoding {
    fn of_column(
        column: &ColumnSpec<'_>,
        allowed: impl Fn(Self) -> bool,
    ) -> Result<Self, SourceError> {
        let encoding = match column.typ() {
            ColumnType::Native(native) => match native {
                NativeType::TinyInt => Some(Self::Int1),
                NativeType::SmallInt => Some(Self::Int2),
                NativeType::Int => Some(Self::Int4),
                NativeType::BigInt | NativeType::Counter => Some(Self::Int8),
                NativeType::Uuid | NativeType::Timeuuid => Some(Self::Uuid),
                NativeType::Text | NativeType::Ascii => Some(Self::Text),
                NativeType::Blob => Some(Self::Bytes),
                NativeType::Timestamp => Some(Self::Time),
                _ => None,
            },
            _ => None,
        };
        encoding
            .filter(|encoding| allowed(*encoding))
            .ok_or_else(|| SourceError::ColumnType {
                column: column.name().to_owned(),
                type_name: format!("{:?}", column.typ()),
            })
    }

    /// Returns the encoding of an id column. A timestamp is not an id.
    fn id(column: &ColumnSpec<'_>) -> Result<Self, SourceError> {
        Self::of_column(column, |encoding| encoding != Self::Time)
    }

    /// Returns the encoding of a column or parameter with the number of a change.
    fn number(column: &ColumnSpec<'_>) -> Result<Self, SourceError> {
        Self::of_column(column, |encoding| {
            matches!(encoding, Self::Int4 | Self::Int8 | Self::Time)
        })
    }

    fn form(self) -> IdForm {
        match self {
            Self::Int1 | Self::Int2 | Self::Int4 | Self::Int8 | Self::Time => IdForm::Integer,
            Self::Uuid => IdForm::Uuid,
            Self::Text | Self::Bytes => IdForm::Text,
        }
    }

    fn value(self, raw: Option<&[u8]>) -> Result<Value<'_>, String> {
        let Some(raw) = raw else {
            return Ok(Value::Null);
        };
        let value = match self {
            Self::Text => Some(Value::Text(raw)),
            Self::Bytes => Some(Value::Bytes(raw)),
            Self::Uuid => raw.try_into().ok().map(Value::Uuid),
            Self::Int1 => raw
                .try_into()
                .ok()
                .map(|raw| i8::from_be_bytes(raw).into())
                .map(Value::Integer),
            Self::Int2 => raw
                .try_into()
                .ok()
                .map(|raw| i16::from_be_bytes(raw).into())
                .map(Value::Integer),
            Self::Int4 => raw
                .try_into()
                .ok()
                .map(|raw| i32::from_be_bytes(raw).into())
                .map(Value::Integer),
            Self::Int8 | Self::Time => raw
                .try_into()
                .ok()
                .map(i64::from_be_bytes)
                .map(Value::Integer),
        };
        value.ok_or_else(|| format!("{} bytes are not a valid {self:?}", raw.len()))
    }
}

/// Returns true if the error may be temporary.
fn is_transient(error: &RequestAttemptError) -> bool {
    match error {
        RequestAttemptError::DbError(server_error, _) => matches!(
            server_error,
            DbError::Unavailable { .. }
                | DbError::Overloaded
                | DbError::IsBootstrapping
                | DbError::ReadTimeout { .. }
                | DbError::ReadFailure { .. }
                | DbError::ServerError
                | DbError::RateLimitReached { .. }
        ),
        RequestAttemptError::SerializationError(_) => false,
        _ => true,
    }
}

fn without_semicolon(query: &str) -> &str {
    query.trim().trim_end_matches(';')
}

/// The largest number of changes of one poll. The poll sorts its changes in memory; this number of changes takes about
/// 300 MB if the ids are UUIDs.
const CHANGES_MAX: usize = 1 << 22;
