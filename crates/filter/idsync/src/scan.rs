//! A scan reads every id of a source in batches, and survives outages of the database.
//!
//! [`Scan::begin`] connects and prepares the query, so that a wrong password or an invalid query is reported
//! immediately. After `begin` returns, a separate thread reads rows, and the caller takes batches from a
//! bounded queue. While the queue is full, the thread does not read from the database. If an attempt fails with
//! a temporary error (the server restarts, the network is down), another attempt continues at the last
//! position. The scan fails if the attempts read no row for [`Retry::give_up_after`].
//!
//! A scan consists of spans, such as the token ranges of Cassandra. The [`Ledger`] records how far each span is read.
//!
//! **Guarantee**: every id that was committed before the scan began and was not removed since then is delivered
//! at least once. Ids added during the scan may be delivered. The guarantee holds for any number of attempts,
//! because no attempt reads a state of the database from before the scan began.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use edgeward_filter::IdForm;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::batch::{Batch, BatchBuilder, RowRules};
use crate::changes::ChangesConnection;
use crate::error::SourceError;
use crate::ledger::Ledger;

/// The future of an attempt or poll. It runs on one thread and need not be `Send`.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SourceError>> + 'a>>;

/// A database from which ids are read.
pub trait Source: Send + Sync + 'static {
    /// Returns the name of the source for messages, without its password.
    fn label(&self) -> String;

    /// Returns the query, which is a part of a checkpoint's identity.
    fn query(&self) -> &str;

    /// Makes one attempt to read all ids. Connects and reports the column with [`Sink::begin`]. The returned
    /// [`Attempt`] has the spans that are not completely read. Then sends batches until all spans are read.
    fn read<'a>(&'a self, sink: &'a Sink) -> SourceFuture<'a, ()>;

    /// Connects for polling changes: ids and the numbers that order them.
    fn connect_changes<'a>(
        &'a self,
        query: &'a str,
    ) -> SourceFuture<'a, Box<dyn ChangesConnection>>;
}

/// The report of a source when an attempt begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceInfo {
    /// The form of the ids (text, UUID or integer), by the type of their column.
    pub form: IdForm,
    /// True if the database equates ids that differ in their bytes, for example `a` and `A`. A filter of the form
    /// `text` would answer "absent" for the other spelling, so a scan with this form is refused.
    pub equates_texts: bool,
    /// The name of the column.
    pub column: String,
    /// The estimated number of rows, or `None` if the source cannot estimate it.
    pub rows_estimated: Option<u64>,
}

/// The configuration of a scan.
#[derive(Clone, Debug)]
pub struct ScanConfig {
    /// The form of the ids. Default: by the type of their column.
    pub form: Option<IdForm>,
    /// True to skip and count malformed rows instead of failing.
    pub skip_malformed: bool,
    /// The number of ids in a batch. Passing a batch of several thousand ids to the caller takes little time
    /// compared with reading the ids.
    pub batch_ids: usize,
    /// The largest number of batches in the queue. If each batch takes 1 MiB, a scan with 16 queued batches and one
    /// batch that is being read uses 17 MiB.
    pub batches_ahead: usize,
    /// The times of retries after an outage.
    pub retry: Retry,
}

impl Default for ScanConfig {
    fn default() -> Self {
        Self {
            form: None,
            skip_malformed: false,
            batch_ids: 8192,
            batches_ahead: 16,
            retry: Retry::default(),
        }
    }
}

/// The times of retries after an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The pause after the first failed attempt. Each further failed attempt without a row doubles the pause.
    pub first: Duration,
    /// The longest pause between two attempts.
    pub longest: Duration,
    /// The scan fails if the attempts read no row for this time. The time begins at the start of the scan, and again
    /// when an attempt that read rows fails. It is checked only when an attempt fails.
    pub give_up_after: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            // After the server has restarted, the scan continues within this time.
            longest: Duration::from_secs(15),
            // A restart with log recovery takes minutes, so the limit is 10 minutes. With a limit of an hour, a scan of
            // a database that stays unavailable would fail only after an hour.
            give_up_after: Duration::from_secs(600),
        }
    }
}

impl Retry {
    /// Returns the pause after a failed attempt, which follows `earlier_failures` failed attempts without a row.
    fn pause(&self, earlier_failures: u32) -> Duration {
        let doubled = 1u32.checked_shl(earlier_failures).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

/// The progress of a scan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// The number of rows read, including the rows that an earlier run of the program had read.
    pub rows: u64,
    /// The number of rows that an earlier run had read, according to the ledger with which this scan began.
    pub rows_before: u64,
    /// The number of rows skipped because they are malformed.
    pub malformed: u64,
    /// The estimated total number of rows. `None` if the source cannot estimate it.
    pub rows_estimated: Option<u64>,
    /// The number of completely read spans, and the number of all spans.
    pub spans: (usize, usize),
    /// The number of failed attempts.
    pub interruptions: u64,
    /// The last error, if the scan waits for the next attempt.
    pub waiting: Option<String>,
}

/// A running scan. The scan ends when this value is dropped.
#[derive(Debug)]
pub struct Scan {
    batches: mpsc::Receiver<Batch>,
    source_info: SourceInfo,
    handle: ScanHandle,
    thread: Option<JoinHandle<Result<(), SourceError>>>,
}

/// Observes and cancels a scan from another thread.
#[derive(Clone, Debug)]
pub struct ScanHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    cancel: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    ledger: Ledger,
    source_info: Option<SourceInfo>,
    rows_before: u64,
    interruptions: u64,
    waiting: Option<String>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // If a thread panicked with this lock, the state is still usable, because no change of the state can
        // panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScanHandle {
    /// Returns the progress of the scan.
    pub fn progress(&self) -> Progress {
        let state = self.shared.state();
        let (done, spans) = (state.ledger.completed(), state.ledger.spans().len());
        let rows = state.ledger.rows();
        let estimated = state
            .source_info
            .as_ref()
            .and_then(|info| info.rows_estimated);
        // Cassandra's spans are read in an order that is independent of their sizes. With eight spans or more, the
        // share of completed spans is therefore an estimate of the share of rows.
        let by_spans = (spans >= 8 && done > 0).then(|| rows * spans as u64 / done as u64);
        Progress {
            rows,
            rows_before: state.rows_before,
            malformed: state.ledger.malformed(),
            rows_estimated: by_spans.or(estimated).map(|estimate| estimate.max(rows)),
            spans: (done, spans),
            interruptions: state.interruptions,
            waiting: state.waiting.clone(),
        }
    }

    /// Cancels the scan. After the queued batches, [`Scan::next_batch`] returns [`SourceError::Cancelled`].
    pub fn cancel(&self) {
        self.shared.cancel.send_replace(true);
    }
}

impl Scan {
    /// Begins a scan of the open spans of `ledger`, which is empty for a new scan.
    ///
    /// Waits until the source has prepared its query. An error before the query is prepared is returned without
    /// a retry.
    pub fn begin(
        source: Arc<dyn Source>,
        ledger: Ledger,
        config: ScanConfig,
    ) -> Result<Self, SourceError> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                rows_before: ledger.rows(),
                ledger,
                ..State::default()
            }),
            cancel: watch::Sender::new(false),
        });
        let (sender, batches) = mpsc::channel(config.batches_ahead.max(1));
        let (ready, prepared) = std::sync::mpsc::sync_channel(1);
        let sink = Sink {
            sender,
            ready,
            config,
            cancelled: shared.cancel.subscribe(),
            shared: Arc::clone(&shared),
        };
        let thread = thread::Builder::new()
            .name("id scan".to_owned())
            .spawn(move || run(source.as_ref(), &sink))
            .expect("the system can create a thread");
        let mut scan = Self {
            batches,
            source_info: SourceInfo {
                form: IdForm::Text,
                equates_texts: false,
                column: String::new(),
                rows_estimated: None,
            },
            handle: ScanHandle { shared },
            thread: Some(thread),
        };
        match prepared.recv() {
            Ok(info) => scan.source_info = info,
            // The thread ended before it began to read, and returns its error.
            Err(_) => scan.join()?,
        }
        Ok(scan)
    }

    /// Returns the report of the source. Ids of the batches have the form [`SourceInfo::form`].
    pub fn source_info(&self) -> &SourceInfo {
        &self.source_info
    }

    /// Returns the planned spans. The caller persists them before the first batch.
    pub fn ledger(&self) -> Ledger {
        self.handle.shared.state().ledger.clone()
    }

    /// Returns the next batch, or `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, SourceError> {
        if let Some(batch) = self.batches.blocking_recv() {
            return Ok(Some(batch));
        }
        self.join().map(|()| None)
    }

    /// Returns a handle for another thread.
    pub fn handle(&self) -> ScanHandle {
        self.handle.clone()
    }

    /// Returns the progress of the scan.
    pub fn progress(&self) -> Progress {
        self.handle.progress()
    }

    fn join(&mut self) -> Result<(), SourceError> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.handle.cancel();
        self.batches.close();
        if let Some(thread) = self.thread.take() {
            // The caller does not need the error any more. The panic hook has already logged a panic.
            _ = thread.join();
        }
    }
}

/// Receives the batches of a source.
#[derive(Debug)]
pub struct Sink {
    sender: mpsc::Sender<Batch>,
    ready: std::sync::mpsc::SyncSender<SourceInfo>,
    config: ScanConfig,
    cancelled: watch::Receiver<bool>,
    shared: Arc<Shared>,
}

impl Sink {
    /// Begins an attempt. A source calls this function after it has connected, with its report and a function
    /// that plans the spans of a new scan. The returned attempt has the ledger with the spans to read.
    ///
    /// Fails if the form is `text` and an id of the column has several spellings: the filter would answer "absent" for
    /// all of them but one.
    pub fn begin(
        &self,
        info: SourceInfo,
        plan: impl FnOnce() -> Vec<Vec<u8>>,
    ) -> Result<Attempt, SourceError> {
        let form = self.config.form.unwrap_or(info.form);
        if form == IdForm::Text {
            let column = info.column.clone();
            if info.form != IdForm::Text {
                return Err(SourceError::TextForm {
                    column,
                    form: info.form,
                });
            }
            if info.equates_texts {
                return Err(SourceError::EquatesTexts { column });
            }
        }
        let info = SourceInfo { form, ..info };
        let ledger = {
            let mut state = self.shared.state();
            if state.ledger.spans().is_empty() {
                state.ledger = Ledger::with_spans(plan());
            }
            state.source_info = Some(info.clone());
            state.waiting = None;
            state.ledger.clone()
        };
        let attempt = Attempt {
            ledger,
            rules: RowRules {
                form,
                skip_malformed: self.config.skip_malformed,
                batch_ids: self.config.batch_ids.max(1),
            },
            column: info.column.clone(),
        };
        // `Scan::begin` waits only for the first attempt. Later reports are dropped.
        _ = self.ready.try_send(info);
        Ok(attempt)
    }

    /// Sends a batch. Waits while the queue is full.
    pub async fn send(&self, batch: Batch) -> Result<(), SourceError> {
        if *self.cancelled.borrow() {
            return Err(SourceError::Cancelled);
        }
        let progress = batch.progress.clone();
        tokio::select! {
            sent = self.sender.send(batch) => sent.map_err(|_| SourceError::Cancelled)?,
            () = self.cancelled() => return Err(SourceError::Cancelled),
        }
        // The progress is recorded only when the batch is in the queue. If it were recorded earlier and the
        // send failed, the next attempt would omit the ids of this batch.
        self.shared.state().ledger.record(&progress);
        Ok(())
    }

    /// Returns a function that returns true after a cancellation. A source whose reads block the thread, such as
    /// SQLite, calls this function regularly.
    pub fn cancellation(&self) -> impl Fn() -> bool + Send + 'static {
        let cancelled = self.cancelled.clone();
        move || *cancelled.borrow()
    }

    /// Waits until the scan is cancelled.
    async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// An attempt to read the spans that are not completely read.
#[derive(Debug)]
pub struct Attempt {
    /// The spans and their progress when the attempt began.
    pub ledger: Ledger,
    rules: RowRules,
    column: String,
}

impl Attempt {
    /// Returns a builder of batches for the rows of a span. The text `row_suffix` follows the row number in
    /// error messages.
    pub fn batch_builder(&self, span: usize, row_suffix: impl Into<String>) -> BatchBuilder {
        let rows = self.ledger.spans()[span].rows;
        BatchBuilder::new(
            self.rules,
            span,
            rows,
            row_suffix.into(),
            self.column.clone(),
        )
    }
}

/// Creates a runtime for one thread.
pub(crate) fn runtime(source: &dyn Source) -> Result<Runtime, SourceError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(|error| {
        let (label, cause) = (source.label(), error.into());
        SourceError::Connect {
            label,
            cause,
            transient: false,
        }
    })
}

/// Makes attempts until an attempt succeeds, an error is permanent, or the attempts have read no row for
/// [`Retry::give_up_after`]. An error before the query is prepared also ends the scan.
fn run(source: &dyn Source, sink: &Sink) -> Result<(), SourceError> {
    let runtime = runtime(source)?;
    runtime.block_on(async {
        let mut last_row = Instant::now();
        let mut rows = sink.shared.state().ledger.rows();
        let mut failed_attempts = 0;
        loop {
            let read = tokio::select! {
                read = source.read(sink) => read,
                () = sink.cancelled() => Err(SourceError::Cancelled),
            };
            let Err(error) = read else {
                return Ok(());
            };
            let retry = sink.config.retry;
            let pause = {
                let mut state = sink.shared.state();
                let read = state.ledger.rows();
                if read > rows {
                    (rows, failed_attempts, last_row) = (read, 0, Instant::now());
                }
                let is_prepared = state.source_info.is_some();
                let pause = retry.pause(failed_attempts);
                let gives_up = last_row.elapsed() + pause > retry.give_up_after;
                if !is_prepared || gives_up || !error.is_transient() {
                    return Err(error);
                }
                state.interruptions += 1;
                state.waiting = Some(error.chain());
                pause
            };
            failed_attempts += 1;
            tokio::select! {
                () = sleep(pause) => {}
                () = sink.cancelled() => return Err(SourceError::Cancelled),
            }
        }
    })
}
