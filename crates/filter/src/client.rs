//! The state of a filter client: decides how long the client may rely on its filter.
//!
//! **The guarantee**: an id that was committed more than `max_staleness` ago is never skipped. The guarantee
//! holds if updates are lost, duplicated or reordered, if wall clocks are stepped, if old manifests are
//! replayed, and if the publisher dies. In each of these cases the client stops skipping in time and sends
//! requests to the origin ("fails open"), because [`Client::answer`] returns [`Answer::Absent`] only before a
//! deadline.
//!
//! A deadline follows from a statement of the publisher: *all ids committed by time `c` are in a snapshot of
//! lineage `l` and epoch `e` or later, together with the journal up to number `h`*. A client that has this
//! snapshot or a newer one, and has applied the journal up to `h`, may skip until `c + max_staleness`. Other
//! clients keep the statement for later. Within a lineage these numbers only grow; a statement with a smaller
//! number is refused. It remains to determine `c` on the client's own clock:
//!
//! - A **proof** echoes 16 random bytes of the client's request, sent at `s`. The proof was made after `s`, so
//!   `c ≥ s - lag`, where `lag` is measured by the publisher. No two clocks are compared, a replayed proof has
//!   other bytes, and a dead publisher cannot answer.
//! - A **manifest** from a cache states `c` by the publisher's wall clock. It counts only if the operator
//!   states how far the two wall clocks may differ ([`ClientConfig::clock_error`]).
//!
//! Afterwards the elapsed time is the larger of what the client's monotonic and wall clocks show. Stepping the
//! wall clock back therefore gains nothing. If a machine slept and its monotonic clock stopped, the filter is
//! stale at wake-up. The assumptions: clocks run at the same rate (a minute per month is negligible). A wall
//! clock is not stepped back between a sleep and the first observation afterwards, unless the monotonic clock
//! runs during sleep, as `CLOCK_BOOTTIME` does.
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
    /// The statements that the client accepts.
    pub trust: Trust,
    /// Ids that were committed longer ago than this are never skipped.
    pub max_staleness: Duration,
    /// How far this machine's wall clock and the publisher's may differ, if the operator guarantees a bound.
    /// Without a bound only proofs make a filter fresh.
    pub clock_error: Option<Duration>,
    /// Manifests below this number are refused as replays. The value of [`Client::serial`] before a restart.
    pub serial_min: u64,
    /// Larger snapshots are refused before they are fetched.
    pub snapshot_bytes_max: u64,
    /// The largest number of added ids kept in addition to the snapshot; each takes at most about 34 bytes.
    /// Beyond it the client waits for the next snapshot, and fails open once its filter is stale.
    pub overlay_ids_max: usize,
}

impl ClientConfig {
    /// Returns a configuration for `set` with this bound and defaults otherwise.
    pub fn new(set: impl Into<String>, trust: Trust, max_staleness: Duration) -> Self {
        Self {
            set: set.into(),
            trust,
            max_staleness,
            clock_error: None,
            serial_min: 0,
            // A hundred million ids at a rate of 0.1 % take 180 MB.
            snapshot_bytes_max: 1 << 30,
            // A tenth of ten million ids. A publisher rebuilds at about this size.
            overlay_ids_max: 1 << 20,
        }
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The id does not exist, or was committed less than `max_staleness` ago: skip the request.
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
    /// The filter was not proved complete recently enough.
    Stale,
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
    newest_line: Vec<u8>,
    /// The deltas that recent manifests listed, with their lineage. A delta that was merged away during its
    /// download is then still accepted.
    listed: VecDeque<(u64, DeltaEntry)>,
    /// Requests in flight: their challenges and when they were sent.
    challenges: VecDeque<([u8; 16], Moment)>,
    /// Statements that cannot be applied yet, because some of their ids were not received.
    pending: VecDeque<Statement>,
    deadline: Option<Moment>,
    highest: Highest,
}

/// The highest numbers of all accepted statements.
#[derive(Clone, Copy, Debug, Default)]
struct Highest {
    serial: u64,
    /// The lineage of the numbers below.
    lineage: u64,
    head: u64,
    epoch_min: u64,
}

/// The snapshot in use and the ids added since.
#[derive(Clone, Debug)]
struct ActiveSnapshot<B> {
    lineage: u64,
    sha256: Digest,
    epoch: u64,
    base: u64,
    /// All ids up to this number of the journal were received.
    applied: u64,
    filter: Filter<B>,
    overlay: Overlay,
}

/// The statement "all ids committed `max_staleness` before the deadline are in a snapshot of `epoch_min` or
/// later, together with the journal up to `head`".
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
        let highest = Highest {
            serial: config.serial_min,
            ..Highest::default()
        };
        Self {
            config,
            highest,
            clock: Clock::default(),
            active: None,
            newest: None,
            newest_line: Vec::new(),
            listed: VecDeque::new(),
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

    /// Returns true while absent ids are skipped.
    #[inline]
    pub fn is_fresh(&self, now: Now) -> bool {
        self.deadline
            .is_some_and(|deadline| self.clock.moment(now) <= deadline)
    }

    /// The hash function for [`Self::answer`], once there is a filter.
    pub fn hasher(&self) -> Option<IdHasher> {
        self.active.as_ref().map(|active| active.filter.hasher())
    }

    /// The epoch of the snapshot in use, and the number of ids added since.
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

    /// How long absent ids may still be skipped without a further statement.
    pub fn fresh_for(&self, now: Now) -> Duration {
        let left = self.deadline.map(|deadline| self.clock.left(now, deadline));
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
        (!self.newest_line.is_empty()).then(|| self.newest_line.clone())
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
        self.consider_date(now, &manifest);
        for entry in &manifest.deltas {
            let listed = (manifest.lineage, *entry);
            if !self.listed.contains(&listed) {
                if self.listed.len() == LISTED_MAX {
                    self.listed.pop_front();
                }
                self.listed.push_back(listed);
            }
        }
        self.adopt_lineage(&manifest);
        self.newest = Some(manifest);
        self.newest_line = line.to_vec();
        self.apply_statements();
        Ok(())
    }

    /// Accepts a proof, the answer to a challenge.
    pub fn accept_proof(&mut self, now: Now, line: &[u8]) -> Result<(), UpdateError> {
        self.clock.observe(now);
        let proof = Proof::from_line(line, &self.config.trust)?;
        self.check_set(&proof.set)?;
        let echo = from_hex(&proof.echo).map_err(|_| UpdateError::NotAsked)?;
        let asked = self
            .challenges
            .iter()
            .position(|(random, _)| *random == echo);
        let (_, sent) = asked
            .and_then(|at| self.challenges.remove(at))
            .ok_or(UpdateError::NotAsked)?;
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

    /// Accepts a snapshot that was opened before with [`ReceivedSnapshot::open`], which needs no access to the client.
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
            base: listed_snapshot.base,
            applied: listed_snapshot.base,
            overlay: Overlay::new(lineage),
            filter,
        };
        match self.active.take() {
            Some(old) if old.lineage == lineage => {
                let same_hash = old.filter.hasher().seed == active.filter.hasher().seed;
                if old.epoch >= listed_snapshot.epoch
                    || old.base > listed_snapshot.base
                    || !same_hash
                {
                    self.active = Some(old);
                    return Err(UpdateError::Older);
                }
                // The added ids after the new base are complete up to the same number as before.
                active.applied = old.applied.max(listed_snapshot.base);
                active.overlay = old.overlay;
                active.overlay.forget_up_to(listed_snapshot.base);
            }
            // A deadline of another journal does not apply to this one.
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
        let listed = self.listed.iter().find(|(_, entry)| entry.sha256 == digest);
        let &(lineage, entry) = listed.ok_or(UpdateError::Unlisted)?;
        let delta = Delta::from_bytes(bytes)?;
        let active = match &mut self.active {
            Some(active) if active.lineage == lineage => active,
            _ => return Err(UpdateError::Early),
        };
        let stated = (delta.lineage, delta.from, delta.to, delta.hash_seed);
        if stated != (lineage, entry.from, entry.to, active.filter.hasher().seed) {
            return Err(UpdateError::Contradiction);
        }
        if entry.from > active.applied {
            return Err(UpdateError::Early);
        }
        if entry.to <= active.applied {
            // A duplicate, or already covered by another delta.
            return Ok(());
        }
        let room = self
            .config
            .overlay_ids_max
            .saturating_sub(active.overlay.len());
        if delta.ids().len() > room {
            return Err(UpdateError::OverlayFull {
                ids_max: self.config.overlay_ids_max,
            });
        }
        active.overlay.add(delta.ids(), entry.to);
        active.applied = entry.to;
        self.apply_statements();
        Ok(())
    }

    /// Returns the reason if the newest snapshot is newer than the one in use but larger than the operator
    /// allows.
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
        let same = self
            .active
            .as_ref()
            .filter(|active| active.lineage == manifest.lineage);
        if self.needs_snapshot(manifest) && self.check_size(&manifest.snapshot).is_ok() {
            to_fetch.snapshot = Some(manifest.snapshot);
        }
        if let Some(active) = same {
            let missing = manifest
                .deltas
                .iter()
                .filter(|delta| delta.to > active.applied);
            to_fetch.deltas.extend(missing);
            let begins = to_fetch
                .deltas
                .first()
                .is_none_or(|first| first.from <= active.applied);
            if !begins {
                // The oldest delta begins after the position of the client, so only a new snapshot helps.
                to_fetch.deltas.clear();
            }
        }
        to_fetch
    }

    /// Resets the client's reckoning of time to the wall clock. An operator calls this after a wall clock that
    /// was far ahead was corrected. Only manifests with a date depend on it.
    pub fn trust_wall_clock_again(&mut self, now: Now) {
        self.clock = Clock::default();
        self.clock.observe(now);
        // These were computed with the wrong clock.
        self.challenges.clear();
        self.pending.clear();
        self.deadline = None;
    }

    /// Reads the clocks. Every other change does so too. A driver calls this when it wakes up after an idle
    /// time.
    pub fn observe(&mut self, now: Now) {
        self.clock.observe(now);
    }

    /// Uses the date of a manifest, if the operator bounds the error of the clocks.
    fn consider_date(&mut self, now: Now, manifest: &Manifest) {
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

    /// Moves the snapshot in use to a new lineage, if the manifest lists the same file: the publisher was
    /// restarted.
    ///
    /// The filter, the added ids and the deadline stay valid. The next snapshot of the new lineage comes from a
    /// scan that began after the restart, so it contains all ids committed before.
    fn adopt_lineage(&mut self, manifest: &Manifest) {
        let listed_snapshot = manifest.snapshot;
        if let Some(active) = &mut self.active
            && active.lineage != manifest.lineage
            && active.sha256 == listed_snapshot.sha256
            && active.epoch == listed_snapshot.epoch
        {
            active.lineage = manifest.lineage;
            active.base = listed_snapshot.base;
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
        self.highest = Highest {
            serial,
            lineage,
            head,
            epoch_min,
        };
    }

    /// Stores a statement until its ids are received.
    fn add_statement(&mut self, statement: Statement) {
        let same = |earlier: &&mut Statement| {
            earlier.lineage == statement.lineage
                && earlier.epoch_min == statement.epoch_min
                && earlier.head == statement.head
        };
        if let Some(earlier) = self.pending.iter_mut().find(same) {
            earlier.deadline = earlier.deadline.max(statement.deadline);
            return;
        }
        if self.pending.len() == PENDING_MAX {
            // Keep both ends: the oldest statement will be satisfied first, and the newest has the latest
            // deadline.
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
            let fulfilled = statement.lineage == active.lineage
                && statement.epoch_min <= active.epoch
                && statement.head <= active.applied;
            if fulfilled {
                *deadline = (*deadline).max(Some(statement.deadline));
            }
            !fulfilled
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
        return Err(UpdateError::Falling {
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

/// The number of listed deltas that are remembered: those of the newest manifest and as many that were merged
/// away.
const LISTED_MAX: usize = 2 * DELTAS_MAX;
