//! The state of a filter client: decides how long the client may rely on its filter.
//!
//! **The guarantee**: for an id that was committed more than `max_staleness` ago, the client never answers
//! [`Answer::Absent`]. The guarantee holds even if updates are lost, duplicated or reordered, wall clocks are
//! stepped, old manifests are replayed, or the publisher dies. [`Client::answer`] returns `Absent` only
//! before a deadline. After the deadline, callers send every request to the origin ("fail open").
//!
//! A deadline follows from a statement of the publisher: *each id committed by time `c` is in the journal up to
//! number `h`, or in every snapshot of lineage `l` from epoch `e` on*. The journal is the numbered list of
//! added ids; its lineage is a random number, new at each start of the publisher. The epoch is the sequence number of a
//! snapshot. A client that has one of these snapshots, and has applied the journal up to `h`, may answer `Absent` until
//! `c + max_staleness`. Other clients store the statement until they have these files. Within a lineage `e` and `h`
//! never decrease; a statement with a smaller number is refused. The client converts `c` to its own clock in one of two
//! ways:
//!
//! - A **proof** echoes 16 random bytes of the client's request, sent at `s`. The proof states `lag`, the time
//!   between `c` and the proof, as measured by the publisher. The proof was made after `s`, so `c ≥ s - lag`.
//!   The client's clock is not compared with the publisher's. A replayed proof echoes bytes of another request
//!   and is refused.
//! - A **manifest** from a cache states `c` by the publisher's wall clock. It counts only if the operator
//!   states how far the two wall clocks may differ ([`ClientConfig::clock_error`]).
//!
//! The time elapsed since `c` is the larger of the times that passed on the client's monotonic clock and on its
//! wall clock. A wall clock that is stepped back therefore does not extend a deadline. A monotonic clock that
//! stopped while the machine slept does not extend a deadline either. There are two assumptions:
//!
//! - All clocks run at the same rate; a difference of a minute per month is negligible.
//! - No wall clock is stepped back between a sleep and the first observation after the sleep. This assumption
//!   is not needed if the monotonic clock runs during sleep, as `CLOCK_BOOTTIME` does.
//!
//! The client does no I/O. [`Client::to_fetch`] lists what to fetch. The caller passes in what was fetched, from
//! any source and in any order. A file is accepted only if an accepted manifest lists its digest.

mod clock;
mod overlay;
mod received;
mod update_error;

use std::collections::VecDeque;
use std::time::Duration;

use crate::delta::Delta;
use crate::digest::{Digest, from_hex, to_hex};
use crate::filter::Filter;
use crate::id::{IdHash, IdHasher};
use crate::manifest::{DELTAS_MAX, DeltaEntry, Manifest, Proof, Snapshot};
use crate::signed::Trust;
use clock::{Clock, Moment};
pub use clock::{ClockFn, Now};
use overlay::Overlay;
pub use received::ReceivedSnapshot;
pub use update_error::UpdateError;

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The name of the set of ids.
    pub set: String,
    /// The manifests and proofs that the client accepts: those signed with certain keys, or all.
    pub trust: Trust,
    /// The client never answers [`Answer::Absent`] for an id that was committed longer ago than this.
    pub max_staleness: Duration,
    /// The largest difference between this machine's wall clock and the publisher's, if the operator guarantees
    /// one. If `None`, only proofs make a filter fresh.
    pub clock_error: Option<Duration>,
    /// Manifests with a smaller serial number are refused as replays. After a restart, set this to the value that
    /// [`Client::serial`] had before.
    pub serial_min: u64,
    /// Larger snapshots are refused before they are fetched.
    pub snapshot_bytes_max: u64,
    /// The largest size of the overlay: the exact set of the ids that were added since the snapshot. Each id
    /// takes at most about 34 bytes. A client with a full overlay waits for the next snapshot, and fails open
    /// once its filter is stale.
    pub overlay_ids_max: usize,
}

impl ClientConfig {
    /// Returns a configuration for `set` with this `max_staleness` and defaults for the other fields.
    pub fn new(set: impl Into<String>, trust: Trust, max_staleness: Duration) -> Self {
        Self {
            set: set.into(),
            trust,
            max_staleness,
            clock_error: None,
            serial_min: 0,
            // A hundred million ids at a rate of 0.1 % take 180 MB.
            snapshot_bytes_max: 1 << 30,
            // About a million. A publisher builds a new snapshot when a tenth of its ids were added after the last
            // one, so this is enough for ten million ids.
            overlay_ids_max: 1 << 20,
        }
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The id does not exist, or was committed less than `max_staleness` ago: do not send the request.
    Absent,
    /// The id may exist: send the request.
    Maybe,
    /// The client cannot decide: send the request.
    Ask(Reason),
}

/// Why the client cannot decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No snapshot was received yet.
    NoFilter,
    /// No statement shows that the filter has all ids committed up to `max_staleness` ago.
    Stale,
    /// The text is not an id that every origin reads alike ([`IdHasher::hash_query`]).
    NotAnId,
}

/// The files to fetch, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchList {
    /// A newer snapshot.
    pub snapshot: Option<Snapshot>,
    /// Deltas for the snapshot in use.
    pub deltas: Vec<DeltaEntry>,
}

/// The state of a client. `B` holds a snapshot's bytes, for example a vector or a mapped file.
#[derive(Clone, Debug)]
pub struct Client<B> {
    config: ClientConfig,
    clock: Clock,
    active: Option<ActiveSnapshot<B>>,
    newest: Option<Manifest>,
    /// The newest manifest as it was received.
    newest_manifest_line: Vec<u8>,
    /// The deltas that recent manifests listed, with their lineage. The publisher may merge a delta into a larger
    /// one while a client downloads the delta; the client still accepts it.
    listed_deltas: VecDeque<(u64, DeltaEntry)>,
    /// Requests in flight: their challenges and when they were sent.
    challenges: VecDeque<([u8; 16], Moment)>,
    /// Statements that cannot be applied yet, because some of their ids were not received.
    pending: VecDeque<Statement>,
    deadline: Option<Moment>,
    highest: HighestNumbers,
}

/// The numbers of the newest accepted manifest or proof. A smaller `serial` is refused, and within `lineage` also a
/// smaller `head` or `epoch_min`.
#[derive(Clone, Copy, Debug, Default)]
struct HighestNumbers {
    serial: u64,
    lineage: u64,
    head: u64,
    epoch_min: u64,
}

/// The snapshot in use and the ids that were added after it.
#[derive(Clone, Debug)]
struct ActiveSnapshot<B> {
    lineage: u64,
    sha256: Digest,
    epoch: u64,
    /// The snapshot has all ids up to this number of the journal.
    journal_base: u64,
    /// The snapshot and the overlay have all ids up to this number of the journal.
    applied: u64,
    filter: Filter<B>,
    overlay: Overlay,
}

/// The statement "each id committed at least `max_staleness` before the deadline is in the journal up to `head`,
/// or in every snapshot from `epoch_min` on".
#[derive(Clone, Copy, Debug)]
struct Statement {
    lineage: u64,
    epoch_min: u64,
    head: u64,
    deadline: Moment,
}

impl<B: AsRef<[u8]>> Client<B> {
    /// Creates a client without a filter. It answers [`Answer::Ask`] for every id.
    pub fn new(config: ClientConfig) -> Self {
        let highest = HighestNumbers {
            serial: config.serial_min,
            ..HighestNumbers::default()
        };
        Self {
            config,
            highest,
            clock: Clock::default(),
            active: None,
            newest: None,
            newest_manifest_line: Vec::new(),
            listed_deltas: VecDeque::new(),
            challenges: VecDeque::new(),
            pending: VecDeque::new(),
            deadline: None,
        }
    }

    /// Looks up an id.
    #[inline]
    pub fn answer(&self, now: Now, id: IdHash) -> Answer {
        let Some(active) = &self.active else {
            return Answer::Ask(Reason::NoFilter);
        };
        if !self.is_fresh(now) {
            return Answer::Ask(Reason::Stale);
        }
        if active.filter.contains(id) || active.overlay.contains(id) {
            Answer::Maybe
        } else {
            Answer::Absent
        }
    }

    /// Returns true while the filter is fresh: [`Self::answer`] may return [`Answer::Absent`].
    #[inline]
    pub fn is_fresh(&self, now: Now) -> bool {
        self.deadline
            .is_some_and(|deadline| self.clock.moment(now) <= deadline)
    }

    /// The hash function for [`Self::answer`]. `None` before the first snapshot.
    pub fn hasher(&self) -> Option<IdHasher> {
        self.active.as_ref().map(|active| active.filter.hasher())
    }

    /// The epoch of the snapshot in use, and the number of ids that were added after it.
    pub fn active_snapshot(&self) -> Option<(u64, usize)> {
        let active = self.active.as_ref()?;
        Some((active.epoch, active.overlay.len()))
    }

    /// The position of the client: the lineage, the snapshot's epoch, and the journal number up to which all
    /// added ids were received.
    pub fn position(&self) -> Option<(u64, u64, u64)> {
        let active = self.active.as_ref()?;
        Some((active.lineage, active.epoch, active.applied))
    }

    /// The time until the filter becomes stale, if no further statement arrives.
    pub fn fresh_for(&self, now: Now) -> Duration {
        let left = self
            .deadline
            .map(|deadline| self.clock.time_until(now, deadline));
        left.unwrap_or_default()
    }

    /// Information about the filter in use.
    pub fn info(&self) -> Option<crate::filter::FilterInfo> {
        self.active.as_ref().map(|active| active.filter.info())
    }

    /// The number of the newest manifest. Persist it as [`ClientConfig::serial_min`] for the next start.
    pub fn serial(&self) -> u64 {
        self.newest
            .as_ref()
            .map_or(self.config.serial_min, |manifest| manifest.serial)
    }

    /// The newest manifest as it was received, to be stored with its snapshot.
    pub fn manifest_line(&self) -> Option<Vec<u8>> {
        (!self.newest_manifest_line.is_empty()).then(|| self.newest_manifest_line.clone())
    }

    /// Registers a request to the publisher, which must be sent after this call. `random` must be
    /// unpredictable. Returns the challenge that the request carries.
    pub fn challenge(&mut self, now: Now, random: [u8; 16]) -> String {
        let sent = self.clock.observe(now);
        if self.challenges.len() == CHALLENGES_MAX {
            self.challenges.pop_front();
        }
        self.challenges.push_back((random, sent));
        to_hex(&random)
    }

    /// Accepts a manifest from any source.
    pub fn accept_manifest(&mut self, now: Now, line: &[u8]) -> Result<(), UpdateError> {
        self.clock.observe(now);
        let manifest = Manifest::from_line(line, &self.config.trust)?;
        self.check_set(&manifest.set)?;
        self.check_serial(manifest.serial)?;
        match &self.newest {
            Some(earlier) if earlier.serial == manifest.serial && *earlier != manifest => {
                return Err(UpdateError::Contradiction);
            }
            _ => {}
        }
        let (lineage, epoch_min, head) = (manifest.lineage, manifest.epoch_min, manifest.head);
        self.check_numbers(lineage, epoch_min, head)?;
        if let Some(earlier) = self
            .newest
            .as_ref()
            .filter(|earlier| earlier.lineage == lineage)
        {
            check_not_smaller("epoch", manifest.snapshot.epoch, earlier.snapshot.epoch)?;
            check_not_smaller("base", manifest.snapshot.base, earlier.snapshot.base)?;
        }
        self.record_highest(manifest.serial, lineage, epoch_min, head);
        self.add_statement_of_date(now, &manifest);
        for entry in &manifest.deltas {
            let listed = (manifest.lineage, *entry);
            if !self.listed_deltas.contains(&listed) {
                if self.listed_deltas.len() == LISTED_MAX {
                    self.listed_deltas.pop_front();
                }
                self.listed_deltas.push_back(listed);
            }
        }
        self.adopt_lineage(&manifest);
        self.newest = Some(manifest);
        self.newest_manifest_line = line.to_vec();
        self.apply_statements();
        Ok(())
    }

    /// Accepts a proof, the answer to a challenge.
    pub fn accept_proof(&mut self, now: Now, line: &[u8]) -> Result<(), UpdateError> {
        self.clock.observe(now);
        let proof = Proof::from_line(line, &self.config.trust)?;
        self.check_set(&proof.set)?;
        let echo = from_hex(&proof.echo).map_err(|_| UpdateError::UnknownChallenge)?;
        let index = self
            .challenges
            .iter()
            .position(|(random, _)| *random == echo);
        let (_, sent) = index
            .and_then(|index| self.challenges.remove(index))
            .ok_or(UpdateError::UnknownChallenge)?;
        self.check_serial(proof.serial)?;
        self.check_numbers(proof.lineage, proof.epoch_min, proof.head)?;
        self.record_highest(proof.serial, proof.lineage, proof.epoch_min, proof.head);
        let lag = Duration::from_millis(proof.lag_ms);
        if let Some(left) = self.config.max_staleness.checked_sub(lag) {
            self.add_statement(Statement {
                lineage: proof.lineage,
                epoch_min: proof.epoch_min,
                head: proof.head,
                deadline: self.clock.deadline(sent, left),
            });
        }
        self.apply_statements();
        Ok(())
    }

    /// Accepts a snapshot that the newest manifest lists.
    pub fn accept_snapshot(&mut self, now: Now, bytes: B) -> Result<(), UpdateError> {
        self.accept_received(now, ReceivedSnapshot::open(bytes))
    }

    /// Accepts a snapshot that the caller opened with [`ReceivedSnapshot::open`], for example on another thread.
    pub fn accept_received(
        &mut self,
        now: Now,
        received: ReceivedSnapshot<B>,
    ) -> Result<(), UpdateError> {
        self.clock.observe(now);
        let manifest = self.newest.as_ref().ok_or(UpdateError::Unlisted)?;
        let listed_snapshot = manifest.snapshot;
        let lineage = manifest.lineage;
        self.check_size(&listed_snapshot)?;
        if received.digest != listed_snapshot.sha256 {
            return Err(UpdateError::Unlisted);
        }
        let filter = received.filter?;
        if filter.info().epoch != listed_snapshot.epoch {
            return Err(UpdateError::Contradiction);
        }
        let mut active = ActiveSnapshot {
            lineage,
            sha256: received.digest,
            epoch: listed_snapshot.epoch,
            journal_base: listed_snapshot.base,
            applied: listed_snapshot.base,
            overlay: Overlay::new(lineage),
            filter,
        };
        match self.active.take() {
            Some(old) if old.lineage == lineage => {
                let same_hash = old.filter.hasher().seed == active.filter.hasher().seed;
                if old.epoch >= listed_snapshot.epoch
                    || old.journal_base > listed_snapshot.base
                    || !same_hash
                {
                    self.active = Some(old);
                    return Err(UpdateError::Older);
                }
                // The old overlay has all ids from the new base up to `old.applied`.
                active.applied = old.applied.max(listed_snapshot.base);
                active.overlay = old.overlay;
                active.overlay.forget_up_to(listed_snapshot.base);
            }
            // The deadline was computed for another lineage.
            _ => self.deadline = None,
        }
        self.active = Some(active);
        self.apply_statements();
        Ok(())
    }

    /// Accepts a delta that a recent manifest listed.
    pub fn accept_delta(&mut self, now: Now, bytes: &[u8]) -> Result<(), UpdateError> {
        self.clock.observe(now);
        let digest = Digest::compute(bytes);
        let listed = self
            .listed_deltas
            .iter()
            .find(|(_, entry)| entry.sha256 == digest);
        let &(lineage, entry) = listed.ok_or(UpdateError::Unlisted)?;
        let delta = Delta::from_bytes(bytes)?;
        let active = match &mut self.active {
            Some(active) if active.lineage == lineage => active,
            _ => return Err(UpdateError::MissingEarlierIds),
        };
        let stated = (delta.lineage, delta.from, delta.to, delta.hash_seed);
        if stated != (lineage, entry.from, entry.to, active.filter.hasher().seed) {
            return Err(UpdateError::Contradiction);
        }
        if entry.from > active.applied {
            return Err(UpdateError::MissingEarlierIds);
        }
        if entry.to <= active.applied {
            // The delta is a duplicate, or another delta has the same ids.
            return Ok(());
        }
        let ids_left = self
            .config
            .overlay_ids_max
            .saturating_sub(active.overlay.len());
        if delta.ids().len() > ids_left {
            return Err(UpdateError::OverlayFull {
                ids_max: self.config.overlay_ids_max,
            });
        }
        active.overlay.add(delta.ids(), entry.to);
        active.applied = entry.to;
        self.apply_statements();
        Ok(())
    }

    /// Returns the error if the newest snapshot should be fetched but is larger than the operator allows.
    pub fn snapshot_refused(&self) -> Option<UpdateError> {
        let manifest = self.newest.as_ref()?;
        let needed = self.needs_snapshot(manifest);
        needed.then(|| self.check_size(&manifest.snapshot).err())?
    }

    fn needs_snapshot(&self, manifest: &Manifest) -> bool {
        self.active.as_ref().is_none_or(|active| {
            active.lineage != manifest.lineage || active.epoch < manifest.snapshot.epoch
        })
    }

    /// The files to fetch now.
    pub fn to_fetch(&self) -> FetchList {
        let Some(manifest) = &self.newest else {
            return FetchList::default();
        };
        let mut to_fetch = FetchList::default();
        let active_of_lineage = self
            .active
            .as_ref()
            .filter(|active| active.lineage == manifest.lineage);
        if self.needs_snapshot(manifest) && self.check_size(&manifest.snapshot).is_ok() {
            to_fetch.snapshot = Some(manifest.snapshot);
        }
        if let Some(active) = active_of_lineage {
            let missing = manifest
                .deltas
                .iter()
                .filter(|delta| delta.to > active.applied);
            to_fetch.deltas.extend(missing);
            let is_contiguous = to_fetch
                .deltas
                .first()
                .is_none_or(|first| first.from <= active.applied);
            if !is_contiguous {
                // Ids between the client's position and the first listed delta are missing. Only a new snapshot
                // has them.
                to_fetch.deltas.clear();
            }
        }
        to_fetch
    }

    /// Restarts the client's clock at the current time of the wall clock, and makes the filter stale until the
    /// next statement. An operator calls this after correcting a wall clock that was far ahead. Without the call,
    /// dated manifests would seem too old, because the client's clock never decreases. Later proofs need no call:
    /// they state durations, which the client does not compare with its clock.
    pub fn trust_wall_clock_again(&mut self, now: Now) {
        self.clock = Clock::default();
        self.clock.observe(now);
        // The times in these fields were computed with the wrong clock.
        self.challenges.clear();
        self.pending.clear();
        self.deadline = None;
    }

    /// Records the time of both clocks. Every method that takes `&mut self` and `now` does so too. The caller
    /// calls this after it was idle.
    pub fn observe(&mut self, now: Now) {
        self.clock.observe(now);
    }

    /// Adds the statement that the date of a manifest makes, if [`ClientConfig::clock_error`] is set.
    fn add_statement_of_date(&mut self, now: Now, manifest: &Manifest) {
        let Some(error) = self.config.clock_error else {
            return;
        };
        let Some(age) = self.clock.age_at_most(now, manifest.covers_ms, error) else {
            return;
        };
        if let Some(left) = self.config.max_staleness.checked_sub(age) {
            self.add_statement(Statement {
                lineage: manifest.lineage,
                epoch_min: manifest.epoch_min,
                head: manifest.head,
                deadline: self.clock.deadline(self.clock.moment(now), left),
            });
        }
    }

    /// Moves the snapshot in use to a new lineage, if the manifest lists the same file. This happens after the
    /// publisher was restarted.
    ///
    /// The filter, the overlay and the deadline stay valid, because the client still has the same ids. The journal
    /// of the new lineage may lack ids of the overlay. The next snapshot has them: its scan began after the
    /// restart, so it contains all ids committed before the restart.
    fn adopt_lineage(&mut self, manifest: &Manifest) {
        let listed_snapshot = manifest.snapshot;
        if let Some(active) = &mut self.active
            && active.lineage != manifest.lineage
            && active.sha256 == listed_snapshot.sha256
            && active.epoch == listed_snapshot.epoch
        {
            active.lineage = manifest.lineage;
            active.journal_base = listed_snapshot.base;
            active.applied = listed_snapshot.base;
        }
    }

    fn check_serial(&self, serial: u64) -> Result<(), UpdateError> {
        let newest = self.highest.serial;
        if serial < newest {
            return Err(UpdateError::Replayed { serial, newest });
        }
        Ok(())
    }

    /// Refuses a statement with smaller numbers than an earlier one of the same lineage.
    fn check_numbers(&self, lineage: u64, epoch_min: u64, head: u64) -> Result<(), UpdateError> {
        if lineage != self.highest.lineage {
            return Ok(());
        }
        check_not_smaller("head", head, self.highest.head)?;
        check_not_smaller("epoch_min", epoch_min, self.highest.epoch_min)
    }

    fn record_highest(&mut self, serial: u64, lineage: u64, epoch_min: u64, head: u64) {
        self.highest = HighestNumbers {
            serial,
            lineage,
            head,
            epoch_min,
        };
    }

    /// Stores a statement until its ids are received.
    fn add_statement(&mut self, statement: Statement) {
        let has_same_numbers = |earlier: &&mut Statement| {
            earlier.lineage == statement.lineage
                && earlier.epoch_min == statement.epoch_min
                && earlier.head == statement.head
        };
        if let Some(earlier) = self.pending.iter_mut().find(has_same_numbers) {
            earlier.deadline = earlier.deadline.max(statement.deadline);
            return;
        }
        if self.pending.len() == PENDING_MAX {
            // The oldest statement will be applied first, and the newest has the latest deadline. Both stay.
            self.pending.remove(PENDING_MAX / 2);
        }
        self.pending.push_back(statement);
    }

    /// Applies the statements whose ids were all received.
    fn apply_statements(&mut self) {
        let Some(active) = &self.active else {
            return;
        };
        let deadline = &mut self.deadline;
        self.pending.retain(|statement| {
            let is_complete = statement.lineage == active.lineage
                && statement.epoch_min <= active.epoch
                && statement.head <= active.applied;
            if is_complete {
                *deadline = (*deadline).max(Some(statement.deadline));
            }
            !is_complete
        });
    }

    fn check_set(&self, set: &str) -> Result<(), UpdateError> {
        if set == self.config.set {
            Ok(())
        } else {
            Err(UpdateError::OtherSet {
                set: set.chars().take(80).collect(),
            })
        }
    }

    fn check_size(&self, snapshot: &Snapshot) -> Result<(), UpdateError> {
        let bytes_max = self.config.snapshot_bytes_max;
        if snapshot.bytes > bytes_max {
            return Err(UpdateError::SnapshotTooLarge {
                bytes: snapshot.bytes,
                bytes_max,
            });
        }
        Ok(())
    }
}

fn check_not_smaller(what: &'static str, found: u64, newest: u64) -> Result<(), UpdateError> {
    if found < newest {
        return Err(UpdateError::Decreased {
            what,
            found,
            newest,
        });
    }
    Ok(())
}

/// The largest number of challenges that wait for a proof. A client has fewer requests in flight.
const CHALLENGES_MAX: usize = 8;

/// The largest number of statements that wait for their ids.
const PENDING_MAX: usize = 16;

/// The number of listed deltas that the client stores: up to [`DELTAS_MAX`] of the newest manifest, and the same
/// number of older deltas that were merged since.
const LISTED_MAX: usize = 2 * DELTAS_MAX;
