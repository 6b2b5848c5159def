//! Polls a database for added ids between two scans, and feeds them to the publisher.
//!
//! A thread asks the changes query again and again. What a poll brings is in the publisher's journal
//! before the next one begins, and only then does the moment move up to which nothing is missing. While
//! the database is away, or the journal is full, that moment stands still: clients whose bound it passes
//! ask the origin instead of hiding ids.

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
    Batch, Changes, ChangesConfig, MalformedRows, Source, SourceError, Stopper, Unit,
};
use edgeward_publish::{self as publish, Feed, FeedError, RunningPublisher};

use super::database::complain;
use crate::commands::typed::duration;
use crate::complaint::Complaint;

/// How a database is asked for what was added.
#[derive(Args, Clone, Debug)]
pub(super) struct ChangesArgs {
    /// Poll for new ids: two columns, id and what grows
    ///
    /// The query gives an id and a number or time that only grows, takes the one after which to begin as
    /// its parameter ($1 in PostgreSQL, ? elsewhere), and is ordered by it.
    #[arg(long, value_name = "SQL", requires = "query")]
    changes_query: Option<String>,

    /// From one poll to the next, as 500ms
    #[arg(
        long,
        value_parser = duration,
        default_value = "1s",
        value_name = "TIME",
        requires = "changes_query",
        hide_short_help = true
    )]
    changes_every: Duration,

    /// How far each poll looks back, for ids that are committed late: a time, or a count where the
    /// column is a number [default: 5s, 10000]
    #[arg(
        long,
        value_name = "TIME|N",
        requires = "changes_query",
        hide_short_help = true
    )]
    look_back: Option<LookBack>,
}

/// How late an id may be committed, by the column that orders changes.
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
                format!("`{text}` is neither a time, as 5s, nor a count of numbers, as 10000")
            }),
        }
    }
}

impl ChangesArgs {
    /// Whether changes are to be polled.
    pub(super) fn are_polled(&self) -> bool {
        self.changes_query.is_some()
    }

    /// Refuses what makes sense for databases only.
    pub(super) fn refuse(&self) -> anyhow::Result<()> {
        if self.are_polled() {
            let message = "--changes-query asks a database, and the source is a file";
            let hint = "give its address: postgres://…, sqlite://…, cassandra://…";
            return Err(Complaint::new(message).hint(hint).into());
        }
        Ok(())
    }

    /// What is to be polled, if anything. A query that cannot work is told at once; a database that
    /// is not there is waited for later.
    pub(super) fn prepare(
        &self,
        source: Arc<dyn Source>,
        form: IdForm,
    ) -> anyhow::Result<Option<Prepared>> {
        let Some(query) = &self.changes_query else {
            return Ok(None);
        };
        if self.changes_every < EVERY_MIN {
            let message = "--changes-every is too short for a database";
            return Err(Complaint::new(message)
                .hint("at least 10ms; 500ms is usual")
                .into());
        }
        let mut config = ChangesConfig {
            form: Some(form),
            ..ChangesConfig::new(query)
        };
        match self.look_back {
            Some(LookBack::Time(time)) => config.overlap_time = time,
            Some(LookBack::Numbers(numbers)) => config.overlap = numbers,
            None => {}
        }
        // The scan's query too: another one may find ids that no change tells of. Not the look-back, so
        // that another one takes effect where the last stood.
        let parts = [&source.label(), source.query(), query, form.name()];
        let name = parts.join("\n");
        let label = source.label();
        let mut changes =
            Changes::new(source, config, i64::MIN).map_err(|error| complain(error, None))?;
        match changes.connect(CONNECT_MAX) {
            Ok(unit) => self.check(unit)?,
            Err(error) if error.is_transient() => {
                tracing::warn!(error = %error.chain(), "the database cannot be asked for changes yet");
            }
            Err(error @ SourceError::Columns { .. }) => {
                let hint =
                    "SELECT id, created_at FROM resource WHERE created_at > $1 ORDER BY created_at";
                let message = format!("--changes-query: {error}");
                return Err(Complaint::new(message).hint(hint).into());
            }
            Err(error) => return Err(complain(error, None).context("--changes-query")),
        }
        Ok(Some(Prepared {
            changes,
            name,
            malformed: MalformedLog::new(label, query.clone()),
            every: self.changes_every,
        }))
    }

    fn check(&self, unit: Unit) -> anyhow::Result<()> {
        let (is, hint) = match (self.look_back, unit) {
            (Some(LookBack::Time(_)), Unit::Number) => {
                ("a number", "--look-back 10000 looks back as many")
            }
            (Some(LookBack::Numbers(_)), Unit::Time { .. }) => {
                ("a time", "--look-back 5s looks back as far")
            }
            _ => return Ok(()),
        };
        let message = format!("--look-back does not fit: the column that orders changes is {is}");
        Err(Complaint::new(message).hint(hint).into())
    }
}

/// Changes that can be asked for.
pub(super) struct Prepared {
    changes: Changes,
    name: String,
    malformed: MalformedLog,
    every: Duration,
}

impl Prepared {
    /// Begins to poll.
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
            began: false,
        };
        let thread = thread::Builder::new()
            .name("id changes".to_owned())
            .spawn(move || poller.run(&stopped))
            .context("a thread that polls cannot be started")?;
        Ok(Polling {
            stopper,
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

/// Polls until it is dropped.
pub(super) struct Polling {
    stopper: Stopper,
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
            tracing::error!("the thread that polls had panicked");
        }
    }
}

struct Poller {
    feed: Feed,
    changes: Changes,
    malformed: MalformedLog,
    every: Duration,
    hasher: IdHasher,
    /// The publisher knows that changes are fed.
    began: bool,
}

/// Why a poll came to no good end.
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
            let began = Instant::now();
            let polled = self.poll();
            let malformed = self.changes.take_malformed();
            self.feed.malformed(malformed.rows);
            self.malformed.add(malformed, began);
            let wait = match polled {
                Ok(()) => {
                    if failures > 0 {
                        tracing::info!("the database is asked for changes again");
                    }
                    failures = 0;
                    // A slow query takes at most half of the time.
                    let took = began.elapsed();
                    self.every.saturating_sub(took).max(took)
                }
                Err(
                    PollError::Source(SourceError::Cancelled) | PollError::Feed(FeedError::Closed),
                ) => {
                    return;
                }
                Err(error) => {
                    self.feed.failed();
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
                        "changes are not known; nothing is promised meanwhile"
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
        if !self.began {
            match self.feed.position() {
                Some(position) => self.changes.go_to(position),
                // What there is now is for a scan to find, which begins after this.
                None => _ = self.changes.skip_to_head()?,
            }
            self.feed.begin()?;
            self.began = true;
        }
        // Read before the query: its answer has what was committed by then.
        let asked = system_clock()().monotonic;
        let before = self.changes.cursor();
        let (feed, hasher) = (&self.feed, self.hasher);
        let mut refused = None;
        let polled = self.changes.poll_while(&mut |batch: Batch| {
            let added = batch.ids().map(|id| hasher.canonical(id)).collect();
            let changes = publish::Changes {
                added,
                ..publish::Changes::default()
            };
            match feed.blocking_send(changes) {
                Ok(()) => true,
                Err(error) => {
                    refused = Some(error);
                    false
                }
            }
        });
        let position = self.changes.cursor();
        if polled.is_ok() || position != before {
            // What broke off in the middle is still a piece of the way.
            self.feed.blocking_send(publish::Changes {
                complete: polled.is_ok().then_some(asked),
                position: Some(position),
                ..publish::Changes::default()
            })?;
        }
        match (polled, refused) {
            (_, Some(refused)) => Err(refused.into()),
            (Err(error), None) => Err(error.into()),
            (Ok(_), None) => Ok(()),
        }
    }
}

/// Logs malformed rows of the changes, at most one line a minute.
struct MalformedLog {
    source: String,
    query: String,
    /// Rows that are not logged yet.
    pending: MalformedRows,
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

/// Between two log lines about malformed rows. The counter has every row.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Shorter would be a load and no gain: a client hears of news some milliseconds later.
const EVERY_MIN: Duration = Duration::from_millis(10);

/// When it starts, for a database that may not be there.
const CONNECT_MAX: Duration = Duration::from_secs(5);

const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_back_is_a_time_or_a_count() {
        let five = Ok(LookBack::Time(Duration::from_secs(5)));
        assert_eq!("5s".parse::<LookBack>(), five);
        assert_eq!("0".parse::<LookBack>(), Ok(LookBack::Numbers(0)));
        for wrong in ["", "5 apples", "-1", "1.5"] {
            let error = wrong.parse::<LookBack>().expect_err("it is neither");
            assert!(error.contains("neither"), "{error}");
        }
    }
}
