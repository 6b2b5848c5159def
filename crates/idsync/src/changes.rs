//! Ids added since: a query on a column that only grows, asked again and again.
//!
//! The query gives two columns, an id and a number (or a time), and takes the number after which to
//! begin: `SELECT id, seq FROM resource WHERE seq > $1 ORDER BY seq`.
//!
//! **Numbers are drawn before their rows are committed**, so a row can appear behind one that was
//! already seen: transaction A draws 7, B draws 8 and commits, we see 8, A commits 7. Each poll
//! therefore begins [`ChangesConfig::overlap`] below the highest number seen. A row is missed only
//! if its transaction stays open while the others draw more numbers than that, so the overlap has to
//! cover the longest transaction that writes ids; where the column is a time, it is that long.
//!
//! A poll is one statement and sees one state of the database, however many rows it gives: were a
//! long backlog cut into several statements, rows committed between two of them would lie further
//! back than the overlap reaches. It comes in batches, so that memory is bounded nevertheless.
//! What lies in the overlap is remembered and handed over once.
//!
//! **A malformed row stops nothing.** One row whose id is not of the set's form would otherwise fail every poll,
//! and with it all later changes. Such a row is skipped and counted ([`Changes::take_malformed`]). A row
//! whose number is missing or of another type has a valid id, which is handed over.

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
use crate::scan::{Reading, Source};
use crate::value::Value;

/// A connection that answers one query of changes.
pub trait Feed: Send {
    /// What the id's column holds.
    fn form(&self) -> IdForm;

    /// What orders the changes.
    fn unit(&self) -> Unit {
        Unit::Number
    }

    /// Gives each row with a number above `after` to `rows`, in the order of their numbers.
    fn poll<'a>(&'a mut self, after: i64, rows: &'a mut Rows<'_>) -> Reading<'a, ()>;
}

/// What the column that orders changes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers, of whatever meaning.
    Number,
    /// Times.
    Time {
        /// What a second is counted as.
        per_second: i64,
        /// Where they begin: seconds after 1970.
        zero: i64,
        /// How far ahead of UTC they can rightly be, being of another zone that is not said.
        ahead: Duration,
    },
}

impl Unit {
    /// How far below the highest a poll begins.
    fn overlap(self, config: &ChangesConfig) -> i64 {
        let overlap = match self {
            Self::Number => config.overlap.into(),
            Self::Time { per_second, .. } => {
                // Rounded up: the bound is to be covered whole.
                let nanos = config.overlap_time.as_nanos();
                let ticks = nanos.saturating_mul(u128::from(per_second.unsigned_abs()));
                ticks.div_ceil(1_000_000_000)
            }
        };
        i64::try_from(overlap).unwrap_or(i64::MAX)
    }

    /// The highest value that is no mistake at a moment.
    fn highest(self, now: SystemTime) -> i64 {
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

/// How changes are followed.
#[derive(Clone, Debug)]
pub struct ChangesConfig {
    /// The query, with two columns and one parameter (`$1` in PostgreSQL, `?` elsewhere).
    pub query: String,
    /// What the ids are, if not what the column's type says.
    pub form: Option<IdForm>,
    /// How far below the highest number a poll begins.
    pub overlap: u64,
    /// The same where the column is a time.
    pub overlap_time: Duration,
    /// A poll that brings no row for so long is given up: the connection may be dead without a sign.
    pub stall: Duration,
    /// Ids of a batch.
    pub batch_ids: usize,
}

impl ChangesConfig {
    /// One for this query, with an overlap of 10,000 numbers or 5 s: to be set for what the database is
    /// used for.
    pub fn new(query: impl Into<String>) -> Self {
        Self {
            query: query.into(),
            form: None,
            overlap: 10_000,
            // Single inserts commit within milliseconds, ordinary transactions within a second or two.
            overlap_time: Duration::from_secs(5),
            // A query without an index reads its whole table before the first row.
            stall: Duration::from_secs(60),
            batch_ids: 8192,
        }
    }
}

/// What a poll brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Ids handed over.
    pub ids: u64,
    /// Rows left out because they are no ids.
    pub malformed: u64,
    /// The highest number seen so far: a later run begins here.
    pub cursor: i64,
    /// When the poll began. What was committed before it is handed over, as far as the overlap
    /// covers it.
    pub as_of: SystemTime,
}

/// Malformed rows since [`Changes::take_malformed`] was last called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MalformedRows {
    /// The number of rows.
    pub rows: u64,
    /// The first of them.
    pub first: Option<MalformedRow>,
}

/// A row of the changes that could not be used as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedRow {
    /// The row's number in the column that orders changes. `None` if that column was the malformed one.
    pub position: Option<i64>,
    /// What is wrong with the row.
    pub error: String,
}

/// Follows a source's changes. Blocks; it is not for use inside a runtime.
pub struct Changes {
    source: Arc<dyn Source>,
    config: ChangesConfig,
    runtime: Runtime,
    feed: Option<Box<dyn Feed>>,
    cursor: i64,
    seen: Seen,
    malformed: MalformedRows,
    stop: Arc<watch::Sender<bool>>,
}

/// Ends a poll from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// The poll that runs and every later one gets [`SourceError::Cancelled`].
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Changes {
    /// Follows `source` from `cursor` on: `i64::MIN` for everything there is.
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
            feed: None,
            cursor,
            seen: Seen::default(),
            malformed: MalformedRows::default(),
            stop: Arc::new(watch::Sender::new(false)),
        })
    }

    /// For whoever wants to end it.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.stop))
    }

    /// Where the next poll begins, but for the overlap.
    pub fn cursor(&self) -> i64 {
        self.cursor
    }

    /// Returns the malformed rows of all polls since the last call, also of polls that failed. A row within the
    /// overlap counts once.
    pub fn take_malformed(&mut self) -> MalformedRows {
        std::mem::take(&mut self.malformed)
    }

    /// Goes on from elsewhere.
    pub fn go_to(&mut self, cursor: i64) {
        self.cursor = cursor;
        self.seen = Seen::default();
    }

    /// Connects if need be, and asks the database what the query gives. A poll does the same; this is
    /// for who wants to hear of a mistake at once.
    pub fn connect(&mut self, patience: Duration) -> Result<Unit, SourceError> {
        let source = Arc::clone(&self.source);
        let (query, connected) = (&self.config.query, self.feed.take());
        let feed = self.runtime.block_on(async {
            if let Some(feed) = connected {
                return Ok(feed);
            }
            let following = tokio::time::timeout(patience, source.follow(query));
            following.await.unwrap_or_else(|_| Err(stalled(&*source)))
        })?;
        let unit = feed.unit();
        self.feed = Some(feed);
        Ok(unit)
    }

    /// Hands what came since the last poll to `each`, in batches.
    ///
    /// After an error the next poll connects anew, begins where the last batch of this one ended and
    /// misses nothing; ids may then come twice.
    pub fn poll(&mut self, each: &mut dyn FnMut(Batch)) -> Result<Polled, SourceError> {
        self.poll_while(&mut |batch| {
            each(batch);
            true
        })
    }

    /// The same, as long as `each` says that it has taken its batch. One that it has not taken comes
    /// again with the next poll, and this one ends with [`SourceError::NotTaken`].
    pub fn poll_while(
        &mut self,
        each: &mut dyn FnMut(Batch) -> bool,
    ) -> Result<Polled, SourceError> {
        let as_of = SystemTime::now();
        let (source, config, cursor) = (Arc::clone(&self.source), &self.config, self.cursor);
        let read = Cell::new(0);
        let (connected, mut stopping) = (self.feed.take(), self.stop.subscribe());
        let mut rows = Rows {
            form: IdForm::Text,
            config,
            overlap: 0,
            highest: i64::MAX,
            seen: &mut self.seen,
            each,
            batch: Batch::default(),
            pending: Vec::new(),
            last: None,
            placed: None,
            handed: None,
            ids: 0,
            malformed: MalformedRows::default(),
            read: &read,
            stopping: stopping.clone(),
        };
        let done = self.runtime.block_on(async {
            let work = async {
                let mut feed = match connected {
                    Some(feed) => feed,
                    None => source.follow(&config.query).await?,
                };
                let unit = feed.unit();
                rows.form = config.form.unwrap_or_else(|| feed.form());
                rows.overlap = unit.overlap(config);
                rows.highest = unit.highest(as_of);
                let after = cursor.saturating_sub(rows.overlap);
                feed.poll(after, &mut rows).await?;
                rows.flush()?;
                rows.handed = rows.placed;
                Ok(feed)
            };
            tokio::select! {
                biased;
                done = work => done,
                _ = stopping.wait_for(|stop| *stop) => Err(SourceError::Cancelled),
                () = stalls(&read, config.stall) => Err(stalled(&*source)),
            }
        });
        let (handed, ids, found) = (rows.handed, rows.ids, rows.malformed);
        self.cursor = cursor.max(handed.unwrap_or(cursor));
        let malformed = found.rows;
        self.malformed.rows += found.rows;
        self.malformed.first = self.malformed.first.take().or(found.first);
        // Only a connection that did its work is kept.
        self.feed = Some(done?);
        Ok(Polled {
            ids,
            malformed,
            cursor: self.cursor,
            as_of,
        })
    }

    /// Passes over everything there is now, so that the next poll brings what comes later. To be
    /// called before a scan begins, so that nothing falls between the two.
    pub fn skip_to_head(&mut self) -> Result<Polled, SourceError> {
        self.poll(&mut |_| ())
    }
}

/// Comes back when no row was read for so long.
async fn stalls(read: &Cell<u64>, patience: Duration) {
    loop {
        let before = read.get();
        tokio::time::sleep(patience).await;
        if read.get() == before {
            return;
        }
    }
}

fn stalled(source: &dyn Source) -> SourceError {
    SourceError::Lost {
        label: source.label(),
        cause: "it did not answer in time".into(),
    }
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Changes");
        debug.field("source", &self.source.label());
        debug.field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

/// Takes the rows of a poll.
pub struct Rows<'a> {
    config: &'a ChangesConfig,
    form: IdForm,
    overlap: i64,
    /// What is above has a wrong time.
    highest: i64,
    seen: &'a mut Seen,
    each: &'a mut dyn FnMut(Batch) -> bool,
    batch: Batch,
    /// Of the batch: to be remembered once it is taken.
    pending: Vec<(i64, u64)>,
    last: Option<i64>,
    /// The last with a time that can be right.
    placed: Option<i64>,
    /// All rows up to this one are taken.
    handed: Option<i64>,
    ids: u64,
    malformed: MalformedRows,
    read: &'a Cell<u64>,
    stopping: watch::Receiver<bool>,
}

impl Rows<'_> {
    /// Takes a row.
    pub fn row(&mut self, id: Value<'_>, number: i64) -> Result<(), SourceError> {
        if self.last.is_some_and(|last| number < last) {
            return Err(SourceError::Unordered { number });
        }
        // A client that blocks is stopped here.
        if self.read.get().is_multiple_of(1024) && *self.stopping.borrow() {
            return Err(SourceError::Cancelled);
        }
        self.read.set(self.read.get() + 1);
        self.last = Some(number);
        if number <= self.highest {
            self.placed = Some(number);
            self.seen.forget_up_to(number.saturating_sub(self.overlap));
        }
        self.take(id, number, Some(number));
        self.flush_if_full()
    }

    /// Takes a row whose number is missing or of another type: `error` says which.
    ///
    /// The id is handed over, because it may be valid, and the position stays. The database gives such a row
    /// with each poll or with none, so it is remembered for as long as this process runs.
    pub fn row_without_number(&mut self, id: Value<'_>, error: &str) -> Result<(), SourceError> {
        self.read.set(self.read.get() + 1);
        if self.take(id, i64::MAX, None) {
            self.count_malformed(None, error.to_owned());
        }
        self.flush_if_full()
    }

    /// Puts the row's id into the batch, or counts the row as malformed. Returns whether the row is a new one
    /// with a valid id.
    fn take(&mut self, id: Value<'_>, number: i64, position: Option<i64>) -> bool {
        self.batch.reached.rows += 1;
        let mut room = IdText::default();
        match id.canonical(self.form, &mut room) {
            Ok(id) => {
                let row = self.seen.row(number, id);
                let is_new = self.seen.is_new(row);
                if is_new {
                    self.batch.push(id);
                    self.pending.push(row);
                }
                is_new
            }
            Err(error) => {
                let row = self.seen.malformed_row(number, id);
                if self.seen.is_new(row) {
                    self.pending.push(row);
                    self.count_malformed(position, error);
                }
                false
            }
        }
    }

    fn count_malformed(&mut self, position: Option<i64>, error: String) {
        self.batch.reached.malformed += 1;
        let first = &mut self.malformed.first;
        first.get_or_insert(MalformedRow { position, error });
    }

    fn flush_if_full(&mut self) -> Result<(), SourceError> {
        if self.batch.is_full(self.config.batch_ids.max(1)) {
            self.flush()?;
            // There may be more with the same number.
            self.handed = self.placed.map(|placed| placed.saturating_sub(1));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SourceError> {
        let batch = std::mem::take(&mut self.batch);
        let (ids, malformed) = (batch.len() as u64, batch.reached.malformed);
        if !batch.is_empty() && !(self.each)(batch) {
            return Err(SourceError::NotTaken);
        }
        self.ids += ids;
        self.malformed.rows += malformed;
        let taken = self.pending.drain(..);
        taken.for_each(|row| self.seen.remember(row));
        Ok(())
    }
}

/// What was handed over within the overlap.
#[derive(Debug, Default)]
struct Seen {
    /// Numbers with the hash of an id, keyed so that nobody can choose ids that collide.
    rows: BTreeSet<(i64, u64)>,
    keys: RandomState,
}

impl Seen {
    fn row(&self, number: i64, id: &[u8]) -> (i64, u64) {
        (number, self.keys.hash_one(id))
    }

    /// The entry of a row whose id is malformed; it differs from that of every id.
    fn malformed_row(&self, number: i64, id: Value<'_>) -> (i64, u64) {
        (number, self.keys.hash_one(id))
    }

    fn is_new(&self, row: (i64, u64)) -> bool {
        !self.rows.contains(&row)
    }

    fn remember(&mut self, row: (i64, u64)) {
        if self.rows.len() < SEEN_MAX {
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

/// Beyond it, ids of the overlap are handed over again with each poll. About 20 MB.
const SEEN_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests;
