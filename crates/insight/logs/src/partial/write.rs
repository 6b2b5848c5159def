//! Writes a partial result: a file with the statistics of some logs, which can be merged with other such files. The
//! blocks of URLs come first, then the other sections. The file has a temporary name until it is complete.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use edgeward_types::xxh3::xxh3_64;
use tempfile::NamedTempFile;

use edgeward_analysis::wire::Writer;
use edgeward_analysis::{Object, Sample, Tally};
use edgeward_types::ByteSize;

use super::{
    Block, Description, FOOTER_BYTES, HEADER_BYTES, KEYS_PER_BLOCK, MAGIC, PartialError, VERSION,
};
use crate::analyze::{AnalyzeError, Depth, ScanResult, Settings, all_tasks, count_bytes, scan};
use crate::checkpoint;
use crate::count::{UrlSink, count};
use crate::find::Source;
use crate::report::FileReport;
use crate::row::{Row, SizedRow, UrlRow};
use crate::scan::Pause;
use crate::spill::{Spill, SpillError};

/// The result of writing a partial result.
#[derive(Debug)]
pub struct PartialSummary {
    /// The report of each log.
    pub files: Vec<FileReport>,
    /// The number of distinct URLs.
    pub urls: u64,
    /// The size of the partial result.
    pub bytes: ByteSize,
    /// The error that stopped reading early, for example a full disk. All lines read until then are counted.
    pub spill_error: Option<SpillError>,
}

impl PartialSummary {
    /// Returns true if every log was read completely.
    pub fn is_complete(&self) -> bool {
        self.spill_error.is_none() && self.files.iter().all(|file| file.problem.is_none())
    }
}

/// Reads the logs and writes their statistics into a partial result. The file gets the name `out` when it is
/// complete.
///
/// # Errors
///
/// Returns the errors of [`crate::analyze()`], and an error if the partial result cannot be written.
pub fn analyze_to_partial(
    sources: &[Source],
    settings: &Settings,
    out: &Path,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<PartialSummary, AnalyzeError> {
    if settings.checkpoint.is_some() {
        return checkpoint::analyze_to_partial(sources, settings, out, progress);
    }
    match settings.depth {
        Depth::Counts => to_partial::<UrlRow<u128>>(sources, settings, out, progress),
        Depth::Full => to_partial::<SizedRow<u128>>(sources, settings, out, progress),
    }
}

fn to_partial<R: Row<Key = u128>>(
    sources: &[Source],
    settings: &Settings,
    out: &Path,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<PartialSummary, AnalyzeError> {
    // The file is created before the logs are read, so that an error is reported at once and not after an hour.
    let file = PartialFile::create(out)?;
    let spill = Spill::for_settings(settings, sources.len());
    // The scan never pauses.
    let pause = Pause::after(u64::MAX);
    let scanned = scan::<R>(
        sources,
        all_tasks(sources),
        settings,
        &spill,
        pause,
        progress,
    );
    write(file, scanned, &spill, settings, String::new())
}

/// Counts the rows and writes the result.
pub(crate) fn write<R: Row<Key = u128>>(
    file: PartialFile,
    scanned: ScanResult<R>,
    spill: &Spill,
    settings: &Settings,
    options: String,
) -> Result<PartialSummary, AnalyzeError> {
    count(
        &scanned.parts,
        spill,
        settings.threads.max(1),
        count_bytes(settings),
        || BlockWriter::new(&file, settings.depth),
    )?;
    let mut files = scanned.files;
    files.sort_by_key(|(task, _)| task.log);
    let logs: Vec<u32> = files.iter().map(|(task, _)| task.log).collect();
    let mut full = scanned.full;
    if let Some((_, sample)) = &mut full {
        // The requests of the sample refer to their log by number. The new numbers are the positions in `files`.
        sample.renumber(|log| logs.binary_search(&log).map_or(0, |at| at as u32));
    }
    let description = Description {
        depth: settings.depth,
        query: settings.query,
        options,
        files: files.into_iter().map(|(_, file)| file).collect(),
    };
    let (urls, bytes) = file.finish(&description, full.as_ref())?;
    Ok(PartialSummary {
        files: description.files,
        urls,
        bytes: ByteSize(bytes),
        spill_error: scanned.spill_error,
    })
}

/// A partial result that is being written: a temporary file in the folder of `path`.
pub(crate) struct PartialFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: io::BufWriter<NamedTempFile>,
    /// The offset of the next block in the file.
    at: u64,
    /// The written blocks, for the index at the end of the file.
    blocks: Vec<Block>,
}

impl PartialFile {
    pub(crate) fn create(path: &Path) -> Result<Self, PartialError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let begin = || {
            let file = tempfile::Builder::new()
                .prefix(".edgeward-")
                .suffix(".unfinished")
                // The system applies the umask, as for any new file.
                .permissions(Permissions::from_mode(0o666))
                .tempfile_in(folder)?;
            let mut file = io::BufWriter::new(file);
            file.write_all(&header())?;
            Ok(file)
        };
        let file = begin().map_err(|source| PartialError::Write {
            path: path.into(),
            source,
        })?;
        Ok(Self {
            path: path.into(),
            state: Mutex::new(State {
                file,
                at: HEADER_BYTES as u64,
                blocks: Vec::new(),
            }),
        })
    }

    fn error(&self, source: io::Error) -> PartialError {
        PartialError::Write {
            path: self.path.clone(),
            source,
        }
    }

    fn append(&self, partition: u8, keys: usize, bytes: &[u8]) -> Result<(), PartialError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state
            .file
            .write_all(bytes)
            .map_err(|source| self.error(source))?;
        let block = Block {
            partition,
            at: state.at,
            bytes: bytes.len() as u32,
            keys: keys as u32,
            checksum: xxh3_64(bytes),
        };
        state.at += bytes.len() as u64;
        state.blocks.push(block);
        Ok(())
    }

    /// Writes the remaining sections and renames the file. Returns the number of URLs and the length of the
    /// file in bytes.
    pub(crate) fn finish(
        self,
        description: &Description,
        full: Option<&(Tally, Sample)>,
    ) -> Result<(u64, u64), PartialError> {
        let mut wire = Writer::new();
        if let Some((tally, sample)) = full {
            tally.write_to(&mut wire);
            sample.write_to(&mut wire);
        }
        let figures = std::mem::take(&mut wire).into_bytes();
        description.write_to(&mut wire);
        let description = std::mem::take(&mut wire).into_bytes();
        let Self { path, state } = self;
        let state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let error = |source| PartialError::Write {
            path: path.clone(),
            source,
        };
        wire.number(state.blocks.len() as u64);
        for block in &state.blocks {
            wire.byte(block.partition);
            wire.number(u64::from(block.keys));
            wire.number(u64::from(block.bytes));
            wire.fixed(block.checksum);
        }
        let index = wire.into_bytes();
        let mut bytes = state.at + FOOTER_BYTES as u64;
        let mut footer = Writer::new();
        let mut file = state.file;
        for section in [&figures, &description, &index] {
            file.write_all(section).map_err(error)?;
            footer.fixed(section.len() as u64);
            footer.fixed(xxh3_64(section));
            bytes += section.len() as u64;
        }
        let covered = [&header(), footer.bytes()].concat();
        footer.fixed(xxh3_64(&covered));
        footer.raw(MAGIC);
        file.write_all(footer.bytes()).map_err(error)?;
        let file = file
            .into_inner()
            .map_err(|failure| error(failure.into_error()))?;
        file.as_file().sync_all().map_err(error)?;
        file.persist(&path)
            .map_err(|failure| error(failure.error))?;
        let urls = state.blocks.iter().map(|block| u64::from(block.keys)).sum();
        Ok((urls, bytes))
    }
}

pub(super) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// Collects the URLs of one thread into blocks, and appends full blocks to the file.
pub(super) struct BlockWriter<'a> {
    file: &'a PartialFile,
    depth: Depth,
    /// The encoded URLs of the current block.
    wire: Writer,
    /// The number of URLs in the current block.
    keys: usize,
    /// The first byte of the keys in the current block.
    partition: u8,
}

impl<'a> BlockWriter<'a> {
    pub(super) fn new(file: &'a PartialFile, depth: Depth) -> Self {
        Self {
            file,
            depth,
            wire: Writer::new(),
            keys: 0,
            partition: 0,
        }
    }

    fn flush(&mut self) -> Result<(), PartialError> {
        if self.keys > 0 {
            self.file
                .append(self.partition, self.keys, self.wire.bytes())?;
            self.wire.clear();
            self.keys = 0;
        }
        Ok(())
    }
}

impl UrlSink<u128> for BlockWriter<'_> {
    type Error = AnalyzeError;
    const SORTED: bool = true;

    fn add(&mut self, key: u128, object: &Object) -> Result<(), AnalyzeError> {
        let [partition, rest @ ..] = key.to_be_bytes();
        self.partition = partition;
        self.wire.raw(&rest);
        self.wire.number(object.requests);
        if self.depth == Depth::Full {
            self.wire.number(object.bytes);
            // The size has at most 63 bits. The lowest bit of the encoded number is the flag for a complete
            // response.
            self.wire
                .number(object.size << 1 | u64::from(object.complete));
        }
        self.keys += 1;
        if self.keys == KEYS_PER_BLOCK {
            self.flush()?;
        }
        Ok(())
    }

    fn end_partition(&mut self, _partition: usize) -> Result<(), AnalyzeError> {
        Ok(self.flush()?)
    }
}
