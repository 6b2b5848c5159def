//! The complete analysis: reads logs, counts requests per URL, and computes statistics.
//!
//! Each request becomes a row in the partition of its URL. When a partition's buffer is full, its rows go to a
//! temporary file.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use edgeward_analysis::{CompleteSample, FieldNames, Format, Objects, QueryRule, Sample, Tally};
use edgeward_types::ByteSize;

use crate::checkpoint::{self, CheckpointError};
use crate::count::{count, merge_all};
use crate::find::Source;
use crate::partial::PartialError;
use crate::report::FileReport;
use crate::row::{Row, SizedRow, UrlRow};
use crate::rows::Rows;
use crate::scan::{Pause, RequestSink, Shared, Task, Worker};
use crate::spill::{PARTITIONS, Partitions, Spill, SpillError};

/// The settings of an analysis.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which statistics are computed.
    pub depth: Depth,
    /// The format of all logs, or `None` to detect the format of each log.
    pub format: Option<Format>,
    /// The names of JSON fields. They are used only if the format is detected.
    pub names: FieldNames,
    /// How to handle the query of a URL.
    pub query: QueryRule,
    /// The size of a URL's fingerprint. Partial results, whose files can be merged, always use 128 bits.
    pub fingerprints: FingerprintBits,
    /// The number of threads that read and count.
    pub threads: usize,
    /// The memory for buffers, tables and samples. The program and the decoders need memory in addition.
    pub memory: ByteSize,
    /// The folder of the temporary file.
    pub temp_folder: PathBuf,
    /// The maximum size of the temporary file.
    pub temp_max: ByteSize,
    /// The maximum length of a line in bytes.
    pub line_bytes_max: usize,
    /// The maximum window of a zstd frame, as a power of two.
    pub zstd_window_log_max: u32,
    /// The number of most requested URLs in the result.
    pub top_max: usize,
    /// The settings of checkpoints, from which an interrupted analysis can continue. `None` disables
    /// checkpoints.
    pub checkpoint: Option<Checkpoint>,
}

/// Which statistics are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Only the number of requests per URL. This is several times faster than [`Full`](Self::Full).
    Counts,
    /// All statistics: counts, sizes, the tally and a sample.
    #[default]
    Full,
}

/// The size of a URL's fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FingerprintBits {
    /// 64 bits. Among 15 million URLs, two have the same fingerprint with probability 6e-6.
    #[default]
    B64,
    /// 128 bits. Among 10^12 URLs, two have the same fingerprint with probability 1e-15. Each request takes
    /// eight more bytes.
    B128,
}

/// The settings of checkpoints.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// The folder of the checkpoint. It must contain no other files.
    pub folder: PathBuf,
    /// The number of bytes of (compressed) logs between two checkpoints.
    pub every: ByteSize,
}

/// The result of an analysis.
#[derive(Debug)]
pub struct Analysis {
    /// The report of each log, in the order of the arguments.
    pub files: Vec<FileReport>,
    /// The statistics over all URLs.
    pub objects: Objects,
    /// The counts of all lines, with [`Depth::Full`].
    pub tally: Option<Tally>,
    /// All requests for a sample of the objects, with [`Depth::Full`].
    pub sampled: Option<CompleteSample>,
    /// The error that stopped reading early, for example a full disk. All lines read until then are counted.
    pub spill_error: Option<SpillError>,
    /// The size of the temporary file at the end of the analysis.
    pub temp: ByteSize,
}

/// Why an analysis failed. Problems of single logs are reported in their [`FileReport`]s.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalyzeError {
    /// The temporary file cannot be read.
    #[error(transparent)]
    Spill(#[from] SpillError),
    /// A partial result cannot be written, or a file is not a partial result.
    #[error(transparent)]
    Partial(#[from] PartialError),
    /// The checkpoint does not match the options or the logs.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl Analysis {
    /// Returns true if every log was read completely.
    pub fn is_complete(&self) -> bool {
        self.spill_error.is_none() && self.files.iter().all(|file| file.problem.is_none())
    }
}

/// Reads the logs and computes statistics. `progress` is called with the number of (compressed) bytes read
/// since its last call.
///
/// # Errors
///
/// Returns an error if the temporary file cannot be read or a checkpoint cannot be used. Problems of single
/// logs are reported in their [`FileReport`]s.
pub fn analyze(
    sources: &[Source],
    settings: &Settings,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Analysis, AnalyzeError> {
    if settings.checkpoint.is_some() {
        return checkpoint::analyze(sources, settings, progress);
    }
    let analyze_with_rows = match (settings.depth, settings.fingerprints) {
        (Depth::Counts, FingerprintBits::B64) => analyze_rows::<UrlRow<u64>>,
        (Depth::Counts, FingerprintBits::B128) => analyze_rows::<UrlRow<u128>>,
        (Depth::Full, FingerprintBits::B64) => analyze_rows::<SizedRow<u64>>,
        (Depth::Full, FingerprintBits::B128) => analyze_rows::<SizedRow<u128>>,
    };
    Ok(analyze_with_rows(sources, settings, progress)?)
}

fn analyze_rows<R: Row>(
    sources: &[Source],
    settings: &Settings,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Analysis, SpillError> {
    let spill = Spill::for_settings(settings, sources.len());
    let tasks = all_tasks(sources);
    // Reading is never paused, because this analysis writes no checkpoints.
    let pause = Pause::after(u64::MAX);
    let mut scanned = scan::<R>(sources, tasks, settings, &spill, pause, progress);
    let top_max = settings.top_max;
    let objects = count(
        &scanned.parts,
        &spill,
        settings.threads.max(1),
        count_bytes(settings),
        || Objects::new(top_max),
    )?;
    scanned.files.sort_by_key(|(task, _)| task.source);
    let (tally, sample) = scanned.full.unzip();
    Ok(Analysis {
        files: scanned.files.into_iter().map(|(_, file)| file).collect(),
        objects: merge_all(objects, top_max),
        tally,
        sampled: sample.map(Sample::finish),
        spill_error: scanned.spill_error,
        temp: ByteSize(spill.bytes()),
    })
}

/// The result of reading: the rows of all logs, which are not counted yet.
pub(crate) struct ScanResult<R> {
    /// The rows of each reader thread.
    pub(crate) parts: Vec<Partitions<R>>,
    pub(crate) files: Vec<(Task, FileReport)>,
    /// The tally and the sample of all logs, with [`Depth::Full`].
    pub(crate) full: Option<(Tally, Sample)>,
    pub(crate) spill_error: Option<SpillError>,
    /// The logs that no thread has started to read, because reading was paused for a checkpoint.
    pub(crate) unstarted: Vec<Task>,
}

/// Returns a task for each log that reads it from its start. Logs are numbered in the order of their names.
pub(crate) fn all_tasks(sources: &[Source]) -> Vec<Task> {
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|at| (&sources[*at].label, &sources[*at].machine));
    let tasks = (0..).zip(order).map(|(log, source)| Task {
        source,
        log,
        rest: None,
    });
    tasks.collect()
}

/// Reads logs into partitions.
pub(crate) fn scan<R: Row>(
    sources: &[Source],
    tasks: Vec<Task>,
    settings: &Settings,
    spill: &Spill,
    pause: Pause,
    progress: &(dyn Fn(u64) + Sync),
) -> ScanResult<R> {
    let sink = || Rows::<R>::new(settings, spill);
    let read = read_all(sources, tasks, settings, pause, progress, sink);
    let mut all = ScanResult {
        parts: Vec::new(),
        files: read.files,
        full: None,
        spill_error: None,
        unstarted: read.unstarted,
    };
    for rows in read.sinks {
        all.parts.push(rows.partitions);
        all.spill_error = all.spill_error.or(rows.spill_error);
        match (&mut all.full, rows.full) {
            (Some((tally, sample)), Some((more_tally, more_sample))) => {
                tally.merge(more_tally);
                sample.merge(more_sample);
            }
            (full, more) => *full = full.take().or(more),
        }
    }
    all
}

/// The results of all reader threads.
pub(crate) struct ReadResult<I> {
    pub(crate) sinks: Vec<I>,
    pub(crate) files: Vec<(Task, FileReport)>,
    /// The logs that no thread has started to read, because reading was paused for a checkpoint.
    pub(crate) unstarted: Vec<Task>,
}

/// Reads logs with all threads.
pub(crate) fn read_all<I: RequestSink>(
    sources: &[Source],
    mut tasks: Vec<Task>,
    settings: &Settings,
    pause: Pause,
    progress: &(dyn Fn(u64) + Sync),
    sink: impl Fn() -> I + Sync,
) -> ReadResult<I> {
    // The largest logs are read first. If a thread started a large log last, all other threads would have to
    // wait for this thread.
    tasks.sort_by_key(|task| (Reverse(sources[task.source].bytes), task.source));
    let threads = settings.threads.max(1);
    let readers = threads.min(tasks.len().max(1));
    let shared = Shared {
        sources,
        tasks: &tasks,
        next: AtomicUsize::new(0),
        settings,
        progress,
        pause,
        // With two threads per log, one thread decompresses the log and the other one parses it.
        ahead: threads >= 2 * readers,
    };
    let workers: Vec<Worker<'_, I>> = thread::scope(|scope| {
        let work = || Worker::new(&shared, sink()).run();
        let others: Vec<_> = (1..readers).map(|_| scope.spawn(work)).collect();
        let first = work();
        let others = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        std::iter::once(first).chain(others).collect()
    });
    let mut all = ReadResult {
        sinks: Vec::new(),
        files: Vec::new(),
        unstarted: Vec::new(),
    };
    for worker in workers {
        all.files.extend(worker.reports);
        all.sinks.push(worker.sink);
    }
    let started = shared.next.load(Ordering::Relaxed).min(tasks.len());
    all.unstarted = tasks.split_off(started);
    all
}

impl Spill {
    /// Prepares the temporary file for an analysis of `logs` logs.
    pub(crate) fn for_settings(settings: &Settings, logs: usize) -> Self {
        let readers = settings.threads.clamp(1, logs.max(1));
        Self::new(
            &settings.temp_folder,
            settings.temp_max.bytes(),
            chunk_bytes(settings.memory, readers),
        )
    }
}

/// Returns the memory for tables in bytes: half of the configured memory.
pub(crate) const fn count_bytes(settings: &Settings) -> u64 {
    settings.memory.bytes() / 2
}

/// Returns the buffer size of a partition in bytes. The buffers of all partitions and readers share a quarter
/// of the configured memory. A smaller buffer than the minimum would cost too many system calls; larger buffers
/// than the maximum would not fit in a core's cache.
fn chunk_bytes(memory: ByteSize, readers: usize) -> usize {
    let bytes = memory.bytes() / 4 / (readers * PARTITIONS) as u64;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) / 16 * 16
}

/// Returns the maximum number of requests in a thread's sample. The samples of all threads share an eighth of
/// the configured memory; a request takes 24 bytes. The maximum depends on the number of configured threads
/// and not on the number of logs. An analysis of some of the logs thus has the same maximum as an analysis of all logs.
pub(crate) fn sample_max(settings: &Settings) -> usize {
    let requests = settings.memory.bytes() / 8 / 24 / settings.threads.max(1) as u64;
    let requests = usize::try_from(requests).unwrap_or(usize::MAX);
    requests.clamp(1, SAMPLE_MAX)
}

/// The maximum size of a sample in requests. For a million requests, reuse distances and four simulations are
/// computed in a few seconds. According to the authors of SHARDS, a sample of a few thousand objects gives an accurate
/// miss-ratio curve.
const SAMPLE_MAX: usize = 1 << 20;

const CHUNK_BYTES_MIN: usize = 1 << 10;
const CHUNK_BYTES_MAX: usize = 32 << 10;
