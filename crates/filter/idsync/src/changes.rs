//! Polls a database for changes, by a query on a column whose values only grow.
//!
//! The query returns two columns, an id and a number (or a time). The query has one parameter and returns the
//! rows with a greater number: `SELECT id, seq FROM resource WHERE seq > $1 ORDER BY seq`.
//!
//! **Numbers are assigned before their rows are committed**, so a row can appear with a smaller number than
//! rows already read. Example: transaction A takes 7, B takes 8 and commits, a poll reads 8, A commits 7. Each
//! poll therefore begins [`ChangesConfig::look_back`] below the highest number read. A row is missed only if more
//! numbers than this look-back were assigned while the transaction of the row was open. The look-back must cover the
//! longest transaction that writes ids. If the column is a time, the look-back is [`ChangesConfig::look_back_time`].
//!
//! A poll is one statement, so it reads one state of the database, however many rows it returns. If several
//! statements read the rows, a row could be committed between two statements with a number that is too small
//! for the look-back. The rows are delivered in batches, so memory is bounded. The poller stores which rows of
//! the look-back were delivered, so that each row is delivered only once.
//!
//! **A malformed row does not stop the polls.** If a poll failed at an id that does not have the configured
//! form ([`ChangesConfig::form`]), every later poll would fail at the same row, and no later change would be
//! read. The row is therefore skipped and counted ([`ChangesPoller::take_malformed`]). If only the number of a
//! row is missing or has another type, the row is counted too, but its id is delivered.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use edgeward_filter::{IdForm, IdText};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::batch::Batch;
use crate::error::SourceError;
use crate::scan::{Source, SourceFuture};
use crate::value::Value;

/// A connection that polls one changes query.
pub trait ChangesConnection: Send {
    /// Returns the form of the ids, by the type of their column.
    fn form(&self) -> IdForm;

    /// Returns the unit of the column that orders changes.
    fn unit(&self) -> Unit {
        Unit::Number
    }

    /// Passes each row with a number above `after` to `rows`, in the order of the numbers.
    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> SourceFuture<'a, ()>;
}

/// The unit of the column that orders changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers without a unit, for example of a sequence.
    Number,
    /// Times.
    Time {
        /// The number of the column's units in a second, for example 1000 for milliseconds.
        per_second: i64,
        /// The zero of the column's times, in seconds after 1970.
        zero: i64,
        /// The largest difference by which a valid time can be ahead of UTC. It is 0 if the times are in UTC,
        /// and 14 h if their time zone is unknown.
        ahead: Duration,
    },
}

impl Unit {
    /// Returns the look-back in units of the column: the difference between the highest number read and the number at
    /// which a poll begins.
    fn look_back(self, config: &ChangesConfig) -> i64 {
        let look_back = match self {
            Self::Number => config.look_back.into(),
            Self::Time { per_second, .. } => {
                // Rounded up, so that the look-back is not shorter than configured.
                let nanos = config.look_back_time.as_nanos();
                let ticks = nanos.saturating_mul(u128::from(per_second.unsigned_abs()));
                ticks.div_ceil(1_000_000_000)
            }
        };
        i64::try_from(look_back).unwrap_or(i64::MAX)
    }

    /// Returns the highest plausible value of the column at the time `now`. If a row has a higher value, a clock or
    /// a time zone is wrong.
    fn highest_plausible(self, now: SystemTime) -> i64 {
        let Self::Time {
            per_second,
            zero,
            ahead,
        } = self
        else {
            return i64::MAX;
        };
        let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default() + ahead;
        let ticks = since_1970.as_nanos() * u128::from(per_second.unsigned_abs()) / 1_000_000_000;
        let ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
        ticks.saturating_sub(zero.saturating_mul(per_second))
    }
}

/// The configuration of polls.
#[derive(Clone, Debug)]
pub struct ChangesConfig {
    /// The query, with two columns and one parameter (`$1` in PostgreSQL, `?` elsewhere).
    pub query: String,
    /// The form of the ids. Default: by the type of their column.
    pub form: Option<IdForm>,
    /// The look-back in numbers: a poll begins at the highest number read minus this value.
    pub look_back: u64,
    /// The look-back in time, if the column is a time: a poll begins at the highest time read minus this duration.
    pub look_back_time: Duration,
    /// A poll fails if no row arrives within this time, because the connection may be dead.
    pub stall: Duration,
    /// The number of ids in a batch.
    pub batch_ids: usize,
}

impl ChangesConfig {
    /// Returns the configuration for a query, with a look-back of 10,000 numbers or 5 s. Adjust the look-back to
    /// the longest transaction.
    pub fn new(query: impl Into<String>) -> Self {
        Self {
            query: query.into(),
            form: None,
            look_back: 10_000,
            // Single inserts commit within milliseconds, ordinary transactions within one or two seconds.
            look_back_time: Duration::from_secs(5),
            // A query without an index reads its whole table before it returns the first row.
            stall: Duration::from_secs(60),
            batch_ids: 8192,
        }
    }
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollResult {
    /// The number of ids delivered.
    pub ids: u64,
    /// The number of malformed rows. The row was skipped if its id is malformed, and delivered if only its number is.
    pub malformed: u64,
    /// The highest number read so far; rows with an implausible time do not count. If a later run of the
    /// program passes this number to [`ChangesPoller::new`], its first poll begins at this number minus the
    /// look-back.
    pub cursor: i64,
    /// The time at which the poll began. All rows committed before this time are delivered, unless the
    /// look-back is too short.
    pub as_of: SystemTime,
}

/// The malformed rows since the last call of [`ChangesPoller::take_malformed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MalformedRows {
    /// The number of rows.
    pub rows: u64,
    /// The first malformed row.
    pub first: Option<MalformedRow>,
}

/// A malformed row of the changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedRow {
    /// The row's number in the column that orders changes. `None` if this column is the malformed one.
    pub position: Option<i64>,
    /// A description of the problem.
    pub error: String,
}

/// Polls a source for changes. Its methods block and must not be called within an async runtime.
pub struct ChangesPoller {
    source: Arc<dyn Source>,
    config: ChangesConfig,
    runtime: Runtime,
    connection: Option<Box<dyn ChangesConnection>>,
    cursor: i64,
    recent_rows: RecentRows,
    malformed: MalformedRows,
    stop: Arc<watch::Sender<bool>>,
}

/// Stops a poll from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Ends the current poll and every later one with [`SourceError::Cancelled`].
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl ChangesPoller {
    /// Creates a poller whose first poll begins at `cursor` minus the look-back. `i64::MIN` reads all rows.
    pub fn new(
        source: Arc<dyn Source>,
        config: ChangesConfig,
        cursor: i64,
    ) -> Result<Self, SourceError> {
        let runtime = crate::scan::runtime(source.as_ref())?;
        Ok(Self {
            source,
            config,
            runtime,
            connection: None,
            cursor,
            recent_rows: RecentRows::default(),
            malformed: MalformedRows::default(),
            stop: Arc::new(watch::Sender::new(false)),
        })
    }

    /// Returns a handle that stops polls from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Returns the highest number read so far, without rows with an implausible time. The next poll begins at
    /// this number minus the look-back.
    pub fn cursor(&self) -> i64 {
        self.cursor
    }

    /// Returns the malformed rows of all polls since the last call of this function, also of polls that failed. If
    /// several polls read a row because of the look-back, the row counts once.
    pub fn take_malformed(&mut self) -> MalformedRows {
        std::mem::take(&mut self.malformed)
    }

    /// Sets the cursor and forgets which rows were delivered. The next poll begins at the cursor minus the look-back.
    pub fn seek(&mut self, cursor: i64) {
        self.cursor = cursor;
        self.recent_rows = RecentRows::default();
    }

    /// Connects if necessary, and prepares the query. Returns the unit of the column that orders changes. Calling this
    /// function before the first poll reports a configuration error early.
    pub fn connect(&mut self, timeout: Duration) -> Result<Unit, SourceError> {
        let source = Arc::clone(&self.source);
        let (query, open_connection) = (&self.config.query, self.connection.take());
        let connection = self.runtime.block_on(async {
            if let Some(connection) = open_connection {
                return Ok(connection);
            }
            let connecting = tokio::time::timeout(timeout, source.connect_changes(query));
            connecting
                .await
                .unwrap_or_else(|_| Err(stall_error(&*source)))
        })?;
        let unit = connection.unit();
        self.connection = Some(connection);
        Ok(unit)
    }

    /// Passes the ids since the last poll to `each`, in batches.
    ///
    /// After an error, the next poll connects again and delivers the batches that `each` has not accepted. No id is
    /// missed, but ids may be delivered twice.
    pub fn poll(&mut self, each: &mut dyn FnMut(Batch)) -> Result<PollResult, SourceError> {
        self.poll_while(&mut |batch| {
            each(batch);
            true
        })
    }

    /// Like [`Self::poll`], but stops when `each` returns false for a batch that it could not accept. The poll
    /// then fails with [`SourceError::NotAccepted`], and the next poll delivers the batch again.
    pub fn poll_while(
        &mut self,
        each: &mut dyn FnMut(Batch) -> bool,
    ) -> Result<PollResult, SourceError> {
        let as_of = SystemTime::now();
        let (source, config, cursor) = (Arc::clone(&self.source), &self.config, self.cursor);
        let rows_read = Cell::new(0);
        let (open_connection, mut stopping) = (self.connection.take(), self.stop.subscribe());
        let mut rows = Rows {
            form: IdForm::Text,
            config,
            look_back: 0,
            highest_plausible: i64::MAX,
            recent_rows: &mut self.recent_rows,
            each,
            batch: Batch::default(),
            pending: Vec::new(),
            last_number: None,
            last_plausible: None,
            accepted_up_to: None,
            ids: 0,
            malformed: MalformedRows::default(),
            rows_read: &rows_read,
            stopping: stopping.clone(),
        };
        let result = self.runtime.block_on(async {
            let work = async {
                let mut connection = match open_connection {
                    Some(connection) => connection,
                    None => source.connect_changes(&config.query).await?,
                };
                let unit = connection.unit();
                rows.form = config.form.unwrap_or_else(|| connection.form());
                rows.look_back = unit.look_back(config);
                rows.highest_plausible = unit.highest_plausible(as_of);
                let after = cursor.saturating_sub(rows.look_back);
                connection.poll(after, &mut rows).await?;
                rows.flush()?;
                rows.accepted_up_to = rows.last_plausible;
                Ok(connection)
            };
            tokio::select! {
                biased;
                result = work => result,
                _ = stopping.wait_for(|stop| *stop) => Err(SourceError::Cancelled),
                () = wait_for_stall(&rows_read, config.stall) => Err(stall_error(&*source)),
            }
        });
        let (accepted_up_to, ids, malformed_rows) = (rows.accepted_up_to, rows.ids, rows.malformed);
        self.cursor = cursor.max(accepted_up_to.unwrap_or(cursor));
        let malformed = malformed_rows.rows;
        self.malformed.rows += malformed_rows.rows;
        self.malformed.first = self.malformed.first.take().or(malformed_rows.first);
        // The connection is reused only after success.
        self.connection = Some(result?);
        Ok(PollResult {
            ids,
            malformed,
            cursor: self.cursor,
            as_of,
        })
    }

    /// Reads all present rows without delivering them. The next poll returns only rows that are committed later. The
    /// caller must call this function before it begins a scan, so that each row is read by the scan or by a poll.
    pub fn skip_to_head(&mut self) -> Result<PollResult, SourceError> {
        self.poll(&mut |_| ())
    }
}

/// Returns when no row was read for `timeout`.
async fn wait_for_stall(rows_read: &Cell<u64>, timeout: Duration) {
    loop {
        let before = rows_read.get();
        tokio::time::sleep(timeout).await;
        if rows_read.get() == before {
            return;
        }
    }
}

fn stall_error(source: &dyn Source) -> SourceError {
    SourceError::Lost {
        label: source.label(),
        cause: "timeout: the database did not answer in time".into(),
    }
}

impl std::fmt::Debug for ChangesPoller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("ChangesPoller");
        debug.field("source", &self.source.label());
        debug.field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// Receives the rows of a poll.
pub struct Rows<'a> {
    config: &'a ChangesConfig,
    form: IdForm,
    look_back: i64,
    /// Rows above this number have an implausible time.
    highest_plausible: i64,
    recent_rows: &'a mut RecentRows,
    each: &'a mut dyn FnMut(Batch) -> bool,
    batch: Batch,
    /// The rows of the current batch. When the caller accepts the batch, these rows are stored as delivered.
    pending: Vec<(i64, u64)>,
    /// The number of the last row.
    last_number: Option<i64>,
    /// The number of the last row with a plausible time.
    last_plausible: Option<i64>,
    /// The caller has accepted all rows up to this number.
    accepted_up_to: Option<i64>,
    ids: u64,
    malformed: MalformedRows,
    rows_read: &'a Cell<u64>,
    stopping: watch::Receiver<bool>,
}

impl Rows<'_> {
    /// Adds a row.
    pub fn add_row(&mut self, id: Value<'_>, number: i64) -> Result<(), SourceError> {
        if self.last_number.is_some_and(|last| number < last) {
            return Err(SourceError::Unordered { number });
        }
        // The SQLite library blocks this thread. The cancellation is therefore checked here, once in 1024 rows.
        if self.rows_read.get().is_multiple_of(1024) && *self.stopping.borrow() {
            return Err(SourceError::Cancelled);
        }
        self.rows_read.set(self.rows_read.get() + 1);
        self.last_number = Some(number);
        if number <= self.highest_plausible {
            self.last_plausible = Some(number);
            self.recent_rows
                .forget_up_to(number.saturating_sub(self.look_back));
        }
        self.add_id(id, number, Some(number));
        self.flush_if_full()
    }

    /// Adds a row whose number is missing or has another type. `error` describes the problem for the operator.
    ///
    /// The id is delivered, because it may be valid. The cursor does not change. Every later poll may return this
    /// row again, so the row is stored as delivered for the lifetime of this process.
    pub fn add_row_without_number(
        &mut self,
        id: Value<'_>,
        error: &str,
    ) -> Result<(), SourceError> {
        self.rows_read.set(self.rows_read.get() + 1);
        if self.add_id(id, i64::MAX, None) {
            self.count_malformed(None, error.to_owned());
        }
        self.flush_if_full()
    }

    /// Adds the row's id to the batch, or counts the row as malformed. Returns true if the row is new and has a
    /// valid id.
    fn add_id(&mut self, id: Value<'_>, number: i64, position: Option<i64>) -> bool {
        self.batch.progress.rows += 1;
        let mut buffer = IdText::default();
        match id.canonical(self.form, &mut buffer) {
            Ok(id) => {
                let row = self.recent_rows.entry(number, id);
                let is_new = self.recent_rows.is_new(row);
                if is_new {
                    self.batch.push(id);
                    self.pending.push(row);
                }
                is_new
            }
            Err(error) => {
                let row = self.recent_rows.malformed_entry(number, id);
                if self.recent_rows.is_new(row) {
                    self.pending.push(row);
                    self.count_malformed(position, error);
                }
                false
            }
        }
    }

    fn count_malformed(&mut self, position: Option<i64>, error: String) {
        self.batch.progress.malformed += 1;
        let first = &mut self.malformed.first;
        first.get_or_insert(MalformedRow { position, error });
    }

    fn flush_if_full(&mut self) -> Result<(), SourceError> {
        if self.batch.is_full(self.config.batch_ids.max(1)) {
            self.flush()?;
            // More rows with the same number may follow.
            self.accepted_up_to = self
                .last_plausible
                .map(|last_plausible| last_plausible.saturating_sub(1));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SourceError> {
        let batch = std::mem::take(&mut self.batch);
        let (ids, malformed) = (batch.len() as u64, batch.progress.malformed);
        if !batch.is_empty() && !(self.each)(batch) {
            return Err(SourceError::NotAccepted);
        }
        self.ids += ids;
        self.malformed.rows += malformed;
        let delivered = self.pending.drain(..);
        delivered.for_each(|row| self.recent_rows.remember(row));
        Ok(())
    }
}

/// The rows within the look-back that were already delivered.
#[derive(Debug, Default)]
struct RecentRows {
    /// Numbers and keyed hashes of ids. The random key prevents chosen collisions.
    rows: BTreeSet<(i64, u64)>,
    keys: RandomState,
}

impl RecentRows {
    fn entry(&self, number: i64, id: &[u8]) -> (i64, u64) {
        (number, self.keys.hash_one(id))
    }

    /// Returns the entry of a row with a malformed id. A [`Value`] hashes differently from the bytes of a valid
    /// id, so the entry differs from the entry of every valid row.
    fn malformed_entry(&self, number: i64, id: Value<'_>) -> (i64, u64) {
        (number, self.keys.hash_one(id))
    }

    fn is_new(&self, row: (i64, u64)) -> bool {
        !self.rows.contains(&row)
    }

    fn remember(&mut self, row: (i64, u64)) {
        if self.rows.len() < RECENT_ROWS_MAX {
            self.rows.insert(row);
        }
    }

    fn forget_up_to(&mut self, number: i64) {
        while let Some(first) = self.rows.first()
            && first.0 <= number
        {
            self.rows.pop_first();
        }
    }
}

/// The largest number of stored rows, which take about 20 MB. If the look-back has more rows, each poll
/// delivers the rows beyond this number again.
const RECENT_ROWS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
