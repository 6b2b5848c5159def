//! Both halves: logs in, figures out.

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::thread;

use edgeward_analysis::{Format, Names, Objects, QueryRule, Sample, Sampled, Tally};
use edgeward_types::ByteSize;

use crate::count::count;
use crate::find::Source;
use crate::row::{Bare, Row, Sized};
use crate::scan::{FileReport, Worker};
use crate::spill::{PARTITIONS, Spill, SpillError};

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
/// If the temporary file cannot be read back. What is wrong with logs is in the [`FileReport`]s.
pub fn analyze(
    sources: &[Source],
    settings: &Settings,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Analysis, SpillError> {
    match settings.depth {
        Depth::Counts => analyze_rows::<Bare>(sources, settings, progress),
        Depth::Full => analyze_rows::<Sized>(sources, settings, progress),
    }
}

fn analyze_rows<R: Row>(
    sources: &[Source],
    settings: &Settings,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Analysis, SpillError> {
    let threads = settings.threads.max(1);
    let readers = threads.min(sources.len().max(1));
    let chunk_bytes = chunk_bytes(settings.memory, readers);
    let spill = Spill::new(
        &settings.temp_folder,
        settings.temp_max.bytes(),
        chunk_bytes,
    );

    // The largest first, so that no thread is left with it in the end.
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|at| Reverse(sources[*at].bytes));
    let next = AtomicUsize::new(0);
    let sample_max = sample_max(settings.memory, readers);
    let workers: Vec<Worker<'_, R>> = thread::scope(|scope| {
        let work = || {
            let worker = Worker::<R>::new(
                settings,
                &spill,
                progress,
                sample_max,
                threads >= 2 * readers,
            );
            worker.run(sources, &order, &next)
        };
        let others: Vec<_> = (1..readers).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let others = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        std::iter::once(mine).chain(others).collect()
    });

    let mut files = Vec::new();
    let mut parts = Vec::new();
    let mut full: Option<(Tally, Sample)> = None;
    let mut spill_error = None;
    for worker in workers {
        files.extend(worker.reports);
        parts.push(worker.partitions);
        spill_error = spill_error.or(worker.spill_error);
        match (&mut full, worker.full) {
            (Some((tally, sample)), Some((more_tally, more_sample))) => {
                tally.merge(more_tally);
                sample.merge(more_sample);
            }
            (all, more) => *all = all.take().or(more),
        }
    }
    files.sort_by_key(|(at, _)| *at);
    let memory_bytes = settings.memory.bytes() / 2;
    let objects = count(&parts, &spill, threads, memory_bytes, settings.top_max)?;
    let (tally, sampled) = full.map(|(tally, sample)| (tally, sample.finish())).unzip();
    Ok(Analysis {
        files: files.into_iter().map(|(_, report)| report).collect(),
        objects,
        tally,
        sampled,
        spill_error,
        temp: ByteSize(spill.bytes()),
    })
}

/// A quarter of the memory for the partitions' buffers, within what is worth a system call and
/// what a core's cache likes.
fn chunk_bytes(memory: ByteSize, readers: usize) -> usize {
    let share = memory.bytes() / 4 / (readers * PARTITIONS) as u64;
    let share = usize::try_from(share).unwrap_or(usize::MAX);
    share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX) / 16 * 16
}

/// An eighth of the memory for the samples, 24 bytes a request, and no more than is of use.
fn sample_max(memory: ByteSize, readers: usize) -> usize {
    let share = memory.bytes() / 8 / 24 / readers as u64;
    let share = usize::try_from(share).unwrap_or(usize::MAX);
    share.min(SAMPLE_MAX)
}

/// A million requests are reuse distances and four simulations in a few seconds. SHARDS's authors
/// found some thousand objects enough.
const SAMPLE_MAX: usize = 1 << 20;

const CHUNK_BYTES_MIN: usize = 1 << 10;
const CHUNK_BYTES_MAX: usize = 32 << 10;
