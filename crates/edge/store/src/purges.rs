//! The purges of a cache: a table that lookups query, and a log that makes each purge durable.
//!
//! A thread owns the log. It appends all waiting purges, syncs the file once, and then applies the purges to the
//! table and publishes the newest stamp. Then the purge is acknowledged: it applies to all later lookups, also
//! after a crash. `edgeward_purge` decides which objects a purge covers.
//!
//! **The rule for damage**: a damaged log is lost, like a missing one. It is renamed, a new log with a new epoch
//! begins, and all objects on disk count as purged. The cache serves, and [`Purges::damage`] says what happened.

mod log_file;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;

#[cfg(doc)]
use edgeward_purge::Positions;
use edgeward_purge::log::{self, Header, LogError, Record};
use edgeward_purge::{Limits, Purge, PurgeTable, Stamp, TableSize, Verdict};

use log_file::LogFile;

/// The purges of one cache. Dropping this value ends the thread that owns the log.
#[derive(Debug)]
pub struct Purges {
    shared: Arc<Shared>,
    /// `None` for [`PurgeLog::Missing`].
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// The settings of a [`Purges`].
#[derive(Clone, Debug)]
pub struct PurgeSettings {
    /// The place of the log.
    pub log: PurgeLog,
    /// The bounds of the table.
    pub limits: Limits,
    /// Two random numbers for a new log or a table without a log: the epoch, and the seed of the hashes.
    pub random: [u64; 2],
}

/// The place of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeLog {
    /// No log: no object survives a restart.
    None,
    /// The log still belongs to an earlier process, whose newest purge has this stamp. [`Purges::attach`] opens it.
    Later(Stamp),
    /// The log is in this file.
    File(PathBuf),
    /// Objects survive a restart, but no file is configured. Purges that need the log are refused.
    Missing,
}

/// The reason why the purges cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The log cannot be read or written.
    #[error("the log of purges {path} cannot be opened")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The thread cannot be started.
    #[error("the thread of the log of purges cannot be started")]
    Thread(#[source] io::Error),
    /// The thread of the log has ended.
    #[error("the thread of the log of purges has ended")]
    Ended,
}

/// A log that was damaged, and is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}: {reason}. All objects on disk count as purged; the damaged file is now {}",
    .path.display(),
    .renamed.display()
)]
pub struct Damage {
    /// The file of the log.
    pub path: PathBuf,
    /// The new name of the damaged file.
    pub renamed: PathBuf,
    /// The offset and the reason.
    pub reason: LogError,
}

/// The reason why a purge was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// The cache has no file for the log.
    #[error("this disk cache has no log of purges; set purge.log to a file on a file system")]
    NoLog,
    /// Too many purges wait for the log, or its thread has ended.
    #[error("too many purges wait for the log; try again")]
    Busy,
    /// The log cannot be written. The purge applies until the next restart.
    #[error("the purge applies now, but it is not durable: the log cannot be written")]
    NotDurable(#[source] Arc<io::Error>),
}

/// The function that gets the result of a request: the newest stamp after its purges, or the reason of a failure.
type Done = Box<dyn FnOnce(Result<Stamp, PurgeError>) + Send>;

/// A request to the thread that owns the log.
enum Job {
    Purge(PurgeJob),
    /// The log of an earlier process, which has closed it.
    Attach {
        path: PathBuf,
        done: SyncSender<Result<Stamp, OpenError>>,
    },
    /// Closes the log, so that a later process can open it.
    Detach {
        done: SyncSender<()>,
    },
}

/// The purges of one request, or of the stream of the fleet up to a position.
struct PurgeJob {
    purges: Vec<Purge>,
    position: Option<Stamp>,
    /// False if the request does not repeat a write that has failed. See [`Purges::purge_up_to`].
    writes: bool,
    done: Done,
}

#[derive(Debug)]
struct Shared {
    /// The stamp of the newest applied purge. A lookup reads the table only if its object's stamp differs.
    latest: AtomicU64,
    table: RwLock<PurgeTable>,
    /// The number of requests that [`Purges::failures`] returns.
    failures: AtomicU64,
    damage: OnceLock<Damage>,
    renewal: OnceLock<Arc<io::Error>>,
}

impl Purges {
    /// Opens the log, or creates it, and starts the thread.
    pub fn open(settings: &PurgeSettings) -> Result<Self, OpenError> {
        let mut header = Header {
            start: Stamp::start_of(settings.random[0]),
            hash_seed: settings.random[1],
        };
        let fresh = header;
        let mut restored = None;
        let (damage, renewal) = (OnceLock::new(), OnceLock::new());
        match &settings.log {
            PurgeLog::File(path) => {
                let mut opened = open_file(path, &header, &fresh)?;
                if let Some(found) = opened.damage.take() {
                    _ = damage.set(found);
                }
                restored = Some(opened.restore(settings.limits, &fresh, Stamp::NONE));
            }
            PurgeLog::None => {}
            PurgeLog::Later(latest) => header.start = *latest,
            PurgeLog::Missing => {
                // No purge gets a stamp, so the objects of earlier and later processes have the same stamp.
                header.start = Stamp::NONE;
            }
        }
        let (table, header, file, unwritten) = match restored {
            Some(Restored {
                file,
                header,
                table,
                renewed,
                unwritten,
            }) => {
                if let Some(reason) = renewed {
                    _ = renewal.set(reason);
                }
                (table, header, Some(file), unwritten)
            }
            None => {
                let table = PurgeTable::new(settings.limits, header.start, header.hash_seed);
                (table, header, None, None)
            }
        };
        let persisted = table.latest();
        let shared = Arc::new(Shared {
            latest: AtomicU64::new(table.latest().0),
            table: RwLock::new(table),
            failures: AtomicU64::new(0),
            damage,
            renewal,
        });
        let mut purges = Self {
            shared: Arc::clone(&shared),
            jobs: None,
            thread: None,
        };
        if settings.log != PurgeLog::Missing {
            let (jobs, waiting) = mpsc::sync_channel(JOBS_MAX);
            let writer = Writer {
                shared,
                header,
                fresh,
                file,
                limits: settings.limits,
                accepted: matches!(settings.log, PurgeLog::Later(_)).then(Vec::new),
                detached: None,
                unwritten,
                persisted,
            };
            let thread = std::thread::Builder::new()
                .name("edgeward-purges".to_owned())
                .spawn(move || writer.run(&waiting))
                .map_err(OpenError::Thread)?;
            (purges.jobs, purges.thread) = (Some(jobs), Some(thread));
        }
        Ok(purges)
    }

    /// Returns the stamp of an object whose request is sent to the origin now.
    #[inline]
    pub fn latest(&self) -> Stamp {
        Stamp(self.shared.latest.load(Ordering::Acquire))
    }

    /// Returns the verdict on an object, and the stamp of the newest purge that the verdict considers. `head` has the
    /// lines of the object's header fields, which contain its tags. `since` is the object's stamp.
    pub fn verdict(&self, url: &[u8], head: &[u8], since: Stamp) -> (Verdict, Stamp) {
        let table = self.shared.table();
        let mut check = table.check(url, since);
        check.head(url, head);
        (check.verdict(), table.latest())
    }

    /// Accepts purges. Calls `done` when they are durable and apply to all later lookups, or with the error. The
    /// thread of the log calls it, or the caller's thread if the purges are refused.
    pub fn purge(
        &self,
        purges: Vec<Purge>,
        done: impl FnOnce(Result<Stamp, PurgeError>) + Send + 'static,
    ) {
        self.send(PurgeJob {
            purges,
            position: None,
            writes: true,
            done: Box::new(done),
        });
    }

    /// Like [`purge`](Self::purge), for purges that the stream of the fleet has delivered, up to the stamp `position`.
    /// One sync persists both, so after a crash the position is never newer than the purges. If `writes` is false and
    /// the last write of the log has failed, the purges apply in memory, and the write is not tried again.
    pub fn purge_up_to(
        &self,
        position: Stamp,
        purges: Vec<Purge>,
        writes: bool,
        done: impl FnOnce(Result<Stamp, PurgeError>) + Send + 'static,
    ) {
        self.send(PurgeJob {
            purges,
            position: Some(position),
            writes,
            done: Box::new(done),
        });
    }

    fn send(&self, job: PurgeJob) {
        let Some(jobs) = &self.jobs else {
            return (job.done)(Err(PurgeError::NoLog));
        };
        if let Err(refused) = jobs.try_send(Job::Purge(job)) {
            self.shared.failures.fetch_add(1, Ordering::Relaxed);
            let (TrySendError::Full(job) | TrySendError::Disconnected(job)) = refused;
            if let Job::Purge(job) = job {
                (job.done)(Err(PurgeError::Busy));
            }
        }
    }

    /// Returns the stamp of the newest purge of the fleet's stream that is applied with all before it. `None` if this
    /// cache has not followed a stream.
    pub fn position(&self) -> Option<Stamp> {
        self.shared.table().positions().position()
    }

    /// Returns the stamp in the fleet's stream of an object of this cache, see [`Positions::stated`].
    pub fn stated_stamp(&self, own: Stamp) -> Stamp {
        self.shared.table().positions().stated(own)
    }

    /// Returns the stamp in this cache of an object that another node has sent, see [`Positions::received`].
    pub fn received_stamp(&self, stated: Stamp, asked_at: Stamp) -> Stamp {
        self.shared.table().positions().received(stated, asked_at)
    }

    /// Opens the log of an earlier process, which must have closed it, and adds the purges that were accepted
    /// meanwhile. For purges that were opened by [`PurgeLog::Later`]. Returns the stamp of the newest purge. After an
    /// error, purges apply in this process and are reported as not durable.
    pub fn attach(&self, path: PathBuf) -> Result<Stamp, OpenError> {
        let (done, attached) = mpsc::sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or(OpenError::Ended)?;
        jobs.send(Job::Attach { path, done })
            .map_err(|_| OpenError::Ended)?;
        attached.recv().unwrap_or(Err(OpenError::Ended))
    }

    /// Closes the log, so that a later process can open it. Later purges still apply in this process, but are not
    /// persisted: the caller must send them to the later process.
    pub fn detach(&self) {
        let (done, detached) = mpsc::sync_channel(1);
        if let Some(jobs) = &self.jobs
            && jobs.send(Job::Detach { done }).is_ok()
        {
            _ = detached.recv();
        }
    }

    /// Returns the numbers of purges in the table.
    pub fn size(&self) -> TableSize {
        self.shared.table().size()
    }

    /// Returns the number of requests whose purges were refused because the queue was full, or are not durable.
    pub fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// Returns the damage of the log that was opened or attached, if it was damaged.
    pub fn damage(&self) -> Option<&Damage> {
        self.shared.damage.get()
    }

    /// Returns the reason why all objects on disk count as purged although the log was not damaged: it could not be
    /// written when it was opened, the numbers of its epoch are used up, or it was missing when it was attached.
    pub fn renewal(&self) -> Option<&io::Error> {
        self.shared.renewal.get().map(|reason| &**reason)
    }
}

impl Drop for Purges {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Shared {
    fn table(&self) -> RwLockReadGuard<'_, PurgeTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, PurgeTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, records: Vec<Record>) -> Stamp {
        let mut table = self.table_mut();
        records.into_iter().for_each(|record| table.apply(record));
        let latest = table.latest();
        self.latest.store(latest.0, Ordering::Release);
        latest
    }
}

/// The state of the thread that owns the log.
struct Writer {
    shared: Arc<Shared>,
    header: Header,
    /// The header of the log that replaces a damaged one. Its epoch is new.
    fresh: Header,
    /// `None` if no object survives a restart.
    file: Option<LogFile>,
    limits: Limits,
    /// The purges that were accepted before [`Purges::attach`], at most [`ACCEPTED_MAX`] and one batch. `None`
    /// if no log is to be attached.
    accepted: Option<Vec<Purge>>,
    /// The reason why the log could not be attached.
    detached: Option<Arc<io::Error>>,
    /// The error of the last write, if the table has records that the log lacks. The next write replaces the log by the
    /// records of the table, so that a record never follows missing ones.
    unwritten: Option<Arc<io::Error>>,
    /// The newest stamp that the log has, or the one with which this process began.
    persisted: Stamp,
}

impl Writer {
    fn run(mut self, waiting: &Receiver<Job>) {
        while let Ok(first) = waiting.recv() {
            let jobs = std::iter::once(first).chain(waiting.try_iter().take(JOBS_MAX));
            let mut batch = Vec::new();
            let mut purges = 0;
            for job in jobs.collect::<Vec<_>>() {
                match job {
                    Job::Purge(job) if self.is_full(purges + job.purges.len()) => {
                        self.shared.failures.fetch_add(1, Ordering::Relaxed);
                        (job.done)(Err(PurgeError::Busy));
                    }
                    Job::Purge(job) => {
                        purges += job.purges.len();
                        batch.push(job);
                    }
                    Job::Attach { path, done } => {
                        self.accept(std::mem::take(&mut batch));
                        purges = 0;
                        _ = done.send(self.attach(&path));
                    }
                    Job::Detach { done } => {
                        self.accept(std::mem::take(&mut batch));
                        purges = 0;
                        self.write_missing();
                        self.file = None;
                        _ = done.send(());
                    }
                }
            }
            self.accept(batch);
            self.compact();
        }
    }

    /// Returns true if no more purges are accepted: before [`Purges::attach`], or because the log lacks so many that
    /// the numbers of this many `more` might be used again after a crash.
    fn is_full(&mut self, more: usize) -> bool {
        if let Some(accepted) = &self.accepted {
            return accepted.len() >= ACCEPTED_MAX;
        }
        let exceeds = |writer: &Self| {
            let missing = writer.shared.table().latest().0 - writer.persisted.0;
            missing + more as u64 > RESERVED
        };
        let survives = self.file.is_some() || self.detached.is_some();
        if survives && exceeds(self) {
            self.write_missing();
            return exceeds(self);
        }
        false
    }

    /// Repeats a write of the log that has failed.
    fn write_missing(&mut self) {
        if self.unwritten.is_some() && self.file.is_some() && self.rewrite().is_ok() {
            self.unwritten = None;
        }
    }

    /// Replaces the table by that of the log, and adds the purges that were accepted before.
    fn attach(&mut self, path: &Path) -> Result<Stamp, OpenError> {
        let Some(accepted) = self.accepted.take() else {
            return Ok(self.shared.table().latest());
        };
        // A log that is missing is lost, like a damaged one.
        let mut opened = open_file(path, &self.fresh, &self.fresh).inspect_err(|error| {
            let reason = io::Error::other(error.to_string());
            self.detached = Some(Arc::new(reason));
        })?;
        if let Some(damage) = opened.damage.take() {
            _ = self.shared.damage.set(damage);
        }
        if opened.is_new {
            let reason = io::Error::new(io::ErrorKind::NotFound, "the log of purges is missing");
            _ = self.shared.renewal.set(Arc::new(reason));
        }
        // The earlier process may have numbers that the log lacks, and this process has some of its own.
        let own = self.shared.table().latest();
        let restored = opened.restore(self.limits, &self.fresh, own);
        self.header = restored.header;
        self.file = Some(restored.file);
        self.unwritten = restored.unwritten;
        if let Some(reason) = restored.renewed {
            _ = self.shared.renewal.set(reason);
        }
        self.persisted = restored.table.latest();
        *self.shared.table_mut() = restored.table;
        // Objects in memory have stamps of this process. Repeated purges have later stamps, so that they cover these
        // objects too.
        let (send, repeated) = mpsc::sync_channel(1);
        let done: Done = Box::new(move |result| _ = send.send(result));
        self.accept(vec![PurgeJob {
            purges: accepted,
            position: None,
            writes: true,
            done,
        }]);
        match repeated.recv() {
            Ok(Ok(stamp)) => Ok(stamp),
            Ok(Err(PurgeError::NotDurable(error))) => Err(OpenError::File {
                path: path.to_owned(),
                source: io::Error::new(error.kind(), error.to_string()),
            }),
            Ok(Err(_)) | Err(_) => Err(OpenError::Ended),
        }
    }

    /// Makes the purges of all requests durable with one sync, applies them, and calls the requests' functions.
    fn accept(&mut self, jobs: Vec<PurgeJob>) {
        if jobs.is_empty() {
            return;
        }
        if let Some(accepted) = &mut self.accepted {
            accepted.extend(jobs.iter().flat_map(|job| job.purges.iter().cloned()));
        }
        let table = self.shared.table();
        let mut records = Vec::new();
        let mut earlier = 0;
        for job in &jobs {
            for purge in &job.purges {
                records.push(table.record(purge, earlier));
                earlier += 1;
            }
            let position = job.position;
            records.extend(position.map(|position| table.position_record(position, earlier)));
        }
        drop(table);
        let appended = match &self.unwritten {
            Some(error) => Err(Arc::clone(error)),
            None => self.append(&records).map_err(Arc::new),
        };
        let stamp = self.shared.apply(records);
        let writes = self.unwritten.is_none() || jobs.iter().any(|job| job.writes);
        let written = match &self.detached {
            Some(reason) => Err(Arc::clone(reason)),
            // The end of the file is unknown, or records are missing.
            None if writes => appended.or_else(|_| self.rewrite().map_err(Arc::new)),
            None => appended,
        };
        self.unwritten = written.as_ref().err().map(Arc::clone);
        if written.is_ok() && self.file.is_some() {
            self.persisted = stamp;
        }
        if written.is_err() {
            let failed = jobs.iter().filter(|job| !job.purges.is_empty()).count();
            self.shared
                .failures
                .fetch_add(failed as u64, Ordering::Relaxed);
        }
        for job in jobs {
            (job.done)(match &written {
                Ok(()) => Ok(stamp),
                Err(error) => Err(PurgeError::NotDurable(Arc::clone(error))),
            });
        }
    }

    /// Appends records to the log and syncs it.
    fn append(&mut self, records: &[Record]) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        records
            .iter()
            .for_each(|record| record.write(&self.header, &mut bytes));
        file.append(&bytes)
    }

    /// Rewrites a log that is much longer than its table, so that the length of the log stays bounded.
    fn compact(&mut self) {
        let Some(file) = &self.file else { return };
        let needed = self.shared.table().records_bytes_max();
        if file.bytes() > COMPACTION_BYTES_MIN + 2 * needed {
            // After an error the old file is as complete as before. The next purge tries the rewrite again.
            if self.rewrite().is_ok() {
                self.unwritten = None;
            }
        }
    }

    /// Replaces the log by a new one with the records of the table.
    fn rewrite(&mut self) -> io::Result<()> {
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut bytes = self.header.bytes().to_vec();
        let table = self.shared.table();
        table
            .records()
            .for_each(|record| record.write(&self.header, &mut bytes));
        let latest = table.latest();
        drop(table);
        file.replace(&bytes)?;
        self.persisted = latest;
        Ok(())
    }
}

struct OpenedLog {
    file: LogFile,
    header: Header,
    records: Vec<Record>,
    damage: Option<Damage>,
    /// True if the log was created now.
    is_new: bool,
}

/// A log and the table of its records.
struct Restored {
    file: LogFile,
    header: Header,
    table: PurgeTable,
    /// The reason of a new epoch. See [`Purges::renewal`].
    renewed: Option<Arc<io::Error>>,
    /// See [`Writer::unwritten`].
    unwritten: Option<Arc<io::Error>>,
}

impl OpenedLog {
    /// Restores the table. An earlier process may have given numbers to purges that it could not write to the log, and
    /// to objects on disk. The next number is therefore above all that it can have used, and above `own`. If the log
    /// cannot record this, a new epoch begins with the header `fresh`, so that all objects on disk count as purged.
    fn restore(self, limits: Limits, fresh: &Header, own: Stamp) -> Restored {
        let Self {
            mut file,
            mut header,
            records,
            is_new,
            ..
        } = self;
        let mut table = PurgeTable::new(limits, header.start, header.hash_seed);
        records.into_iter().for_each(|record| table.apply(record));
        let (mut renewed, mut unwritten) = (None, None);
        if !is_new {
            let newest = table.latest();
            let newest = match own.epoch() == newest.epoch() {
                true => newest.max(own),
                false => newest,
            };
            match reserve(&mut file, &header, newest) {
                Ok(reserved) => table.apply(reserved),
                Err(error) => {
                    header = *fresh;
                    table = PurgeTable::new(limits, header.start, header.hash_seed);
                    unwritten = file.replace(&header.bytes()).err().map(Arc::new);
                    renewed = Some(Arc::new(error));
                }
            }
        }
        Restored {
            file,
            header,
            table,
            renewed,
            unwritten,
        }
    }
}

/// Records in a log that the numbers up to [`RESERVED`] above `newest` are used.
fn reserve(file: &mut LogFile, header: &Header, newest: Stamp) -> io::Result<Record> {
    let latest = Stamp(newest.0 + RESERVED);
    if Stamp(latest.0 + RESERVED).epoch() != newest.epoch() {
        return Err(io::Error::other(
            "the log has used all numbers of its epoch",
        ));
    }
    let record = Record::State {
        latest,
        floor: Stamp::NONE,
    };
    let mut bytes = Vec::new();
    record.write(header, &mut bytes);
    file.append(&bytes)?;
    Ok(record)
}

/// Opens a log, or creates one with the header `new`. Cuts off the tail of an interrupted write. Renames a damaged log
/// and creates one with the header `fresh`.
fn open_file(path: &Path, new: &Header, fresh: &Header) -> Result<OpenedLog, OpenError> {
    let file_error = |source| OpenError::File {
        path: path.to_owned(),
        source,
    };
    let Some((mut file, bytes)) = LogFile::open(path).map_err(file_error)? else {
        let file = LogFile::create(path, &new.bytes()).map_err(file_error)?;
        return Ok(OpenedLog {
            file,
            header: *new,
            records: Vec::new(),
            damage: None,
            is_new: true,
        });
    };
    let parsed = match log::parse(&bytes) {
        Ok(parsed) => parsed,
        Err(reason) => {
            let renamed = PathBuf::from(
                [path.as_os_str(), OsStr::new(".damaged")]
                    .into_iter()
                    .collect::<OsString>(),
            );
            std::fs::rename(path, &renamed).map_err(file_error)?;
            return Ok(OpenedLog {
                file: LogFile::create(path, &fresh.bytes()).map_err(file_error)?,
                header: *fresh,
                records: Vec::new(),
                damage: Some(Damage {
                    path: path.to_owned(),
                    renamed,
                    reason,
                }),
                is_new: true,
            });
        }
    };
    file.cut(parsed.valid_bytes as u64).map_err(file_error)?;
    Ok(OpenedLog {
        file,
        header: parsed.header,
        records: parsed.records,
        damage: None,
        is_new: false,
    })
}

/// The most purges that apply without a record in the log, because it cannot be written. A start leaves out as many
/// numbers: an epoch has 2^40, so it lasts for a million starts. Then all objects on disk count as purged once.
const RESERVED: u64 = 1 << 20;

/// The maximum number of requests that wait for the log. One sync makes all of them durable.
const JOBS_MAX: usize = 1024;

/// The maximum number of purges that a process accepts before it gets the log of an earlier process: seconds later.
/// Each takes about 100 bytes.
const ACCEPTED_MAX: usize = 100_000;

/// A log of at most this length in bytes is not rewritten. It has about 30 000 purges of tags.
const COMPACTION_BYTES_MIN: u64 = 1 << 20;
