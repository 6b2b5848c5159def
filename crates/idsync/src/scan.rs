//! A scan: every id of a source, in batches, whatever happens to the database meanwhile.
//!
//! [`Scan::begin`] connects and asks the source what it has, so that a wrong password or a typo in
//! the query is told at once. From then on a thread of the scan's own reads, and whoever wants the
//! ids takes batches from a bounded queue; when he is slow, the database waits. An attempt that
//! fails for a reason that may pass (the server restarts, the network is gone) is followed by
//! another that goes on where the last stood, until nothing came for [`Retry::patience`].
//!
//! **What a scan promises**: every id that was committed before the scan began, and not removed
//! since, is among those handed over, some more than once. Ids added while it runs may be among
//! them. This holds over any number of attempts, because each reads a later state of the database.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use edgeward_filter::IdForm;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::batch::{Batch, Gather, Rules};
use crate::changes::Feed;
use crate::error::SourceError;
use crate::ledger::Ledger;

/// What a source's attempt or poll runs as; on one thread, so it need not be `Send`.
pub type Reading<'a, T> = Pin<Box<dyn Future<Output = Result<T, SourceError>> + 'a>>;

/// A database that ids can be read from.
pub trait Source: Send + Sync + 'static {
    /// What to call it, without its password.
    fn label(&self) -> String;

    /// What is read: the part of a checkpoint's identity that a label does not tell.
    fn query(&self) -> &str;

    /// One attempt at what [`Sink::begin`] says is open.
    ///
    /// It connects, tells the sink what it found, and sends batches until all spans are done.
    fn read<'a>(&'a self, sink: &'a Sink) -> Reading<'a, ()>;

    /// Connects for polling changes: ids and the numbers that order them.
    fn follow<'a>(&'a self, query: &'a str) -> Reading<'a, Box<dyn Feed>>;
}

/// What a source says of itself when an attempt begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What its column holds.
    pub form: IdForm,
    /// The column's name.
    pub column: String,
    /// How many rows there are, roughly.
    pub rows_estimated: Option<u64>,
}

/// How a scan is done.
#[derive(Clone, Debug)]
pub struct ScanConfig {
    /// What the ids are, if not what the column's type says.
    pub form: Option<IdForm>,
    /// Leave out what is no id, and count it, instead of stopping.
    pub skip_malformed: bool,
    /// Ids of a batch. Some thousands, so that handing one over costs nothing beside reading it.
    pub batch_ids: usize,
    /// Batches that wait to be taken. With 16 of at most 1 MiB, a scan holds 17 MiB at the worst.
    pub batches_ahead: usize,
    /// What to do when the database is gone.
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

/// How long to wait for a database that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Before the second attempt; doubled before each further one.
    pub first: Duration,
    /// Between two attempts at most.
    pub longest: Duration,
    /// Without any row for this long, the scan fails.
    pub patience: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(250),
            // A server that comes back is noticed within this time.
            longest: Duration::from_secs(15),
            // A restart with recovery of its log takes minutes; an hour would hide an outage.
            patience: Duration::from_secs(600),
        }
    }
}

impl Retry {
    /// The wait after so many attempts in vain.
    fn wait(&self, attempts: u32) -> Duration {
        let doubled = 1u32.checked_shl(attempts).unwrap_or(u32::MAX);
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

/// How far a scan has come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Rows read, those of an earlier run that was resumed included.
    pub rows: u64,
    /// Of these, the ones that an earlier run had read.
    pub rows_before: u64,
    /// Rows left out because they are no ids.
    pub malformed: u64,
    /// How many there are in all, roughly; known once something says so.
    pub rows_estimated: Option<u64>,
    /// Spans read, and how many there are.
    pub spans: (usize, usize),
    /// Attempts that failed.
    pub setbacks: u64,
    /// What went wrong last, while the scan waits to try again.
    pub waiting: Option<String>,
}

/// A scan under way. Dropping it ends it.
#[derive(Debug)]
pub struct Scan {
    batches: mpsc::Receiver<Batch>,
    found: Found,
    watch: Watch,
    thread: Option<JoinHandle<Result<(), SourceError>>>,
}

/// Looks at a scan from another thread, and ends it.
#[derive(Clone, Debug)]
pub struct Watch {
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
    found: Option<Found>,
    rows_before: u64,
    setbacks: u64,
    waiting: Option<String>,
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // Every change of it is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// How far it has come.
    pub fn progress(&self) -> Progress {
        let state = self.shared.state();
        let (done, spans) = (state.ledger.done(), state.ledger.spans().len());
        let rows = state.ledger.rows();
        let stated = state.found.as_ref().and_then(|found| found.rows_estimated);
        // Spans of a ring are equal by chance, so that their share is the rows' share.
        let by_spans = (spans >= 8 && done > 0).then(|| rows * spans as u64 / done as u64);
        Progress {
            rows,
            rows_before: state.rows_before,
            malformed: state.ledger.malformed(),
            rows_estimated: by_spans.or(stated).map(|estimate| estimate.max(rows)),
            spans: (done, spans),
            setbacks: state.setbacks,
            waiting: state.waiting.clone(),
        }
    }

    /// Ends it: what waits for it gets [`SourceError::Cancelled`].
    pub fn cancel(&self) {
        self.shared.cancel.send_replace(true);
    }
}

impl Scan {
    /// Begins a scan of what is open in `ledger`, which is empty for a new one.
    ///
    /// Waits until the source has been asked what it has. What fails until then is not tried again.
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
        let (ready, began) = std::sync::mpsc::sync_channel(1);
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
            .expect("the system has a thread for us");
        let mut scan = Self {
            batches,
            found: Found {
                form: IdForm::Text,
                column: String::new(),
                rows_estimated: None,
            },
            watch: Watch { shared },
            thread: Some(thread),
        };
        match began.recv() {
            Ok(found) => scan.found = found,
            // The thread ended without having begun: it has a reason.
            Err(_) => scan.end()?,
        }
        Ok(scan)
    }

    /// What the source said. Its form is what the ids are brought to.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// The spans as planned, to be written down before the first batch is.
    pub fn ledger(&self) -> Ledger {
        self.watch.shared.state().ledger.clone()
    }

    /// The next batch; none when all is read.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, SourceError> {
        if let Some(batch) = self.batches.blocking_recv() {
            return Ok(Some(batch));
        }
        self.end().map(|()| None)
    }

    /// A view for another thread.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.watch.progress()
    }

    fn end(&mut self) -> Result<(), SourceError> {
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
        self.watch.cancel();
        self.batches.close();
        if let Some(thread) = self.thread.take() {
            // Its error is of no interest any more, and a panic was printed.
            _ = thread.join();
        }
    }
}

/// Where a source puts what it read.
#[derive(Debug)]
pub struct Sink {
    sender: mpsc::Sender<Batch>,
    ready: std::sync::mpsc::SyncSender<Found>,
    config: ScanConfig,
    cancelled: watch::Receiver<bool>,
    shared: Arc<Shared>,
}

impl Sink {
    /// To be called when connected: what was found and, if nothing is planned yet, the spans.
    /// Returns what there is to read.
    pub fn begin(&self, found: Found, plan: impl FnOnce() -> Vec<Vec<u8>>) -> Begun {
        let form = self.config.form.unwrap_or(found.form);
        let found = Found { form, ..found };
        let ledger = {
            let mut state = self.shared.state();
            if state.ledger.spans().is_empty() {
                state.ledger = Ledger::over(plan());
            }
            state.found = Some(found.clone());
            state.waiting = None;
            state.ledger.clone()
        };
        let begun = Begun {
            ledger,
            rules: Rules {
                form,
                skip_malformed: self.config.skip_malformed,
                batch_ids: self.config.batch_ids.max(1),
            },
            column: found.column.clone(),
        };
        // Only the first attempt is waited for.
        _ = self.ready.try_send(found);
        begun
    }

    /// Hands a batch over, waiting for room.
    pub async fn send(&self, batch: Batch) -> Result<(), SourceError> {
        if *self.cancelled.borrow() {
            return Err(SourceError::Cancelled);
        }
        let reached = batch.reached.clone();
        tokio::select! {
            sent = self.sender.send(batch) => sent.map_err(|_| SourceError::Cancelled)?,
            () = self.cancelled() => return Err(SourceError::Cancelled),
        }
        // Only what is in the queue is done, for what follows it in the queue is later.
        self.shared.state().ledger.note(&reached);
        Ok(())
    }

    /// For a client that blocks: to be looked at now and then.
    pub fn cancellation(&self) -> impl Fn() -> bool + Send + 'static {
        let cancelled = self.cancelled.clone();
        move || *cancelled.borrow()
    }

    /// Comes back when the scan is cancelled.
    async fn cancelled(&self) {
        let mut cancelled = self.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// An attempt that knows what to do.
#[derive(Debug)]
pub struct Begun {
    /// What is open.
    pub ledger: Ledger,
    rules: Rules,
    column: String,
}

impl Begun {
    /// Gathers the rows of a span; `of` follows the number of a row that is complained of.
    pub fn gather(&self, span: usize, of: impl Into<String>) -> Gather {
        let rows = self.ledger.spans()[span].rows;
        Gather::new(self.rules, span, rows, of.into(), self.column.clone())
    }
}

/// A runtime for one thread's use.
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

/// Attempts, until one succeeds or trying again is of no use.
fn run(source: &dyn Source, sink: &Sink) -> Result<(), SourceError> {
    let runtime = runtime(source)?;
    runtime.block_on(async {
        let mut last_row = Instant::now();
        let mut rows = sink.shared.state().ledger.rows();
        let mut in_vain = 0;
        loop {
            let read = tokio::select! {
                read = source.read(sink) => read,
                () = sink.cancelled() => Err(SourceError::Cancelled),
            };
            let Err(error) = read else {
                return Ok(());
            };
            let retry = sink.config.retry;
            let wait = {
                let mut state = sink.shared.state();
                let read = state.ledger.rows();
                if read > rows {
                    (rows, in_vain, last_row) = (read, 0, Instant::now());
                }
                let began = state.found.is_some();
                let wait = retry.wait(in_vain);
                let late = last_row.elapsed() + wait > retry.patience;
                if !began || late || !error.is_transient() {
                    return Err(error);
                }
                state.setbacks += 1;
                state.waiting = Some(error.chain());
                wait
            };
            in_vain += 1;
            tokio::select! {
                () = sleep(wait) => {}
                () = sink.cancelled() => return Err(SourceError::Cancelled),
            }
        }
    })
}
