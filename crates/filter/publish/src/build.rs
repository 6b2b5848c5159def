//! The thread that scans the source on a schedule and builds snapshots.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use edgeward_filter::guava::FunnelError;
use edgeward_filter::manifest::Snapshot;
use edgeward_filter::{BuildError, Digest, Filter, FilterParams, IdError, StaticBuilder};
use edgeward_types::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::PublishConfig;
use crate::content::{File, FileKind};
use crate::counters::Counters;
use crate::guava::{GuavaFile, GuavaGatherer};
use crate::state::StateFolder;
use crate::workspace::build_workspace;
use crate::writer::{BuiltSnapshot, Command, Scan};

/// A source from which all ids of a set can be read repeatedly.
pub trait IdSource: Send {
    /// Calls `each` for every id that was committed before this call, in any order and in any text form of the id.
    /// Ids committed during the scan may be missing. An error of `each` ends the scan and is returned.
    fn scan(
        &mut self,
        each: &mut dyn FnMut(&[u8]) -> Result<(), ScanError>,
    ) -> Result<(), ScanError>;
}

/// Why a scan failed. The previous snapshot stays published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScanError {
    /// The source failed.
    #[error("cannot scan the ids")]
    Source(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The source has a value that is not an id of the set's form.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The filter could not be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The source has an id that Guava's funnel cannot convert.
    #[error(transparent)]
    Funnel(#[from] FunnelError),
    /// The scan found fewer ids than [`PublishConfig::least_share`] of the last scan.
    #[error(
        "the scan found only {found} ids, and the last snapshot has {before}; check the source"
    )]
    TooFew {
        /// The number of ids that this scan found.
        found: u64,
        /// The number of ids that the last scan found; after a restart, of the last snapshot.
        before: u64,
    },
    /// The scan found no ids, and [`PublishConfig::least_share`] is not 0.
    #[error("the scan found no ids; check the source")]
    Empty,
    /// The snapshot could not be written.
    #[error("cannot write the snapshot")]
    Write(#[from] std::io::Error),
    /// The publisher is being stopped.
    #[error("the publisher is stopping")]
    Stopped,
}

/// A message that wakes the builder before the next scheduled scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// A scan should begin early.
    ScanNow,
    /// A feed of the database's changes has begun.
    FeedBegan {
        /// True if a scan must begin now, because the feed does not send the changes before its beginning.
        needs_scan: bool,
    },
    Stop,
}

pub(crate) struct Builder {
    pub(crate) config: Arc<PublishConfig>,
    pub(crate) source: Box<dyn IdSource>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Arc<AtomicBool>,
    /// The number of ids that the last scan found. Before the first scan, the number of ids of the last snapshot.
    pub(crate) ids_before: u64,
    /// Passes the newest filter in Guava's format to the server; `None` until one is built.
    pub(crate) guava: watch::Sender<Option<Arc<GuavaFile>>>,
}

impl Builder {
    /// Scans until the publisher stops.
    pub(crate) fn run(mut self, wakes: &Receiver<WakeReason>) {
        let mut failures = 0u32;
        if self.wait_for_feed(wakes) {
            return;
        }
        loop {
            let began = Instant::now();
            let pause = match self.build() {
                Ok(due_at) => {
                    failures = 0;
                    let scheduled = self.config.interval.saturating_sub(began.elapsed());
                    let now = (self.config.clock)().monotonic;
                    due_at.map_or(scheduled, |at| scheduled.min(at.saturating_sub(now)))
                }
                Err(ScanError::Stopped) => return,
                Err(error) => {
                    failures += 1;
                    self.counters.scans_failed.increment();
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::error!(%error, cause, failures, "scan failed; the last snapshot stays");
                    let backoff = RETRY_FIRST * 2u32.saturating_pow(failures.min(10) - 1);
                    backoff.min(RETRY_MAX).min(self.config.interval)
                }
            };
            // Before an early scan, the builder pauses as long as it worked, unless the next scheduled scan or retry
            // comes first. Early scans therefore take at most half of the time.
            let pause_min = began.elapsed().max(BUILD_PAUSE_MIN).min(pause);
            if self.pause_or_stop(wakes, pause_min, pause) {
                return;
            }
        }
    }

    /// Waits until a feed begins, at most `feed_wait`. Returns true if the publisher stops. A request for an early scan
    /// needs no action, because the first scan follows this wait.
    fn wait_for_feed(&self, wakes: &Receiver<WakeReason>) -> bool {
        let started = Instant::now();
        loop {
            let remaining = self.config.feed_wait.saturating_sub(started.elapsed());
            if remaining.is_zero() {
                return false;
            }
            match wakes.recv_timeout(remaining) {
                Ok(WakeReason::FeedBegan { .. }) | Err(RecvTimeoutError::Timeout) => return false,
                Ok(WakeReason::ScanNow) => {}
                Ok(WakeReason::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Waits for the time `pause`, or only for `pause_min` if an early scan is requested. Returns true if the
    /// publisher stops.
    fn pause_or_stop(
        &self,
        wakes: &Receiver<WakeReason>,
        pause_min: Duration,
        pause: Duration,
    ) -> bool {
        let started = Instant::now();
        let mut time = pause;
        loop {
            match wakes.recv_timeout(time.saturating_sub(started.elapsed())) {
                Ok(WakeReason::ScanNow | WakeReason::FeedBegan { needs_scan: true }) => {
                    time = pause_min;
                }
                Ok(WakeReason::FeedBegan { needs_scan: false }) => {}
                Ok(WakeReason::Stop) | Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    /// Scans the source and publishes a snapshot. Returns the time (of the monotonic clock) at which an
    /// additional scan must begin. `None` if the publisher can state without an additional scan that no id is
    /// missing.
    fn build(&mut self) -> Result<Option<Duration>, ScanError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(ScanError::Stopped);
        }
        let started = Instant::now();
        let scan: Scan = self.call_writer(|reply| Command::BeginScan { reply })?;
        let now = (self.config.clock)();
        let params = FilterParams {
            rate: self.config.rate,
            hasher: self.config.hasher,
            epoch: scan.epoch,
            built: Some(Timestamp::from_millis(now.wall.as_millis())),
            ids_max: self.config.ids_max,
        };
        let mut builder = StaticBuilder::new(params);
        let funnel = self.config.guava;
        let mut guava = funnel.map(|funnel| GuavaGatherer::new(funnel, self.config.hasher.form));
        let (hasher, skip) = (self.config.hasher, self.config.skip_malformed);
        let (counters, stop) = (Arc::clone(&self.counters), Arc::clone(&self.stop));
        self.source.scan(&mut |spelling| {
            if stop.load(Ordering::Relaxed) {
                return Err(ScanError::Stopped);
            }
            match hasher.hash_spelling(spelling) {
                Ok(id) => {
                    builder.insert(id)?;
                    guava.as_mut().map_or(Ok(()), |guava| guava.add(spelling))
                }
                Err(_) if skip => {
                    counters.malformed.increment();
                    Ok(())
                }
                Err(error) => Err(error.into()),
            }
        })?;
        let read_time = started.elapsed();
        let found = builder.ids_added();
        if found == 0 && self.config.least_share > 0.0 {
            return Err(ScanError::Empty);
        }
        if (found as f64) < self.ids_before as f64 * self.config.least_share {
            return Err(ScanError::TooFew {
                found,
                before: self.ids_before,
            });
        }
        // The scan may have missed ids that were added during it. They are in the journal.
        for id in self.call_writer(|reply| Command::EndScan { reply })? {
            builder.insert(id)?;
        }
        let filter = build_shards(builder)?;
        let ids = filter.info().ids;
        let bytes = Bytes::from(filter.into_bytes());
        StateFolder::write_snapshot(&self.config.state, scan.epoch, &bytes)?;
        let snapshot = Snapshot {
            epoch: scan.epoch,
            base: scan.base,
            bytes: bytes.len() as u64,
            sha256: Digest::compute(&bytes),
        };
        let file = File::new(FileKind::Snapshot, snapshot.sha256, bytes);
        let built = BuiltSnapshot {
            scan,
            snapshot,
            file,
            ids,
        };
        let due_at = self.call_writer(|done| Command::Publish { built, done })??;
        self.ids_before = found;
        if let Some(guava) = guava {
            match guava.finish(
                self.config.rate,
                Timestamp::from_millis(now.wall.as_millis()),
            ) {
                Ok(file) => {
                    tracing::info!(
                        ids = file.ids,
                        bytes = file.content.len(),
                        "published a filter in Guava's format"
                    );
                    self.guava.send_replace(Some(Arc::new(file)));
                }
                Err(error) => tracing::error!(%error, "cannot build the filter in Guava's format"),
            }
        }
        tracing::info!(
            epoch = scan.epoch,
            ids,
            bytes = snapshot.bytes,
            read_ms = read_time.as_millis() as u64,
            build_ms = (started.elapsed() - read_time).as_millis() as u64,
            "snapshot published"
        );
        Ok(due_at)
    }

    /// Sends a command to the writer and waits for the reply. The writer ends only when the publisher stops.
    fn call_writer<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, ScanError> {
        let (reply, response) = oneshot::channel();
        let sent = self.commands.blocking_send(command(reply));
        sent.map_err(|_| ScanError::Stopped)?;
        response.blocking_recv().map_err(|_| ScanError::Stopped)
    }
}

/// Builds the shards of the filter on half of the cores. The other half stays free for requests.
fn build_shards(builder: StaticBuilder) -> Result<Filter<Vec<u8>>, BuildError> {
    // `work` has an item for each shard. `assembly` joins the shards to a filter.
    let (assembly, work) = builder.into_plan()?.split();
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = cores.div_ceil(2).min(work.len());
    let work = Mutex::new(work.into_iter());
    let next = || {
        let mut work = work.lock().expect("no thread panics while it takes work");
        work.next()
    };
    let mut shards = Vec::new();
    thread::scope(|scope| -> Result<(), BuildError> {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut workspace = build_workspace();
                    std::iter::from_fn(next)
                        .map(|work| work.solve(&mut workspace))
                        .collect::<Result<Vec<_>, _>>()
                })
            })
            .collect();
        for worker in workers {
            shards.extend(worker.join().expect("building a shard does not panic")?);
        }
        Ok(())
    })?;
    assembly.join(shards)
}

const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The shortest pause before an early scan.
const BUILD_PAUSE_MIN: Duration = Duration::from_millis(100);
