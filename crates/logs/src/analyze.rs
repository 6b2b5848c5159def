//! Both halves: logs in, figures out.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use edgeward_analysis::{Format, Names, Objects, QueryRule, Sample, Sampled, Tally};
use edgeward_types::ByteSize;

use crate::checkpoint::{self, CheckpointError};
use crate::count::{count, together};
use crate::find::Source;
use crate::partial::PartialError;
use crate::report::FileReport;
use crate::row::{Bare, Row, Sized};
use crate::rows::Rows;
use crate::scan::{Intake, Pause, Shared, Task, Worker};
use crate::spill::{PARTITIONS, Partitions, Spill, SpillError};

/// How logs are read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is wanted.
    pub depth: Depth,
    /// The format of all logs, or nothing to recognise each one's by its content.
    pub format: Option<Format>,
    /// What JSON's fields are called where the format is recognised.
    pub names: Names,
    /// Whether queries count.
    pub query: QueryRule,
    /// How many bits a URL is known by. Partial results have 128 whatever is said here.
    pub fingerprints: FingerprintBits,
    /// Threads that read and count.
    pub threads: usize,
    /// Memory for buffers and tables. The program itself and the decoders come on top.
    pub memory: ByteSize,
    /// Where the temporary file lies.
    pub temp_folder: PathBuf,
    /// How large it may become.
    pub temp_max: ByteSize,
    /// The longest line.
    pub line_bytes_max: usize,
    /// The largest window a zstd frame may claim, as a power of two.
    pub zstd_window_log_max: u32,
    /// How many of the most requested URLs are named.
    pub top_max: usize,
    /// Where to keep what was counted, to go on after an interruption.
    pub checkpoint: Option<Checkpoint>,
}

/// What is wanted of the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// How often each URL was requested, and no more: several times as fast.
    Counts,
    /// Everything.
    #[default]
    Full,
}

/// How many bits a URL is known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FingerprintBits {
    /// Two of 15 million URLs share theirs with probability 6e-6.
    #[default]
    B64,
    /// Two of a million million do with 1e-15. Costs eight bytes more a request.
    B128,
}

/// Keeping what was counted.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// A folder of its own.
    pub folder: PathBuf,
    /// How much is read before it is kept: bytes of the logs as they lie.
    pub every: ByteSize,
}

/// What the logs say.
#[derive(Debug)]
pub struct Analysis {
    /// What came of each log, in the order they were named.
    pub files: Vec<FileReport>,
    /// What all URLs look like.
    pub objects: Objects,
    /// What is counted line by line, with [`Depth::Full`].
    pub tally: Option<Tally>,
    /// All requests for a sample of the objects, with [`Depth::Full`].
    pub sampled: Option<Sampled>,
    /// Why reading stopped early, if there was no room. All that was read is counted.
    pub spill_error: Option<SpillError>,
    /// How large the temporary file became.
    pub temp: ByteSize,
}

/// Why an analysis came to nothing. What is wrong with logs is in their [`FileReport`]s.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalyzeError {
    /// The temporary file cannot be read back.
    #[error(transparent)]
    Spill(#[from] SpillError),
    /// A partial result cannot be written, or is none.
    #[error(transparent)]
    Partial(#[from] PartialError),
    /// What was kept does not fit what is asked now.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl Analysis {
    /// Whether every log was read to its end.
    pub fn is_complete(&self) -> bool {
        self.spill_error.is_none() && self.files.iter().all(|file| file.problem.is_none())
    }
}

/// Reads the logs and counts what is in them. `progress` is told how many bytes more were read, as
/// they lie in the files.
///
/// # Errors
///
/// If the temporary file cannot be read back, or a checkpoint be used. What is wrong with logs is
/// in the [`FileReport`]s.
pub fn analyze(
    sources: &[Source],
    settings: &Settings,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Analysis, AnalyzeError> {
    if settings.checkpoint.is_some() {
        return checkpoint::analyze(sources, settings, progress);
    }
    let once = match (settings.depth, settings.fingerprints) {
        (Depth::Counts, FingerprintBits::B64) => analyze_rows::<Bare<u64>>,
        (Depth::Counts, FingerprintBits::B128) => analyze_rows::<Bare<u128>>,
        (Depth::Full, FingerprintBits::B64) => analyze_rows::<Sized<u64>>,
        (Depth::Full, FingerprintBits::B128) => analyze_rows::<Sized<u128>>,
    };
    Ok(once(sources, settings, progress)?)
}

fn analyze_rows<R: Row>(
    sources: &[Source],
    settings: &Settings,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Analysis, SpillError> {
    let spill = Spill::of(settings, sources.len());
    let tasks = all_tasks(sources);
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
        objects: together(objects, top_max),
        tally,
        sampled: sample.map(Sample::finish),
        spill_error: scanned.spill_error,
        temp: ByteSize(spill.bytes()),
    })
}

/// What was read, before it is counted.
pub(crate) struct Scanned<R> {
    pub(crate) parts: Vec<Partitions<R>>,
    pub(crate) files: Vec<(Task, FileReport)>,
    pub(crate) full: Option<(Tally, Sample)>,
    pub(crate) spill_error: Option<SpillError>,
    /// What was not begun because it was time to pause.
    pub(crate) left: Vec<Task>,
}

/// Every log from its beginning, each with its place in the order of names.
pub(crate) fn all_tasks(sources: &[Source]) -> Vec<Task> {
    let mut by_name: Vec<usize> = (0..sources.len()).collect();
    by_name.sort_by_key(|at| (&sources[*at].label, &sources[*at].machine));
    let tasks = (0..).zip(by_name).map(|(log, source)| Task {
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
) -> Scanned<R> {
    let intake = || Rows::<R>::new(settings, spill);
    let read = read_all(sources, tasks, settings, pause, progress, intake);
    let mut all = Scanned {
        parts: Vec::new(),
        files: read.files,
        full: None,
        spill_error: None,
        left: read.left,
    };
    for rows in read.intakes {
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

/// What all threads took in.
pub(crate) struct ReadAll<I> {
    pub(crate) intakes: Vec<I>,
    pub(crate) files: Vec<(Task, FileReport)>,
    /// What was not begun because it was time to pause.
    pub(crate) left: Vec<Task>,
}

/// Reads logs with all threads.
pub(crate) fn read_all<I: Intake>(
    sources: &[Source],
    mut tasks: Vec<Task>,
    settings: &Settings,
    pause: Pause,
    progress: &(dyn Fn(u64) + Sync),
    intake: impl Fn() -> I + Sync,
) -> ReadAll<I> {
    // The largest first, so that no thread is left with it in the end.
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
        ahead: threads >= 2 * readers,
    };
    let workers: Vec<Worker<'_, I>> = thread::scope(|scope| {
        let work = || Worker::new(&shared, intake()).run();
        let others: Vec<_> = (1..readers).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let others = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        std::iter::once(mine).chain(others).collect()
    });
    let mut all = ReadAll {
        intakes: Vec::new(),
        files: Vec::new(),
        left: Vec::new(),
    };
    for worker in workers {
        all.files.extend(worker.reports);
        all.intakes.push(worker.intake);
    }
    let begun = shared.next.load(Ordering::Relaxed).min(tasks.len());
    all.left = tasks.split_off(begun);
    all
}

impl Spill {
    /// The temporary file of an analysis of so many logs.
    pub(crate) fn of(settings: &Settings, logs: usize) -> Self {
        let readers = settings.threads.clamp(1, logs.max(1));
        Self::new(
            &settings.temp_folder,
            settings.temp_max.bytes(),
            chunk_bytes(settings.memory, readers),
        )
    }
}

/// Half of the memory for tables.
pub(crate) const fn count_bytes(settings: &Settings) -> u64 {
    settings.memory.bytes() / 2
}

/// A quarter of the memory for the partitions' buffers, within what is worth a system call and
/// what a core's cache likes.
fn chunk_bytes(memory: ByteSize, readers: usize) -> usize {
    let share = memory.bytes() / 4 / (readers * PARTITIONS) as u64;
    let share = usize::try_from(share).unwrap_or(usize::MAX);
    share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) / 16 * 16
}

/// An eighth of the memory for the samples, 24 bytes a request, and no more than is of use. By the
/// threads that are allowed rather than by those that have a log to read: parts of an analysis
/// should sample as the whole would.
pub(crate) fn sample_max(settings: &Settings) -> usize {
    let share = settings.memory.bytes() / 8 / 24 / settings.threads.max(1) as u64;
    let share = usize::try_from(share).unwrap_or(usize::MAX);
    share.clamp(1, SAMPLE_MAX)
}

/// A million requests are reuse distances and four simulations in a few seconds. SHARDS's authors
/// found some thousand objects enough.
const SAMPLE_MAX: usize = 1 << 20;

const CHUNK_BYTES_MIN: usize = 1 << 10;
const CHUNK_BYTES_MAX: usize = 32 << 10;
