//! Checkpoints: saved intermediate results, from which an interrupted analysis continues.
//!
//! After a given number of bytes, the lines read since the last checkpoint are counted and saved as a partial
//! result in a folder. A later run reads only the remaining lines. At the end the partial results are merged. A
//! checkpoint includes either all or no lines of a compressed log. It may include the first lines of an
//! uncompressed log.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use edgeward_types::ByteSize;

use crate::analyze::{
    Analysis, AnalyzeError, Checkpoint, Depth, ScanResult, Settings, all_tasks, scan,
};
use crate::find::Source;
use crate::partial::{Part, PartialFile, PartialMerge, PartialSummary, write};
use crate::report::{FileReport, FileState};
use crate::row::{Row, SizedRow, UrlRow};
use crate::scan::{Pause, Task, file_state};
use crate::spill::{Spill, SpillError};

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The folder cannot be used.
    #[error("the checkpoint folder {} cannot be used", .folder.display())]
    Folder {
        /// The path of the checkpoint folder.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process uses the folder.
    #[error("the checkpoint folder {} is in use by another analysis", .folder.display())]
    Busy {
        /// The path of the checkpoint folder.
        folder: PathBuf,
    },
    /// The checkpoint was made with other options.
    #[error("the checkpoint in {} was made with other options", .folder.display())]
    OtherOptions {
        /// The path of the checkpoint folder.
        folder: PathBuf,
    },
    /// The checkpoint includes other logs.
    #[error("the checkpoint in {} includes a log that is not among the arguments: {label}", .folder.display())]
    OtherLogs {
        /// The path of the checkpoint folder.
        folder: PathBuf,
        /// The name of the log that is not among the arguments.
        label: String,
    },
    /// A log was changed after it was read.
    #[error("{label} has changed since it was read")]
    Changed {
        /// The name of the log.
        label: String,
    },
    /// A pipe cannot be read again.
    #[error(
        "{label} cannot be read again, so a checkpoint of it is useless; write it to a file first"
    )]
    Pipe {
        /// The name of the input.
        label: String,
    },
}

/// Does the work of [`crate::analyze()`] with checkpoints.
pub(crate) fn analyze(
    sources: &[Source],
    settings: &Settings,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Analysis, AnalyzeError> {
    let run = CheckpointRun::read_all(sources, settings, progress)?;
    let merged = PartialMerge::open(&run.paths)?;
    let mut analysis = merged.analysis(settings.threads, settings.top_max)?;
    // Reports are in the order of the arguments.
    let position_in_arguments =
        |file: &FileReport| sources.iter().position(|source| is_same_log(source, file));
    analysis.files.sort_by_cached_key(position_in_arguments);
    analysis.temp = run.temp;
    analysis.spill_error = run.finish()?;
    Ok(analysis)
}

/// Does the work of [`crate::analyze_to_partial`] with checkpoints.
pub(crate) fn analyze_to_partial(
    sources: &[Source],
    settings: &Settings,
    out: &Path,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<PartialSummary, AnalyzeError> {
    let run = CheckpointRun::read_all(sources, settings, progress)?;
    let mut written = PartialMerge::open(&run.paths)?.into_partial(out, settings.threads)?;
    written.spill_error = run.finish()?;
    Ok(written)
}

/// The state of an analysis with checkpoints.
struct CheckpointRun {
    folder: PathBuf,
    /// Locked while a process uses the folder. The system releases the lock when the process ends.
    _lock: File,
    /// The paths of the partial results.
    paths: Vec<PathBuf>,
    /// The error that ended the run because space for the temporary file ran out.
    spill_error: Option<SpillError>,
    /// The size of the largest temporary file so far.
    temp: ByteSize,
}

impl CheckpointRun {
    fn read_all(
        sources: &[Source],
        settings: &Settings,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Self, AnalyzeError> {
        let checkpoint = settings
            .checkpoint
            .as_ref()
            .expect("this function is called only with a checkpoint");
        if let Some(source) = sources.iter().find(|source| !is_file(source)) {
            let label = source.label.clone();
            return Err(CheckpointError::Pipe { label }.into());
        }
        let mut run = Self::open(checkpoint)?;
        let tasks = run.pending_tasks(sources, settings, progress)?;
        match settings.depth {
            Depth::Counts => {
                run.read_in_rounds::<UrlRow<u128>>(sources, tasks, settings, checkpoint, progress)?;
            }
            Depth::Full => {
                run.read_in_rounds::<SizedRow<u128>>(
                    sources, tasks, settings, checkpoint, progress,
                )?;
            }
        }
        Ok(run)
    }

    fn open(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        let folder = &checkpoint.folder;
        let error = |source| CheckpointError::Folder {
            folder: folder.clone(),
            source,
        };
        fs::create_dir_all(folder).map_err(error)?;
        let lock = File::create(folder.join(LOCK_NAME)).map_err(error)?;
        lock.try_lock().map_err(|failure| match failure {
            fs::TryLockError::WouldBlock => CheckpointError::Busy {
                folder: folder.clone(),
            },
            fs::TryLockError::Error(source) => error(source),
        })?;
        let mut paths = Vec::new();
        for entry in folder.read_dir().map_err(error)? {
            let path = entry.map_err(error)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or_default();
            let number = name.strip_suffix(PARTIAL_SUFFIX).unwrap_or_default();
            if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
                paths.push(path);
            } else if name == INCOMPLETE_NAME || name.ends_with(".unfinished") {
                // An earlier run has left this file when it ran out of space, or when it was killed while
                // writing.
                fs::remove_file(&path).map_err(error)?;
            }
        }
        paths.sort();
        Ok(Self {
            folder: folder.clone(),
            _lock: lock,
            paths,
            spill_error: None,
            temp: ByteSize(0),
        })
    }

    /// Returns tasks for the logs, and the rests of logs, that the checkpoint does not include.
    fn pending_tasks(
        &self,
        sources: &[Source],
        settings: &Settings,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Task>, AnalyzeError> {
        let mut tasks: Vec<Option<Task>> = vec![None; sources.len()];
        for task in all_tasks(sources) {
            tasks[task.source] = Some(task);
        }
        let options = options(settings);
        for path in &self.paths {
            let description = Part::open(path)?.description;
            let same_settings =
                (description.depth, description.query) == (settings.depth, settings.query);
            if !same_settings || description.options != options {
                let folder = self.folder.clone();
                return Err(CheckpointError::OtherOptions { folder }.into());
            }
            for file in &description.files {
                let index = sources.iter().position(|source| is_same_log(source, file));
                let Some(index) = index else {
                    return Err(CheckpointError::OtherLogs {
                        folder: self.folder.clone(),
                        label: file.label.clone(),
                    }
                    .into());
                };
                // The second value of a task's `rest` is the number of lines before the rest.
                tasks[index] = match (tasks[index], file.rest) {
                    (Some(task), Some(rest)) => Some(Task {
                        rest: Some((rest, task.rest.map_or(0, |(_, lines)| lines) + file.lines)),
                        ..task
                    }),
                    _ => None,
                };
                check_unchanged(&sources[index], file)?;
            }
        }
        for (source, task) in sources.iter().zip(&tasks) {
            let read = match task {
                None => source.bytes,
                Some(task) => task.rest.map_or(0, |(rest, _)| rest.position),
            };
            progress(read);
        }
        Ok(tasks.into_iter().flatten().collect())
    }

    /// Reads logs and saves partial results, until all logs are read or space runs out.
    fn read_in_rounds<R: Row<Key = u128>>(
        &mut self,
        sources: &[Source],
        mut tasks: Vec<Task>,
        settings: &Settings,
        checkpoint: &Checkpoint,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), AnalyzeError> {
        // At least one byte must be read between two checkpoints. With zero bytes, each round would pause
        // before it reads, and the loop would not end.
        let every = checkpoint.every.bytes().max(1);
        while !tasks.is_empty() && self.spill_error.is_none() {
            let spill = Spill::for_settings(settings, tasks.len());
            let pause = Pause::after(every);
            let mut scanned = scan::<R>(sources, tasks, settings, &spill, pause, progress);
            tasks = remaining_tasks(&mut scanned);
            let name = if scanned.spill_error.is_some() {
                INCOMPLETE_NAME.to_owned()
            } else {
                format!("{:06}{PARTIAL_SUFFIX}", self.paths.len() + 1)
            };
            let path = self.folder.join(name);
            let file = PartialFile::create(&path)?;
            let written = write(file, scanned, &spill, settings, options(settings))?;
            self.paths.push(path);
            self.spill_error = written.spill_error;
            self.temp = ByteSize(self.temp.bytes().max(spill.bytes()));
        }
        Ok(())
    }

    /// Removes the checkpoint. If space ran out, keeps it, so that the next run continues from it.
    fn finish(self) -> Result<Option<SpillError>, CheckpointError> {
        let error = |source| CheckpointError::Folder {
            folder: self.folder.clone(),
            source,
        };
        if self.spill_error.is_none() {
            for path in &self.paths {
                fs::remove_file(path).map_err(error)?;
            }
            fs::remove_file(self.folder.join(LOCK_NAME)).map_err(error)?;
            // This fails if the folder contains other files. The folder then stays.
            _ = fs::remove_dir(&self.folder);
        }
        Ok(self.spill_error)
    }
}

/// Returns tasks for the logs that no thread has started, and for the rests of logs whose reading was
/// interrupted.
fn remaining_tasks<R>(scanned: &mut ScanResult<R>) -> Vec<Task> {
    let mut pending = std::mem::take(&mut scanned.unstarted);
    for (task, file) in &scanned.files {
        if let Some(rest) = file.rest {
            let before = task.rest.map_or(0, |(_, lines)| lines);
            pending.push(Task {
                rest: Some((rest, before + file.lines)),
                ..*task
            });
        }
    }
    pending
}

fn is_same_log(source: &Source, file: &FileReport) -> bool {
    source.label == file.label && source.machine == file.machine
}

fn is_file(source: &Source) -> bool {
    let path = source.path.as_ref();
    path.is_some_and(|path| path.is_file())
}

/// Checks that a log has not changed since it was read. A log that was read partially may have grown.
fn check_unchanged(source: &Source, file: &FileReport) -> Result<(), CheckpointError> {
    let path = source.path.as_ref();
    let current: Option<FileState> = path.and_then(|path| file_state(&File::open(path).ok()?));
    let unchanged = match file.rest {
        None => current == file.found,
        Some(rest) => current.is_some_and(|current| current.bytes >= rest.position),
    };
    if unchanged {
        return Ok(());
    }
    Err(CheckpointError::Changed {
        label: file.label.clone(),
    })
}

/// Returns a text with the options that affect parsing. It lacks depth and query, for which a partial result has
/// fields.
fn options(settings: &Settings) -> String {
    format!(
        "format {:?}, names {:?}, lines of {} bytes",
        settings.format, settings.names, settings.line_bytes_max
    )
}

const LOCK_NAME: &str = "lock";
const PARTIAL_SUFFIX: &str = ".partial";

/// The name of the partial result that a run writes when space runs out. The report of this run includes the result.
/// The next run removes the file and reads its lines again.
const INCOMPLETE_NAME: &str = "incomplete";
