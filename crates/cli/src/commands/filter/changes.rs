//! Polls a database for ids that are added between two scans, and sends these ids to the publisher.
//!
//! A thread runs the changes query periodically. The publisher stores the ids of a poll in its journal before
//! the next poll starts. Then the publisher announces to its clients that the set is complete up to the start of
//! the poll. While the database is unavailable or the journal is full, the publisher announces no later time.
//! After `max_staleness` without a later time, clients forward requests instead of answering 404.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;

use edgeward_filter::{IdForm, IdHasher};
use edgeward_filter_client::system_clock;
use edgeward_idsync::{
    Batch, ChangesConfig, ChangesPoller, MalformedRows, Source, SourceError, Stopper, Unit,
};
use edgeward_publish::{self as publish, Feed, FeedError, RunningPublisher};

use super::database::source_error;
use crate::commands::flag_values::duration;
use crate::diagnostic::Diagnostic;

/// Options of the polls.
#[derive(Args, Clone, Debug)]
pub(super) struct ChangesArgs {
    /// Query to poll for new ids; returns an id and a number/time
    ///
    /// The number or time must grow from row to row. The query has one parameter ($1 in PostgreSQL, ?
    /// elsewhere): the number or time after which to start. It must be ordered by this column.
    #[arg(long, value_name = "SQL", requires = "query")]
    changes_query: Option<String>,

    /// Time from one poll to the next, such as 500ms
    #[arg(
        long,
        value_parser = duration,
        default_value = "1s",
        value_name = "TIME",
        requires = "changes_query",
        hide_short_help = true
    )]
    changes_every: Duration,

    /// Look-back of each poll, for ids that are committed late: a time, or a number if the column is a
    /// number [default: 5s, 10000]
    #[arg(
        long,
        value_name = "TIME|N",
        requires = "changes_query",
        hide_short_help = true
    )]
    look_back: Option<LookBack>,
}

/// How far a poll reads again before its last position, in the unit of the column that orders the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookBack {
    Time(Duration),
    Numbers(u64),
}

impl FromStr for LookBack {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(numbers) => Ok(Self::Numbers(numbers)),
            Err(_) => duration(text).map(Self::Time).map_err(|_| {
                format!("`{text}` is neither a duration such as 5s nor a number such as 10000")
            }),
        }
    }
}

impl ChangesArgs {
    /// Returns true if changes are polled.
    pub(super) fn are_polled(&self) -> bool {
        self.changes_query.is_some()
    }

    /// Returns an error if the user requested polls. Call this if the source is a file, which cannot be polled.
    pub(super) fn reject_for_file(&self) -> anyhow::Result<()> {
        if self.are_polled() {
            let message = "--changes-query needs a database, and the source is a file";
            let hint = "give the address of a database: postgres://…, sqlite://…, cassandra://…";
            return Err(Diagnostic::new(message).hint(hint).into());
        }
        Ok(())
    }

    /// Prepares the polls, or returns `None` if changes are not polled. An invalid query is an error; an unavailable
    /// database is retried later.
    pub(super) fn prepare(
        &self,
        source: Arc<dyn Source>,
        form: IdForm,
    ) -> anyhow::Result<Option<PreparedPolls>> {
        let Some(query) = &self.changes_query else {
            return Ok(None);
        };
        if self.changes_every < EVERY_MIN {
            let message = "--changes-every is too short";
            return Err(Diagnostic::new(message)
                .hint("give at least 10ms; 500ms is usual")
                .into());
        }
        let mut config = ChangesConfig {
            form: Some(form),
            ..ChangesConfig::new(query)
        };
        match self.look_back {
            Some(LookBack::Time(time)) => config.look_back_time = time,
            Some(LookBack::Numbers(numbers)) => config.look_back = numbers,
            None => {}
        }
        // The publisher stores the position of the polls under this name, and a changed name starts without a
        // position. The name includes the scan's query: if this query changes, it may select ids that no poll
        // has reported, and only a new scan finds them. The name does not include the look-back, so that polls
        // with another look-back continue from the stored position.
        let parts = [&source.label(), source.query(), query, form.name()];
        let name = parts.join("\n");
        let label = source.label();
        let mut changes = ChangesPoller::new(source, config, i64::MIN)
            .map_err(|error| source_error(error, None))?;
        match changes.connect(CONNECT_MAX) {
            Ok(unit) => self.check_unit(unit)?,
            Err(error) if error.is_transient() => {
                tracing::warn!(error = %error.chain(), "cannot poll the database for changes; will retry");
            }
            Err(error @ SourceError::Columns { .. }) => {
                let hint =
                    "SELECT id, created_at FROM resource WHERE created_at > $1 ORDER BY created_at";
                let message = format!("--changes-query: {error}");
                return Err(Diagnostic::new(message).hint(hint).into());
            }
            Err(error) => return Err(source_error(error, None).context("--changes-query")),
        }
        Ok(Some(PreparedPolls {
            changes,
            name,
            malformed: MalformedLog::new(label, query.clone()),
            every: self.changes_every,
        }))
    }

    fn check_unit(&self, unit: Unit) -> anyhow::Result<()> {
        let (column_type, hint) = match (self.look_back, unit) {
            (Some(LookBack::Time(_)), Unit::Number) => {
                ("a number", "give a number, such as --look-back 10000")
            }
            (Some(LookBack::Numbers(_)), Unit::Time { .. }) => {
                ("a time", "give a duration, such as --look-back 5s")
            }
            _ => return Ok(()),
        };
        let message = format!(
            "--look-back has the wrong unit: the column that orders changes is {column_type}"
        );
        Err(Diagnostic::new(message).hint(hint).into())
    }
}

/// The checked polls, ready to start.
pub(super) struct PreparedPolls {
    changes: ChangesPoller,
    /// The name under which the publisher stores the position of the polls.
    name: String,
    malformed: MalformedLog,
    every: Duration,
}

impl PreparedPolls {
    /// Starts the thread that polls.
    pub(super) fn start(
        self,
        publisher: &RunningPublisher,
        hasher: IdHasher,
    ) -> anyhow::Result<Polling> {
        let stopper = self.changes.stopper();
        let (stop, stopped) = mpsc::channel();
        let feed = publisher.feed(&self.name);
        let poller = Poller {
            feed,
            changes: self.changes,
            malformed: self.malformed,
            every: self.every,
            hasher,
            announced: false,
        };
        let thread = thread::Builder::new()
            .name("id changes".to_owned())
            .spawn(move || poller.run(&stopped))
            .context("cannot start the thread that polls")?;
        Ok(Polling {
            stopper,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// The handle of the polling thread. Dropping the handle stops the thread.
pub(super) struct Polling {
    /// Cancels the poll that is running.
    stopper: Stopper,
    /// Dropping this sender ends the wait for the next poll.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.stopper.stop();
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that polls panicked");
        }
    }
}

/// The state of the polling thread.
struct Poller {
    /// The queue to the publisher.
    feed: Feed,
    /// Runs the changes query, and has the position from which the next poll continues.
    changes: ChangesPoller,
    malformed: MalformedLog,
    /// The time from one poll to the next.
    every: Duration,
    hasher: IdHasher,
    /// True after the first poll has announced to the publisher that this thread sends changes.
    announced: bool,
}

/// The reason why a poll failed.
enum PollError {
    Source(SourceError),
    Feed(FeedError),
}

impl From<SourceError> for PollError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}

impl From<FeedError> for PollError {
    fn from(error: FeedError) -> Self {
        Self::Feed(error)
    }
}

impl Poller {
    fn run(mut self, stopped: &mpsc::Receiver<()>) {
        let mut failures = 0;
        loop {
            let poll_start = Instant::now();
            let polled = self.poll();
            let malformed = self.changes.take_malformed();
            self.feed.count_malformed(malformed.rows);
            self.malformed.add(malformed, poll_start);
            let wait = match polled {
                Ok(()) => {
                    if failures > 0 {
                        tracing::info!("polling the database for changes again");
                    }
                    failures = 0;
                    // The wait is at least as long as the poll was, so a slow query runs at most half of the time.
                    let took = poll_start.elapsed();
                    self.every.saturating_sub(took).max(took)
                }
                Err(
                    PollError::Source(SourceError::Cancelled) | PollError::Feed(FeedError::Closed),
                ) => {
                    return;
                }
                Err(error) => {
                    self.feed.count_failed_poll();
                    let wait = RETRY_FIRST
                        .saturating_mul(1 << failures.min(10))
                        .min(RETRY_MAX);
                    failures += 1;
                    let why = match &error {
                        PollError::Source(error) => error.chain(),
                        PollError::Feed(error) => error.to_string(),
                    };
                    tracing::warn!(
                        error = why,
                        failures,
                        "poll for changes failed; clients get no guarantee for new ids meanwhile"
                    );
                    wait
                }
            };
            match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn poll(&mut self) -> Result<(), PollError> {
        if !self.announced {
            match self.feed.position() {
                Some(position) => self.changes.seek(position),
                // The polls skip the rows that exist now. A scan that begins after this moment reads them.
                None => _ = self.changes.skip_to_head()?,
            }
            self.feed.begin()?;
            self.announced = true;
        }
        // The time is taken before the query, so the result has all ids that were committed before this time.
        let poll_started = system_clock()().monotonic;
        let before = self.changes.cursor();
        let (feed, hasher) = (&self.feed, self.hasher);
        let mut feed_error = None;
        let polled = self.changes.poll_while(&mut |batch: Batch| {
            let added = batch.ids().map(|id| hasher.hash_canonical(id)).collect();
            let changes = publish::Changes {
                added,
                ..publish::Changes::default()
            };
            match feed.blocking_send(changes) {
                Ok(()) => true,
                Err(error) => {
                    feed_error = Some(error);
                    false
                }
            }
        });
        let position = self.changes.cursor();
        if polled.is_ok() || position != before {
            // If the poll failed after some batches, the journal has these batches. The next poll continues after
            // them.
            self.feed.blocking_send(publish::Changes {
                complete_until: polled.is_ok().then_some(poll_started),
                position: Some(position),
                ..publish::Changes::default()
            })?;
        }
        match (polled, feed_error) {
            (_, Some(feed_error)) => Err(feed_error.into()),
            (Err(error), None) => Err(error.into()),
            (Ok(_), None) => Ok(()),
        }
    }
}

/// Logs malformed rows of the changes, at most one line a minute.
struct MalformedLog {
    source: String,
    query: String,
    /// The malformed rows that are not logged yet.
    pending: MalformedRows,
    /// The time of the last log line.
    logged: Option<Instant>,
}

impl MalformedLog {
    fn new(source: String, query: String) -> Self {
        Self {
            source,
            query,
            pending: MalformedRows::default(),
            logged: None,
        }
    }

    fn add(&mut self, malformed: MalformedRows, now: Instant) {
        self.pending.rows += malformed.rows;
        self.pending.first = self.pending.first.take().or(malformed.first);
        let is_due = self
            .logged
            .is_none_or(|logged| now.duration_since(logged) >= LOG_PAUSE);
        if self.pending.rows == 0 || !is_due {
            return;
        }
        self.logged = Some(now);
        let MalformedRows { rows, first } = std::mem::take(&mut self.pending);
        tracing::warn!(
            source = self.source,
            query = self.query,
            rows,
            position = first.as_ref().and_then(|row| row.position),
            error = first.map_or_else(String::new, |row| row.error),
            "malformed rows of the changes were skipped; position and error are of the first one"
        );
    }
}

/// The shortest time between two log lines about malformed rows. The metric
/// `edgeward_publish_changes_malformed_total` counts every row.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// The minimum of `--changes-every`. Clients receive changes some milliseconds after a poll, so a shorter interval
/// would only load the database.
const EVERY_MIN: Duration = Duration::from_millis(10);

/// The longest wait for the database at the start.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The wait after the first failed poll. It doubles with each further failure, up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_back_is_a_duration_or_a_number() {
        let five_seconds = Ok(LookBack::Time(Duration::from_secs(5)));
        assert_eq!("5s".parse::<LookBack>(), five_seconds);
        assert_eq!("0".parse::<LookBack>(), Ok(LookBack::Numbers(0)));
        for wrong in ["", "5 apples", "-1", "1.5"] {
            let error = wrong.parse::<LookBack>().expect_err("the text is invalid");
            assert!(error.contains("neither"), "{error}");
        }
    }
}
