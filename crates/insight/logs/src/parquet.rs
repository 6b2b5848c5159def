//! Writes requests as Parquet files, for SQL queries on one machine or on many.
//!
//! ```text
//! DIR/day=2015-05-17/000001.parquet   one row per request, in the order of the logs
//! ```
//!
//! Each day is a folder with a name in the format of Hive partitions, which every query engine reads. Hosts are
//! not partitions, because a site may have thousands of hosts, and each would have its own small files. Within
//! a file, the statistics of each row group allow engines to skip hours, hosts and types.

mod columns;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::TypePtr;

use edgeward_analysis::{Entry, Fingerprints};
use edgeward_trace::raw::rfc3339;

use crate::analyze::{Settings, all_tasks, read_all};
use crate::find::Source;
use crate::report::FileReport;
use crate::scan::{Pause, RequestSink, Task};

use columns::{Columns, schema};

/// The result of [`to_parquet`].
#[derive(Debug)]
pub struct ParquetSummary {
    /// The report of each log, in the order of the arguments.
    pub files: Vec<FileReport>,
    /// The number of requests, which is the number of rows.
    pub rows: u64,
    /// The number of Parquet files.
    pub parquet_files: u64,
    /// The first error, which stopped all threads. Rows that were not written until then are missing from the files.
    pub write_error: Option<ToParquetError>,
}

/// Why rows could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToParquetError {
    /// The folder already has files, perhaps with the same requests.
    #[error("{} is not empty", .folder.display())]
    NotEmpty {
        /// The path of the output folder.
        folder: PathBuf,
    },
    /// The folder cannot be used.
    #[error("{} cannot be used", .folder.display())]
    Folder {
        /// The path of the output folder.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file cannot be written, usually because the disk is full.
    #[error("{} cannot be written", .path.display())]
    Write {
        /// The path of the Parquet file.
        path: PathBuf,
        /// The error of the system or of the Parquet library.
        source: ParquetError,
    },
    /// The requests have so many different days, in random order, that too many files would be written.
    #[error("the times of the logs would make more than {FILES_MAX} files")]
    TooManyFiles,
}

/// Reads the logs and writes their requests into an empty folder. `progress` is called with the number of (compressed)
/// bytes read since its last call.
///
/// # Errors
///
/// Returns an error if the folder is not empty or cannot be used. Problems of single logs are reported in the
/// [`FileReport`]s, and an error of writing in [`ParquetSummary::write_error`].
pub fn to_parquet(
    sources: &[Source],
    settings: &Settings,
    folder: &Path,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<ParquetSummary, ToParquetError> {
    let error = |source| ToParquetError::Folder {
        folder: folder.into(),
        source,
    };
    fs::create_dir_all(folder).map_err(error)?;
    if folder.read_dir().map_err(error)?.next().is_some() {
        return Err(ToParquetError::NotEmpty {
            folder: folder.into(),
        });
    }
    let level = ZstdLevel::try_new(ZSTD_LEVEL).expect("zstd has this level");
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_created_by(concat!("edgeward ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let target = Target {
        folder: folder.into(),
        schema: Arc::new(schema()),
        properties: Arc::new(properties),
        files: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        error: Mutex::new(None),
    };
    // The reading never pauses.
    let pause = Pause::after(u64::MAX);
    let days = || Days::new(settings, &target);
    let mut read = read_all(sources, all_tasks(sources), settings, pause, progress, days);
    let mut rows = 0;
    for mut days in read.sinks {
        while let Some(day) = days.open.pop_front() {
            days.close(day);
        }
        rows += days.rows;
    }
    read.files.sort_by_key(|(task, _)| task.source);
    Ok(ParquetSummary {
        files: read.files.into_iter().map(|(_, file)| file).collect(),
        rows,
        parquet_files: target.files.load(Ordering::Relaxed),
        write_error: target
            .error
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
    })
}

/// The output that all threads share.
struct Target {
    folder: PathBuf,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    /// The number of the last file that was begun, from 1.
    files: AtomicU64,
    /// True after an error in any thread. All threads then stop.
    failed: AtomicBool,
    error: Mutex<Option<ToParquetError>>,
}

impl Target {
    fn fail(&self, error: ToParquetError) {
        self.failed.store(true, Ordering::Relaxed);
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(error);
    }
}

/// The open files of one thread. They belong to the days of its most recent lines.
struct Days<'a> {
    target: &'a Target,
    fingerprints: Fingerprints,
    /// The days with an open file, the most recently used day first.
    open: VecDeque<Day>,
    /// The number of rows of a day that are collected before they are written.
    rows_max: usize,
    /// The number of rows in completed files.
    rows: u64,
}

/// The open file of one day.
struct Day {
    /// The number of days since 1970, or `None` for requests without a time.
    number: Option<u64>,
    columns: Columns,
    path: PathBuf,
    writer: Option<SerializedFileWriter<File>>,
    rows: u64,
}

impl<'a> Days<'a> {
    fn new(settings: &Settings, target: &'a Target) -> Self {
        let threads = settings.threads.max(1) as u64;
        // The collected rows take half of the memory, divided among the open days of all threads.
        let rows_max = settings.memory.bytes() / 2 / threads / DAYS_OPEN_MAX as u64 / ROW_BYTES;
        let rows_max = usize::try_from(rows_max).unwrap_or(usize::MAX);
        Self {
            target,
            fingerprints: Fingerprints::new(settings.query),
            open: VecDeque::new(),
            rows_max: rows_max.clamp(ROWS_MIN, ROWS_MAX),
            rows: 0,
        }
    }

    /// Moves the day of a request to the front of `open`, and opens a file for it if necessary. Returns false
    /// if there are too many files.
    fn move_day_to_front(&mut self, number: Option<u64>, entry: &Entry<'_>) -> bool {
        if self.open.front().is_some_and(|day| day.number == number) {
            return true;
        }
        if let Some(index) = self.open.iter().position(|day| day.number == number) {
            let day = self
                .open
                .remove(index)
                .expect("the position was just found");
            self.open.push_front(day);
            return true;
        }
        if self.open.len() >= DAYS_OPEN_MAX
            && let Some(oldest) = self.open.pop_back()
        {
            self.close(oldest);
        }
        let number_of_file = self.target.files.fetch_add(1, Ordering::Relaxed) + 1;
        if number_of_file > FILES_MAX {
            self.target.fail(ToParquetError::TooManyFiles);
            return false;
        }
        let day = entry.time.map(rfc3339);
        let day = day.as_deref().and_then(|time| time.split('T').next());
        let folder = self
            .target
            .folder
            .join(format!("day={}", day.unwrap_or(NO_DAY)));
        self.open.push_front(Day {
            number,
            columns: Columns::default(),
            path: folder.join(format!("{number_of_file:06}.parquet")),
            writer: None,
            rows: 0,
        });
        true
    }

    /// Writes the collected rows of a day.
    fn flush(&mut self, day: &mut Day) {
        if day.columns.is_empty() || self.target.failed.load(Ordering::Relaxed) {
            return;
        }
        let rows = day.columns.len() as u64;
        if let Err(source) = day.write(self.target) {
            let path = day.path.clone();
            self.target.fail(ToParquetError::Write { path, source });
            return;
        }
        day.rows += rows;
    }

    /// Completes a day's file and renames it. An incomplete file is not renamed, and its rows do not count.
    fn close(&mut self, mut day: Day) {
        self.flush(&mut day);
        let Some(writer) = day.writer.take() else {
            return;
        };
        let unfinished = unfinished(&day.path);
        let finish = || {
            let file = writer.into_inner()?;
            file.sync_all()?;
            fs::rename(&unfinished, &day.path)?;
            Ok(())
        };
        match finish() {
            Ok(()) => self.rows += day.rows,
            Err(source) => {
                _ = fs::remove_file(&unfinished);
                let path = day.path;
                self.target.fail(ToParquetError::Write { path, source });
            }
        }
    }
}

impl Day {
    fn write(&mut self, target: &Target) -> Result<(), ParquetError> {
        if self.writer.is_none() {
            let folder = self.path.parent().unwrap_or(&target.folder);
            fs::create_dir_all(folder)?;
            let file = File::create(unfinished(&self.path))?;
            let (schema, properties) = (target.schema.clone(), target.properties.clone());
            self.writer = Some(SerializedFileWriter::new(file, schema, properties)?);
        }
        let writer = self.writer.as_mut().expect("the writer was just created");
        self.columns.write(writer)
    }
}

/// Returns the path of a file while it is being written. Query engines ignore files whose name starts with a
/// dot.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.unfinished"))
}

impl RequestSink for Days<'_> {
    fn begin(&mut self, _task: Task) {}

    fn take(&mut self, entry: &Entry<'_>, machine: &str) -> bool {
        let number = entry.time.map(|time| time.as_secs() / 86_400);
        if !self.move_day_to_front(number, entry) {
            return false;
        }
        let fingerprint = self.fingerprints.fingerprint(entry);
        let url = self.fingerprints.hashed_part(entry.url);
        let mut day = self
            .open
            .pop_front()
            .expect("move_day_to_front put the day at the front");
        day.columns.push(entry, fingerprint, url, machine);
        if day.columns.len() >= self.rows_max {
            self.flush(&mut day);
        }
        self.open.push_front(day);
        !self.is_full()
    }

    /// Returns true after an error in any thread, so that all threads stop.
    fn is_full(&self) -> bool {
        self.target.failed.load(Ordering::Relaxed)
    }
}

/// The maximum number of days with an open file, per thread. Around midnight, lines of two days alternate. Only
/// clocks that jump cause lines of four days.
const DAYS_OPEN_MAX: usize = 4;

/// The approximate memory of a row before it is written.
const ROW_BYTES: u64 = 400;

/// The maximum number of rows of a row group. Row groups of this size compress well, and are small enough for
/// engines to skip many of them.
const ROWS_MAX: usize = 128 << 10;
/// The minimum number of rows that are collected before they are written as a row group.
const ROWS_MIN: usize = 1 << 10;

/// The maximum number of files of one conversion. More files would make the folder hard to list.
const FILES_MAX: u64 = 100_000;

/// Hive's name for the partition of missing values.
const NO_DAY: &str = "__HIVE_DEFAULT_PARTITION__";

/// Files of this zstd level are a third smaller than with Snappy, and faster to read from disk.
const ZSTD_LEVEL: i32 = 3;
