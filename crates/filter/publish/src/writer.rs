//! The thread that owns the journal: it numbers ids, persists them, and publishes them.
//!
//! All lists of ids that arrive during a write to the device form the next batch: one record, one sync of the device
//! and one delta, however many clients posted them. The publisher acknowledges a list when its ids are on the
//! device and published. The client that posted the list may then commit the ids to the database.

mod changes;
mod files;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use bytes::Bytes;
use edgeward_filter::complete::{Completeness, CoveredUntil};
use edgeward_filter::delta::Delta;
use edgeward_filter::journal::Journal;
use edgeward_filter::manifest::Snapshot;
use edgeward_filter::{Digest, IdHash};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::PublishConfig;
use crate::content::{Content, File, FileKind};
use crate::counters::Counters;
use crate::feed::Changes;
use crate::position::PositionFile;
use crate::state::{Restored, StateFolder};
use files::Files;

/// The published state.
#[derive(Debug)]
pub(crate) struct PublishedState {
    /// The number of the manifest.
    pub(crate) serial: u64,
    /// The lineage of the journal.
    pub(crate) lineage: u64,
    /// The epoch of the newest snapshot.
    pub(crate) epoch: u64,
    /// The newest journal number.
    pub(crate) head: u64,
    /// The signed manifest. `None` before the first snapshot.
    pub(crate) manifest: Option<Content>,
    /// The time at which the manifest was made, by the monotonic clock.
    pub(crate) made_at: Duration,
    /// All ids that were committed up to this time are in the journal or in each snapshot from `epoch_min` on.
    pub(crate) covered_until: CoveredUntil,
    /// The lowest epoch of a snapshot with which `covered_until` is true. `None` if no time is covered.
    pub(crate) epoch_min: Option<u64>,
    /// The snapshots and deltas that clients can fetch, by their SHA-256.
    pub(crate) files: HashMap<Digest, Arc<File>>,
    /// The number of ids in the deltas of the journal, for the status page.
    pub(crate) journal_ids: usize,
    /// The size of the newest snapshot in bytes, for the status page.
    pub(crate) snapshot_bytes: u64,
    /// The number of ids in the newest snapshot.
    pub(crate) snapshot_ids: u64,
}

/// A command for the writer.
pub(crate) enum Command {
    /// Journals and publishes ids. Replies with the newest journal number.
    Add {
        ids: Vec<IdHash>,
        done: oneshot::Sender<Result<u64, JournalError>>,
    },
    /// Records ids that were removed from the database. Replies with the newest journal number.
    Remove {
        ids: Vec<IdHash>,
        done: oneshot::Sender<Result<u64, JournalError>>,
    },
    /// Journals and publishes the changes that a feed sent.
    Changes {
        changes: Changes,
        done: SyncSender<Result<(), JournalError>>,
    },
    /// Replies with the stored position of a feed.
    FeedPosition {
        feed: Digest,
        reply: oneshot::Sender<Option<i64>>,
    },
    /// Records that a feed begins. Replies true if the feed has a stored position and no id before this position is
    /// missing. Otherwise a scan must cover the earlier changes.
    BeginFeed {
        feed: Digest,
        reply: oneshot::Sender<bool>,
    },
    /// Publishes the manifest again with the current date.
    RefreshDate { done: oneshot::Sender<()> },
    /// Begins a scan. Replies with the journal number and the epoch of the snapshot that the scan will produce.
    BeginScan { reply: oneshot::Sender<Scan> },
    /// Ends a scan. Replies with the ids of the journal that were not removed before the scan. The builder adds
    /// them to the ids that the scan read.
    EndScan { reply: oneshot::Sender<Vec<IdHash>> },
    /// Publishes a snapshot.
    Publish {
        built: BuiltSnapshot,
        /// Replies with the time (by the monotonic clock) at which an additional scan must begin, or `None` if
        /// the schedule is sufficient.
        done: oneshot::Sender<std::io::Result<Option<Duration>>>,
    },
}

/// A scan in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// The newest journal number when the scan began.
    pub(crate) base: u64,
    /// The epoch of the snapshot that the scan will produce.
    pub(crate) epoch: u64,
    /// The time at which the scan began, by the monotonic clock.
    pub(crate) began: Duration,
}

/// A snapshot that was built and written to the state folder.
pub(crate) struct BuiltSnapshot {
    pub(crate) scan: Scan,
    pub(crate) snapshot: Snapshot,
    pub(crate) file: Arc<File>,
    pub(crate) ids: u64,
}

/// Why ids were not journaled. The client that posted them must not commit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalError {
    /// The journal is full until the next snapshot.
    Full,
    /// The device returned an error.
    Device,
}

pub(crate) struct Writer {
    config: Arc<PublishConfig>,
    folder: StateFolder,
    journal: Journal,
    lineage: u64,
    counters: Arc<Counters>,
    published: watch::Sender<Arc<PublishedState>>,
    /// Requests an early scan.
    request_scan: Arc<dyn Fn() + Send + Sync>,
    completeness: Completeness,
    /// The lineages that a valid position of a feed may have: the current lineage, and the earlier ones unless
    /// ids were lost.
    lineages: Vec<u64>,
    snapshot: Option<Arc<File>>,
    snapshot_ids: u64,
    /// The SHA-256 of the name of the current feed.
    feed: Option<Digest>,
    /// The file with the position of the feed.
    positions: PositionFile,
    /// For each recent snapshot: the newest journal number when its scan began, and the time at which the scan began.
    bases: VecDeque<(u64, Duration)>,
    /// Ids of the journal that were removed from the database later. Ids of the journal are added to the result
    /// of a scan, except these ids.
    removed_ids: HashSet<IdHash>,
    /// The ids of `removed_ids` that were removed before the current scan began. An id that was removed later is
    /// still added to the result: it may have been committed again after the scan read its row.
    removed_before_scan: HashSet<IdHash>,
    files: Files,
}

impl Writer {
    pub(crate) fn new(
        config: Arc<PublishConfig>,
        restored: Restored,
        counters: Arc<Counters>,
        request_scan: Arc<dyn Fn() + Send + Sync>,
    ) -> (Self, watch::Receiver<Arc<PublishedState>>) {
        let Restored {
            folder,
            journal,
            snapshot,
            mut earlier_lineages,
            may_miss_acknowledged_ids,
            ..
        } = restored;
        let lineage = journal.lineage();
        earlier_lineages.push(lineage);
        let (published, watching) = watch::channel(Arc::new(PublishedState {
            serial: journal.serial(),
            lineage,
            epoch: 0,
            head: journal.head(),
            manifest: None,
            made_at: Duration::ZERO,
            covered_until: CoveredUntil::Unknown,
            epoch_min: None,
            files: HashMap::new(),
            journal_ids: 0,
            snapshot_bytes: 0,
            snapshot_ids: 0,
        }));
        let listed = journal.snapshot().copied();
        let snapshot = listed
            .zip(snapshot)
            .map(|(listed, bytes)| File::new(FileKind::Snapshot, listed.sha256, bytes));
        let positions = PositionFile::open(&config.state);
        let snapshot_ids = snapshot.as_ref().map_or(0, |file| snapshot_id_count(file));
        let now = (config.clock)().monotonic;
        let snapshot_epoch = snapshot.as_ref().and(listed).map(|listed| listed.epoch);
        // Clients may still commit acknowledged ids that the journal lacks, until `commit_within` has passed.
        let may_miss_until = may_miss_acknowledged_ids.then(|| now + config.commit_within);
        let completeness = Completeness::start(config.coverage, snapshot_epoch, may_miss_until);
        let mut writer = Self {
            config,
            folder,
            journal,
            lineage,
            counters,
            published,
            request_scan,
            completeness,
            lineages: earlier_lineages,
            snapshot,
            snapshot_ids,
            feed: None,
            positions,
            bases: VecDeque::new(),
            removed_ids: HashSet::new(),
            removed_before_scan: HashSet::new(),
            files: Files::default(),
        };
        writer.publish_manifest();
        (writer, watching)
    }

    /// Runs until all senders of commands are dropped.
    pub(crate) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut next = None;
        while let Some(command) = next.take().or_else(|| commands.blocking_recv()) {
            match command {
                Command::Add { ids, done } => {
                    let mut batch = vec![(ids, done)];
                    let mut count = batch[0].0.len();
                    while count < BATCH_IDS_MAX
                        && let Ok(more) = commands.try_recv()
                    {
                        match more {
                            Command::Add { ids, done } => {
                                count += ids.len();
                                batch.push((ids, done));
                            }
                            other => {
                                next = Some(other);
                                break;
                            }
                        }
                    }
                    self.add_batch(batch);
                }
                other => self.execute(other),
            }
        }
        let written = self.positions.write(self.now());
        self.log_position_error(written);
    }

    fn execute(&mut self, command: Command) {
        // A reply that cannot be sent is ignored: the sender of the command no longer waits for the reply.
        match command {
            Command::Add { ids, done } => self.add_batch(vec![(ids, done)]),
            Command::Remove { ids, done } => {
                self.remove(ids);
                _ = done.send(Ok(self.journal.head()));
            }
            Command::Changes { changes, done } => _ = done.send(self.apply_changes(changes)),
            Command::FeedPosition { feed, reply } => {
                let position = self.position_of(feed).map(|stored| stored.position);
                _ = reply.send(position);
            }
            Command::BeginFeed { feed, reply } => _ = reply.send(self.begin_feed(feed)),
            Command::RefreshDate { done } => {
                self.publish_manifest();
                _ = done.send(());
            }
            Command::BeginScan { reply } => {
                self.removed_before_scan = self.removed_ids.clone();
                _ = reply.send(Scan {
                    base: self.journal.head(),
                    epoch: self.folder.epoch() + 1,
                    began: self.now(),
                });
            }
            Command::EndScan { reply } => {
                let ids = self.journal.delta_ids();
                let ids = ids.filter(|id| !self.removed_before_scan.contains(id));
                _ = reply.send(ids.collect());
            }
            Command::Publish { built, done } => _ = done.send(self.publish(built)),
        }
    }

    fn now(&self) -> Duration {
        (self.config.clock)().monotonic
    }

    fn add_batch(&mut self, batch: Vec<(Vec<IdHash>, AddReply)>) {
        let (ids, done): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let result = self.add(ids.concat());
        for done in done {
            match result {
                Ok(_) => self.counters.posts.increment(),
                Err(_) => self.counters.posts_refused.increment(),
            }
            _ = done.send(result);
        }
    }

    /// Persists ids and publishes them.
    fn add(&mut self, ids: Vec<IdHash>) -> Result<u64, JournalError> {
        if ids.is_empty() {
            return Ok(self.journal.head());
        }
        let journaled: usize = self.delta_ids();
        if journaled + ids.len() > self.config.limits.journal_ids_max {
            (self.request_scan)();
            return Err(JournalError::Full);
        }
        if self.folder.is_log_end_unknown() {
            self.write_state(StateFolder::rewrite_log)?;
        }
        let (head, seed) = (self.journal.head(), self.config.hasher.seed);
        let delta = Delta::new(self.lineage, head, head + 1, seed, ids);
        self.write_state(|folder, _| folder.append(&delta.to_bytes()))?;
        let ids = delta.ids().to_vec();
        for id in &ids {
            self.removed_ids.remove(id);
            self.removed_before_scan.remove(id);
        }
        self.counters.ids_added.add(ids.len() as u64);
        self.journal.append(ids);
        self.publish_manifest();
        if self.delta_ids() as u64 > (self.snapshot_ids / 10).max(EARLY_SCAN_IDS_MIN) {
            // The deltas have more than a tenth as many ids as the snapshot. For a new client, a new snapshot
            // is a smaller download than this snapshot and its deltas.
            (self.request_scan)();
        }
        Ok(self.journal.head())
    }

    fn delta_ids(&self) -> usize {
        let deltas = self.journal.deltas().iter();
        deltas.map(|delta| delta.ids()).sum()
    }

    fn write_state(
        &mut self,
        write: impl FnOnce(&mut StateFolder, &Journal) -> std::io::Result<()>,
    ) -> Result<(), JournalError> {
        write(&mut self.folder, &self.journal).map_err(|error| {
            self.counters.journal_errors.increment();
            tracing::error!(%error, "cannot write the journal; posted ids are refused");
            JournalError::Device
        })
    }

    fn remove(&mut self, ids: Vec<IdHash>) {
        self.counters.ids_removed.add(ids.len() as u64);
        for id in ids {
            if self.removed_ids.len() < self.config.limits.journal_ids_max {
                self.removed_ids.insert(id);
            }
        }
    }

    fn publish(&mut self, built: BuiltSnapshot) -> std::io::Result<Option<Duration>> {
        let BuiltSnapshot {
            scan,
            snapshot,
            file,
            ids,
        } = built;
        self.folder.record_snapshot(snapshot)?;
        // Clients with the previous snapshot still need its deltas. A delta is also kept while clients may
        // still commit its ids, because the scan could not read those ids.
        let now = self.now();
        let is_commit_time_over = |began: Duration| began + self.config.commit_within <= now;
        let previous_base = self.journal.snapshot().map_or(0, |previous| previous.base);
        let old_base = self
            .bases
            .iter()
            .rev()
            .find(|(_, began)| is_commit_time_over(*began));
        let keep_from = old_base.map_or(0, |(base, _)| *base).min(previous_base);
        self.bases.push_back((scan.base, scan.began));
        while self.bases.len() > 2 && is_commit_time_over(self.bases[1].1) {
            self.bases.pop_front();
        }
        self.journal.publish_with_digest(snapshot, keep_from);
        let journaled: HashSet<IdHash> = self.journal.delta_ids().collect();
        self.removed_ids.retain(|id| journaled.contains(id));
        self.snapshot = Some(file);
        self.snapshot_ids = ids;
        self.completeness.published(scan.began, scan.epoch);
        if !self.completeness.may_miss_acknowledged_ids() {
            // An error of this write is ignored: it only causes an additional scan at the next start.
            _ = self.write_state(|folder, _| folder.clear_may_miss_acknowledged_ids());
        }
        self.counters.scans.increment();
        // An error of this write is ignored: the log is then only larger than necessary.
        _ = self.write_state(StateFolder::rewrite_log);
        self.publish_manifest();
        Ok(self.completeness.scan_due_at())
    }

    /// Makes a manifest of the current state and publishes it.
    fn publish_manifest(&mut self) {
        let now = (self.config.clock)();
        let (covered_until, epoch_min) =
            (self.completeness.covers(), self.completeness.epoch_min());
        let lag = match covered_until {
            CoveredUntil::At(at) => now.monotonic.saturating_sub(at),
            _ => Duration::ZERO,
        };
        // If the coverage is unknown, the date is 1970, so that no client relies on it.
        let covers_ms = match covered_until {
            CoveredUntil::Unknown => 0,
            _ => now
                .wall
                .as_millis()
                .saturating_sub(u64::try_from(lag.as_millis()).unwrap_or(u64::MAX)),
        };
        let Some(manifest) = self.journal.manifest(covers_ms, epoch_min) else {
            return;
        };
        if let Err(error) = self.folder.reserve(manifest.serial) {
            self.counters.journal_errors.increment();
            tracing::error!(%error, "cannot write the state; the published manifest stays");
            return;
        }
        let limits = &self.config.limits;
        self.files
            .update(self.snapshot.as_ref(), &self.journal, limits);
        let signed_line = manifest.to_line(self.config.signer.as_ref());
        let tag = format!("{:x}-{:x}", manifest.lineage, manifest.serial);
        self.published.send_replace(Arc::new(PublishedState {
            serial: manifest.serial,
            lineage: manifest.lineage,
            epoch: manifest.snapshot.epoch,
            head: manifest.head,
            manifest: Some(Content::new(Bytes::from(signed_line), tag)),
            made_at: now.monotonic,
            covered_until,
            epoch_min,
            files: self.files.served(),
            journal_ids: self.delta_ids(),
            snapshot_bytes: manifest.snapshot.bytes,
            snapshot_ids: self.snapshot_ids,
        }));
    }
}

type AddReply = oneshot::Sender<Result<u64, JournalError>>;

fn snapshot_id_count(file: &File) -> u64 {
    // A client that accepts no coding gets the uncompressed file.
    let (_, bytes) = file.content.select("");
    edgeward_filter::Filter::open_trusted(&bytes[..]).map_or(0, |filter| filter.info().ids)
}

fn clone_published(published: &PublishedState) -> PublishedState {
    PublishedState {
        manifest: published.manifest.clone(),
        files: published.files.clone(),
        ..*published
    }
}

/// The largest number of ids in one record.
const BATCH_IDS_MAX: usize = 1 << 16;

/// The smallest number of ids in deltas that requests a new snapshot. Deltas with fewer ids are small downloads.
const EARLY_SCAN_IDS_MIN: u64 = 1 << 16;
