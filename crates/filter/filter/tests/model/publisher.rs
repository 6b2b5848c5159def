//! The model of a publisher: its journal, its manifests and proofs, and its state folder. All times are simulated
//! times in ms.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use edgeward_filter::complete::{Completeness, Coverage, CoveredUntil};
use edgeward_filter::delta::Delta;
use edgeward_filter::journal::Journal;
use edgeward_filter::manifest::Snapshot;
use edgeward_filter::{IdHash, Signer};

use crate::dice::Dice;
use crate::world::EPOCH_MS;

/// The contents of the publisher's state folder.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) lineage: u64,
    /// An upper bound of the serial numbers of all manifests so far.
    serial: u64,
    /// The epoch of the newest snapshot, 1 without a snapshot.
    epoch: u64,
    snapshot: Option<Snapshot>,
    deltas: Vec<Delta>,
    position: Option<Position>,
    /// The value of [`Completeness::may_miss_acknowledged_ids`].
    may_miss_acknowledged_ids: bool,
}

/// The position of the feed: all changes up to `at` (in ms) are in the journal up to the journal number `head`.
#[derive(Clone, Copy, Debug)]
struct Position {
    at: u64,
    head: u64,
    /// The value of [`Completeness::feed_has_every_id`] at this position.
    complete: bool,
}

/// The condition of the state folder at a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolderCondition {
    Unchanged,
    /// Restored from a backup.
    Restored,
}

/// Faults that the simulated publisher can have. The simulated runs must detect each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Manifests and proofs accept any snapshot: their `epoch_min` is 0.
    AnySnapshot,
    /// A restart does not begin a new lineage.
    OneLineage,
    /// After a restored backup, the publisher states at once that it has every posted id. It may have lost
    /// acknowledged ids.
    LostPosts,
    /// A feed that lost its position is treated as if it had continued.
    BrokenFeed,
}

/// A scan that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    /// The newest journal number when the scan began.
    pub(crate) base: u64,
    /// The epoch of the snapshot that the scan creates.
    pub(crate) epoch: u64,
    /// The time at which the scan began.
    pub(crate) began: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    journal: Journal,
    lineage: u64,
    /// Computes the time up to which all committed ids are published.
    complete: Completeness,
    config: PublisherConfig,
    /// The epoch of the newest snapshot, 1 without a snapshot.
    epoch: u64,
    position: Option<Position>,
    /// The last position that was written to the state folder.
    stored_position: Option<Position>,
    /// The journal base of each recent snapshot, with the start of its scan in ms.
    bases: VecDeque<(u64, u64)>,
    /// Ids that were removed from the database and that stored deltas still contain.
    removed: HashSet<IdHash>,
    /// The ids of `removed` that were removed before the current scan began.
    removed_before_scan: HashSet<IdHash>,
    /// The newest manifest, and the time in ms at which it was made.
    pub(crate) manifest: Option<(String, u64)>,
    /// The deltas that the newest manifest lists.
    pub(crate) files: Vec<Vec<u8>>,
    /// An upper bound of the serial numbers of all manifests so far.
    serial: u64,
    /// The time by which the wall clock is ahead of real time, in ms.
    pub(crate) wall_ahead: i64,
}

const SET: &str = "resource";
/// The seed of the hashes of ids.
pub(crate) const SEED: u64 = 11;

/// The configuration of a publisher.
#[derive(Clone, Debug)]
pub(crate) struct PublisherConfig {
    /// The source from which the publisher knows that it has all ids: scans, posts or a feed.
    pub(crate) coverage: Coverage,
    /// The time in ms within which a writer commits a posted id.
    pub(crate) commit_within: u64,
    pub(crate) signer: Option<Signer>,
    pub(crate) fault: Fault,
}

impl Publisher {
    pub(crate) fn new(config: PublisherConfig, lineage: u64) -> Self {
        Self {
            journal: Journal::new(SET, lineage, 1, SEED),
            lineage,
            complete: Completeness::start(config.coverage, None, None),
            epoch: 1,
            position: None,
            stored_position: None,
            bases: VecDeque::new(),
            removed: HashSet::new(),
            removed_before_scan: HashSet::new(),
            config,
            manifest: None,
            files: Vec::new(),
            serial: 1,
            wall_ahead: 0,
        }
    }

    /// Returns the contents of the state folder if the publisher is killed now.
    pub(crate) fn folder(&self, dice: &mut Dice) -> Folder {
        let deltas = self.journal.deltas().iter();
        Folder {
            lineage: self.lineage,
            // The real publisher reserves 4096 serial numbers at a time in the folder, before it uses them.
            serial: self.serial + dice.between(1, 4096),
            epoch: self.epoch,
            snapshot: self.journal.snapshot().copied(),
            deltas: deltas
                .map(|delta| Delta::from_bytes(&delta.bytes).expect("the journal wrote it"))
                .collect(),
            may_miss_acknowledged_ids: self.complete.may_miss_acknowledged_ids(),
            // The publisher writes positions once per second, so the newest may be missing.
            position: if dice.percent(50) {
                self.position
            } else {
                self.stored_position
            },
        }
    }

    /// Starts a publisher with a state folder.
    pub(crate) fn start(
        config: PublisherConfig,
        folder: Folder,
        folder_condition: FolderCondition,
        now: u64,
        lineage: u64,
    ) -> Self {
        let fault = config.fault;
        let lineage = match fault {
            Fault::OneLineage => folder.lineage,
            _ => lineage,
        };
        // Like the real publisher: each start begins a new lineage, and the serial number is at least the current
        // time in ms.
        let serial = folder.serial.max(now);
        let journal = Journal::resume(
            SET,
            folder.lineage,
            serial,
            SEED,
            folder.snapshot,
            folder.deltas,
        )
        .expect("the folder is complete")
        .with_lineage(lineage);
        let may_miss =
            folder_condition == FolderCondition::Restored || folder.may_miss_acknowledged_ids;
        // If acknowledged ids may be lost: the time before which their writers commit them to the database.
        let lost_until =
            (may_miss && fault != Fault::LostPosts).then(|| ms(now + config.commit_within));
        let stored_epoch = folder.snapshot.map(|snapshot| snapshot.epoch);
        let head = journal.head();
        let mut publisher = Self {
            journal,
            lineage,
            complete: Completeness::start(config.coverage, stored_epoch, lost_until),
            epoch: folder.epoch,
            position: folder.position.filter(|position| position.head <= head),
            serial,
            ..Self::new(config, lineage)
        };
        publisher.stored_position = publisher.position;
        publisher
    }

    /// Begins a feed. Returns the time in ms of the position at which the feed continues, or `None` without a
    /// position.
    pub(crate) fn begin_feed(&mut self, now: u64) -> Option<u64> {
        let stored = self.journal.snapshot().map(|snapshot| snapshot.epoch);
        let position = self.position;
        // The epoch of the stored snapshot if the feed continues: this snapshot and the journal have all ids that were
        // committed before the position.
        let continues = position.filter(|position| position.complete).and(stored);
        let continues = match self.config.fault {
            Fault::BrokenFeed => stored,
            _ => continues,
        };
        self.complete.record_feed_start(ms(now), continues);
        self.make_manifest(now);
        position.map(|position| position.at)
    }

    /// Forgets the position of the feed, like a database that lost its log of changes.
    pub(crate) fn forget_position(&mut self) {
        (self.position, self.stored_position) = (None, None);
    }

    /// Applies a batch of the feed: all ids that were committed up to the time `asked`.
    pub(crate) fn apply_changes(&mut self, ids: Vec<IdHash>, asked: u64, now: u64) {
        let known: HashSet<IdHash> = self.journal.ids_after_snapshot().collect();
        let is_new = |id: &IdHash| !known.contains(id) || self.removed.contains(id);
        self.add(ids.into_iter().filter(is_new).collect(), now);
        self.complete.record_feed_progress(ms(asked));
        self.stored_position = self.position;
        self.position = Some(Position {
            at: asked,
            head: self.journal.head(),
            complete: self.complete.feed_has_every_id(),
        });
        // A position with another value of `complete` is written at once.
        if self.stored_position.map(|stored| stored.complete)
            != Some(self.complete.feed_has_every_id())
        {
            self.stored_position = self.position;
        }
    }

    /// Adds ids to the journal and makes a manifest.
    pub(crate) fn add(&mut self, ids: Vec<IdHash>, now: u64) {
        if ids.is_empty() {
            return;
        }
        for id in &ids {
            self.removed.remove(id);
            self.removed_before_scan.remove(id);
        }
        self.journal.append(ids);
        self.make_manifest(now);
    }

    pub(crate) fn remove(&mut self, id: IdHash) {
        self.removed.insert(id);
    }

    pub(crate) fn begin_scan(&mut self, now: u64) -> Scan {
        self.removed_before_scan = self.removed.clone();
        Scan {
            base: self.journal.head(),
            epoch: self.epoch + 1,
            began: now,
        }
    }

    /// Returns the journaled ids that a snapshot contains in addition to the ids that its scan found.
    pub(crate) fn journaled_ids(&self) -> Vec<IdHash> {
        let stored = self.journal.delta_ids();
        stored
            .filter(|id| !self.removed_before_scan.contains(id))
            .collect()
    }

    /// Publishes the snapshot that a scan created. `bytes` is its file.
    pub(crate) fn publish(&mut self, scan: Scan, bytes: &[u8], now: u64) {
        // Clients with the previous snapshot still need its deltas. A delta is also kept while writers may still commit
        // its ids, because the scan could not read those ids.
        let is_commit_time_over = |began: u64| began + self.config.commit_within <= now;
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
        self.journal
            .publish(bytes, scan.epoch, scan.base, keep_from);
        self.epoch = scan.epoch;
        let delta_ids: HashSet<IdHash> = self.journal.delta_ids().collect();
        self.removed.retain(|id| delta_ids.contains(id));
        self.complete.published(ms(scan.began), scan.epoch);
        self.make_manifest(now);
    }

    /// The time at which an additional scan must begin. `None` if the scheduled scans suffice.
    pub(crate) fn scan_due_at(&self) -> Option<u64> {
        let at = self.complete.scan_due_at()?;
        Some(at.as_millis() as u64)
    }

    /// Makes the next manifest.
    pub(crate) fn make_manifest(&mut self, now: u64) {
        let wall_ms = |at: u64| (EPOCH_MS + at).saturating_add_signed(self.wall_ahead);
        let covers_ms = match self.complete.covers() {
            CoveredUntil::Unknown => 0,
            CoveredUntil::At(at) => wall_ms(at.as_millis() as u64),
            CoveredUntil::Always => wall_ms(now),
        };
        let epoch_min = self.epoch_min();
        if let Some(manifest) = self.journal.manifest(covers_ms, epoch_min) {
            self.serial = manifest.serial;
            self.files = self
                .journal
                .deltas()
                .iter()
                .map(|delta| delta.bytes.clone())
                .collect();
            self.manifest = Some((manifest.to_line(self.config.signer.as_ref()), now));
        }
    }

    fn epoch_min(&self) -> Option<u64> {
        match self.config.fault {
            Fault::AnySnapshot => Some(0),
            _ => self.complete.epoch_min(),
        }
    }

    /// Returns the proof for the challenge `echo`: up to which time the journal and the snapshots have every id.
    /// `None` if this time is unknown.
    pub(crate) fn prove(&self, echo: [u8; 16], now: u64) -> Option<String> {
        let lag_ms = match self.complete.covers() {
            CoveredUntil::Unknown => return None,
            CoveredUntil::At(at) => now - at.as_millis() as u64,
            CoveredUntil::Always => 0,
        };
        let epoch_min = self.epoch_min()?;
        let proof = self.journal.prove(echo, lag_ms, epoch_min);
        Some(proof.to_line(self.config.signer.as_ref()))
    }
}

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}
