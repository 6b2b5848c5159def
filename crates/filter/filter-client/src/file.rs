//! Answers lookups from a filter in a local file, which another program may replace.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use edgeward_filter::client::{Answer, ClockFn, Reason};
use edgeward_filter::{Filter, FilterInfo, IdError, IdForm, IdHash, IdHasher, OpenError};

use crate::clock::system_clock;

/// Answers lookups from a file and checks every second whether the file was replaced. A new file that cannot be
/// read or is corrupt is logged and not used; the last valid filter stays in use.
pub struct FileFilter {
    shared: Arc<Shared>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    path: PathBuf,
    max_staleness: Option<Duration>,
    /// The form that the ids of each file must have. `None` accepts any form.
    form: Option<IdForm>,
    clock: ClockFn,
    loaded: RwLock<LoadedFilter>,
}

struct LoadedFilter {
    filter: Filter<Vec<u8>>,
    /// The number of new files that were not used.
    refused: u64,
}

/// The inode, the size, and the modification time (seconds, nanoseconds) of a file. At least one of them changes when
/// the file is replaced or rewritten.
type FileStamp = (u64, u64, i64, i64);

/// Why the filter could not be opened at the start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot read the filter {}", .path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is not a valid filter.
    #[error("{} is not a valid id filter", .path.display())]
    Open {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: OpenError,
    },
    /// The ids of the filter have another form.
    #[error("{} is a filter of {found} ids, which is not the configured form", .path.display())]
    Form {
        /// The path of the file.
        path: PathBuf,
        /// The form of the filter's ids.
        found: IdForm,
    },
    /// The thread cannot be created.
    #[error("cannot create the filter's thread")]
    Thread(#[source] io::Error),
}

impl FileFilter {
    /// Opens the file and follows its changes.
    ///
    /// If `max_staleness` is set, the filter is used until this time has passed since its build. The build time
    /// in the file comes from the builder's wall clock, and this machine's wall clock gives the current time.
    /// Without `max_staleness` the filter never becomes stale. If `form` is set, a filter of another form of
    /// ids is refused.
    pub fn start(
        path: &Path,
        max_staleness: Option<Duration>,
        form: Option<IdForm>,
    ) -> Result<Self, FileError> {
        let (filter, stamp) = load(path, form)?;
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            max_staleness,
            form,
            clock: system_clock(),
            loaded: RwLock::new(LoadedFilter { filter, refused: 0 }),
        });
        let (stop, stopped) = mpsc::channel();
        let watching = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("edgeward-filter".to_owned())
            .spawn(move || {
                let mut last = stamp;
                while stopped.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    last = watching.reload_if_changed(last);
                }
            })
            .map_err(FileError::Thread)?;
        Ok(Self {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Looks up an id in any spelling that the filter's [`IdForm`] allows. Returns [`Answer::Ask`] if the filter is
    /// stale, and for text that is not an id which every origin reads alike ([`IdHasher::hash_query`]).
    pub fn answer(&self, id: impl AsRef<[u8]>) -> Answer {
        self.try_answer(id).unwrap_or(Answer::Ask(Reason::NotAnId))
    }

    /// Like [`Self::answer`], but fails if the text is not an id which every origin reads alike.
    pub fn try_answer(&self, id: impl AsRef<[u8]>) -> Result<Answer, IdError> {
        self.lookup(|hasher| hasher.hash_query(id.as_ref()))
    }

    /// Like [`Self::try_answer`], for an id of arbitrary bytes ([`IdHasher::hash_query_bytes`]).
    pub fn try_answer_bytes(&self, id: &[u8]) -> Result<Answer, IdError> {
        self.lookup(|hasher| hasher.hash_query_bytes(id))
    }

    fn lookup(
        &self,
        hash: impl FnOnce(IdHasher) -> Result<IdHash, IdError>,
    ) -> Result<Answer, IdError> {
        let loaded = self.shared.loaded.read();
        let loaded = loaded.unwrap_or_else(PoisonError::into_inner);
        if !self.shared.is_fresh(&loaded) {
            return Ok(Answer::Ask(Reason::Stale));
        }
        let may_exist = loaded.filter.contains(hash(loaded.filter.hasher())?);
        Ok(if may_exist {
            Answer::Maybe
        } else {
            Answer::Absent
        })
    }

    /// The form of the ids and the seed of their hash.
    pub fn hasher(&self) -> IdHasher {
        let loaded = self
            .shared
            .loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        loaded.filter.hasher()
    }

    /// Returns the header of the filter in use, true if the filter is fresh, and the number of refused files.
    pub fn status(&self) -> (FilterInfo, bool, u64) {
        let loaded = self
            .shared
            .loaded
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        (
            loaded.filter.info(),
            self.shared.is_fresh(&loaded),
            loaded.refused,
        )
    }
}

impl Shared {
    fn is_fresh(&self, loaded: &LoadedFilter) -> bool {
        let Some(max_staleness) = self.max_staleness else {
            return true;
        };
        let now = (self.clock)().wall;
        // If the build time is in the future, the two clocks disagree by an unknown amount, so the age is unknown.
        loaded
            .filter
            .info()
            .built
            .is_some_and(|built| built <= now && now.since(built) <= max_staleness)
    }

    /// Opens the file if its stamp is not `last`, the stamp at the previous check. Returns the stamp for
    /// the next check.
    fn reload_if_changed(&self, last: FileStamp) -> FileStamp {
        let stamp = match fs::metadata(&self.path) {
            Ok(metadata) => stamp_of(&metadata),
            // The file is being replaced or was deleted, so the current filter stays in use.
            Err(_) => return last,
        };
        if stamp == last {
            return last;
        }
        let result = load(&self.path, self.form);
        let mut loaded = self.loaded.write().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok((filter, _)) => loaded.filter = filter,
            Err(error) => {
                loaded.refused += 1;
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, cause, "new filter refused; the last valid filter stays in use");
            }
        }
        stamp
    }
}

fn load(path: &Path, form: Option<IdForm>) -> Result<(Filter<Vec<u8>>, FileStamp), FileError> {
    let unreadable = |source| FileError::Read {
        path: path.to_owned(),
        source,
    };
    let stamp = stamp_of(&fs::metadata(path).map_err(unreadable)?);
    let bytes = fs::read(path).map_err(unreadable)?;
    let filter = Filter::open(bytes).map_err(|source| FileError::Open {
        path: path.to_owned(),
        source,
    })?;
    let found = filter.hasher().form;
    if form.is_some_and(|form| form != found) {
        return Err(FileError::Form {
            path: path.to_owned(),
            found,
        });
    }
    Ok((filter, stamp))
}

fn stamp_of(metadata: &fs::Metadata) -> FileStamp {
    (
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

impl Drop for FileFilter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl fmt::Debug for FileFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileFilter")
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
