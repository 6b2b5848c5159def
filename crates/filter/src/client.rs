//! When a client may still rely on its filter.
//!
//! **The guarantee**: an id that was committed more than `max_staleness` ago is never skipped. It
//! holds when updates are lost, doubled or out of order, when wall clocks are stepped, when old
//! manifests are replayed and when the publisher dies; in all of these the client stops skipping in
//! time and asks the origin ("fails open"), because [`Client::answer`] says [`Answer::Absent`] only
//! while a deadline lies ahead.
//!
//! A deadline comes from a statement of the publisher: *all ids committed by time `c` are in a snapshot
//! of lineage `l` and epoch `e` or later, together with the journal up to number `h`*. A client that
//! holds such a snapshot and has applied everything up to `h` may skip until `c + max_staleness`; to any
//! other client the statement says nothing yet. Within a lineage these numbers only grow, and a
//! statement with a smaller one is refused. What remains is to know `c` on the client's own clock:
//!
//! - A **proof** echoes 16 random bytes of the client's request, sent at `s`. It was made after `s`,
//!   so `c ≥ s - lag`, where `lag` is the publisher's own count. No clock is compared with another,
//!   a replay cannot have the bytes, and a publisher that is dead cannot answer.
//! - A **manifest** from a cache carries `c` by the publisher's wall clock. It counts only where the
//!   operator states how far the two wall clocks can be apart ([`ClientConfig::clock_error`]).
//!
//! From then on time passes by whichever of the client's monotonic and wall clock says more: stepping
//! the wall clock back wins nothing, and a machine that slept, its monotonic clock with it, wakes up
//! stale. What is assumed: clocks run at the same rate (a minute a month is nothing here), and a
//! wall clock is not stepped back between a sleep and the first look at it afterwards, unless the
//! monotonic clock goes on while the machine sleeps, as `CLOCK_BOOTTIME` does.
//!
//! The client fetches nothing. [`Client::wants`] says what to fetch; what came, from anywhere and in
//! any order, is handed in, and believed only if a believed manifest names its digest.

mod clock;
mod overlay;
mod received;
mod refused;

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
pub use received::Received;
pub use refused::Refused;

/// What a client is told by its operator.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The set of ids it follows.
    pub set: String,
    /// Whom it believes.
    pub trust: Trust,
    /// The age from which on no existing id may be skipped.
    pub max_staleness: Duration,
    /// How far this machine's wall clock and the publisher's can be apart, if somebody answers for
    /// that. Without it only proofs make a filter fresh.
    pub clock_error: Option<Duration>,
    /// Manifests below this number are replays: what [`Client::serial`] said before a restart.
    pub serial_min: u64,
    /// Snapshots above this size are refused before they are fetched.
    pub snapshot_bytes_max: u64,
    /// Added ids kept beside the snapshot; about 34 bytes each at the worst. Beyond, the client waits
    /// for the next snapshot and fails open meanwhile.
    pub overlay_ids_max: usize,
}

impl ClientConfig {
    /// Follows `set` with the given bound.
    pub fn new(set: impl Into<String>, trust: Trust, max_staleness: Duration) -> Self {
        Self {
            set: set.into(),
            trust,
            max_staleness,
            clock_error: None,
            serial_min: 0,
            // A hundred million ids at one in a thousand are 135 MB.
            snapshot_bytes_max: 1 << 30,
            // A tenth of ten million ids; a publisher rebuilds about then.
            overlay_ids_max: 1 << 20,
        }
    }
}

/// What to do about an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It does not exist, or not for as long as `max_staleness`: skip the request.
    Absent,
    /// It may exist: send the request.
    Maybe,
    /// Nothing can be said: send the request.
    Ask(Reason),
}

/// Why nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No snapshot has arrived yet.
    NoFilter,
    /// What is here was never shown to be complete, or too long ago.
    Stale,
}

/// What to fetch, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// A newer snapshot.
    pub snapshot: Option<Snapshot>,
    /// Deltas for the snapshot that is here.
    pub deltas: Vec<DeltaEntry>,
}

/// A client's state. `B` is what holds a snapshot's bytes: a vector, or a mapped file.
#[derive(Clone, Debug)]
pub struct Client<B> {
    config: ClientConfig,
    clock: Clock,
    holding: Option<Holding<B>>,
    newest: Option<Manifest>,
    /// As it came.
    newest_line: Vec<u8>,
    /// What believed manifests listed lately, so that a delta that was merged away while it was
    /// fetched is still welcome.
    listed: VecDeque<(u64, DeltaEntry)>,
    /// Requests under way: what they carry and when they were sent.
    challenges: VecDeque<([u8; 16], Moment)>,
    /// Statements whose ids are not all here yet.
    pending: VecDeque<Statement>,
    deadline: Option<Moment>,
    highest: Highest,
}

/// The highest numbers that believed statements had.
#[derive(Clone, Copy, Debug, Default)]
struct Highest {
    serial: u64,
    /// The numbers below belong to this lineage.
    lineage: u64,
    head: u64,
    epoch_min: u64,
}

/// A snapshot and what was added to it.
#[derive(Clone, Debug)]
struct Holding<B> {
    lineage: u64,
    sha256: Digest,
    epoch: u64,
    base: u64,
    /// All ids up to this number of the journal are here.
    applied: u64,
    filter: Filter<B>,
    overlay: Overlay,
}

/// "All ids committed `max_staleness` before the deadline are in a snapshot of `epoch_min` or later,
/// together with the journal up to `head`."
#[derive(Clone, Copy, Debug)]
struct Statement {
    lineage: u64,
    epoch_min: u64,
    head: u64,
    deadline: Moment,
}

impl<B: AsRef<[u8]>> Client<B> {
    /// A client that has nothing yet and asks about everything.
    pub fn new(config: ClientConfig) -> Self {
        let highest = Highest {
            serial: config.serial_min,
            ..Highest::default()
        };
        Self {
            config,
            highest,
            clock: Clock::default(),
            holding: None,
            newest: None,
            newest_line: Vec::new(),
            listed: VecDeque::new(),
            challenges: VecDeque::new(),
            pending: VecDeque::new(),
            deadline: None,
        }
    }

    /// What to do about an id.
    #[inline]
    pub fn answer(&self, now: Now, id: IdHash) -> Answer {
        let Some(holding) = &self.holding else {
            return Answer::Ask(Reason::NoFilter);
        };
        if !self.is_fresh(now) {
            return Answer::Ask(Reason::Stale);
        }
        if holding.filter.contains(id) || holding.overlay.contains(id) {
            Answer::Maybe
        } else {
            Answer::Absent
        }
    }

    /// Whether absent ids are skipped now.
    #[inline]
    pub fn is_fresh(&self, now: Now) -> bool {
        self.deadline
            .is_some_and(|deadline| self.clock.moment(now) <= deadline)
    }

    /// How ids are hashed for [`Self::answer`], once there is a filter.
    pub fn hasher(&self) -> Option<IdHasher> {
        self.holding.as_ref().map(|holding| holding.filter.hasher())
    }

    /// The epoch of the snapshot in use, and the number of ids beside it.
    pub fn holds(&self) -> Option<(u64, usize)> {
        let holding = self.holding.as_ref()?;
        Some((holding.epoch, holding.overlay.len()))
    }

    /// How far the journal is known here: its lineage, the snapshot's epoch and the number up to which
    /// all added ids are here.
    pub fn position(&self) -> Option<(u64, u64, u64)> {
        let holding = self.holding.as_ref()?;
        Some((holding.lineage, holding.epoch, holding.applied))
    }

    /// For how long absent ids may still be skipped if nothing more is learnt.
    pub fn fresh_for(&self, now: Now) -> Duration {
        let left = self.deadline.map(|deadline| self.clock.left(now, deadline));
        left.unwrap_or_default()
    }

    /// The filter in use.
    pub fn facts(&self) -> Option<crate::filter::Facts> {
        self.holding.as_ref().map(|holding| holding.filter.facts())
    }

    /// The newest manifest's number: to be kept over a restart as [`ClientConfig::serial_min`].
    pub fn serial(&self) -> u64 {
        self.newest
            .as_ref()
            .map_or(self.config.serial_min, |manifest| manifest.serial)
    }

    /// The newest manifest as it came, to be kept with the snapshot it names.
    pub fn manifest_line(&self) -> Option<Vec<u8>> {
        (!self.newest_line.is_empty()).then(|| self.newest_line.clone())
    }

    /// Begins a request to the publisher, to be sent now at the earliest; `random` must be
    /// unpredictable. Returns what the request carries.
    pub fn challenge(&mut self, now: Now, random: [u8; 16]) -> String {
        let sent = self.clock.observe(now);
        if self.challenges.len() == CHALLENGES_MAX {
            self.challenges.pop_front();
        }
        self.challenges.push_back((random, sent));
        to_hex(&random)
    }

    /// Takes a manifest, from whomever.
    pub fn manifest(&mut self, now: Now, line: &[u8]) -> Result<(), Refused> {
        self.clock.observe(now);
        let manifest = Manifest::from_line(line, &self.config.trust)?;
        self.check_set(&manifest.set)?;
        self.check_serial(manifest.serial)?;
        match &self.newest {
            Some(known) if known.serial == manifest.serial && *known != manifest => {
                return Err(Refused::Contradiction);
            }
            _ => {}
        }
        let (lineage, epoch_min, head) = (manifest.lineage, manifest.epoch_min, manifest.head);
        self.check_rising(lineage, epoch_min, head)?;
        if let Some(known) = self
            .newest
            .as_ref()
            .filter(|known| known.lineage == lineage)
        {
            rising("epoch", manifest.snapshot.epoch, known.snapshot.epoch)?;
            rising("base", manifest.snapshot.base, known.snapshot.base)?;
        }
        self.raise(manifest.serial, lineage, epoch_min, head);
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
        self.adopt(&manifest);
        self.newest = Some(manifest);
        self.newest_line = line.to_vec();
        self.settle();
        Ok(())
    }

    /// Takes a proof: the answer to a challenge.
    pub fn proof(&mut self, now: Now, line: &[u8]) -> Result<(), Refused> {
        self.clock.observe(now);
        let proof = Proof::from_line(line, &self.config.trust)?;
        self.check_set(&proof.set)?;
        let echo = from_hex(&proof.echo).map_err(|_| Refused::NotAsked)?;
        let asked = self
            .challenges
            .iter()
            .position(|(random, _)| *random == echo);
        let (_, sent) = asked
            .and_then(|at| self.challenges.remove(at))
            .ok_or(Refused::NotAsked)?;
        self.check_serial(proof.serial)?;
        self.check_rising(proof.lineage, proof.epoch_min, proof.head)?;
        self.raise(proof.serial, proof.lineage, proof.epoch_min, proof.head);
        let lag = Duration::from_millis(proof.lag_ms);
        if let Some(left) = self.config.max_staleness.checked_sub(lag) {
            self.state(Statement {
                lineage: proof.lineage,
                epoch_min: proof.epoch_min,
                head: proof.head,
                deadline: self.clock.deadline(sent, left),
            });
        }
        self.settle();
        Ok(())
    }

    /// Takes a snapshot that a manifest named.
    pub fn snapshot(&mut self, now: Now, bytes: B) -> Result<(), Refused> {
        self.received(now, Received::open(bytes))
    }

    /// Takes a snapshot that was [read](Received::open) before, without this client.
    pub fn received(&mut self, now: Now, received: Received<B>) -> Result<(), Refused> {
        self.clock.observe(now);
        let manifest = self.newest.as_ref().ok_or(Refused::Unlisted)?;
        let named = manifest.snapshot;
        let lineage = manifest.lineage;
        self.check_size(&named)?;
        if received.digest != named.sha256 {
            return Err(Refused::Unlisted);
        }
        let filter = received.filter?;
        if filter.facts().epoch != named.epoch {
            return Err(Refused::Contradiction);
        }
        let mut holding = Holding {
            lineage,
            sha256: received.digest,
            epoch: named.epoch,
            base: named.base,
            applied: named.base,
            overlay: Overlay::new(lineage),
            filter,
        };
        match self.holding.take() {
            Some(old) if old.lineage == lineage => {
                let same_hash = old.filter.hasher().seed == holding.filter.hasher().seed;
                if old.epoch >= named.epoch || old.base > named.base || !same_hash {
                    self.holding = Some(old);
                    return Err(Refused::Older);
                }
                // What was added after the new base is complete up to where the old one was.
                holding.applied = old.applied.max(named.base);
                holding.overlay = old.overlay;
                holding.overlay.forget_up_to(named.base);
            }
            // What was shown of another journal says nothing about this one.
            _ => self.deadline = None,
        }
        self.holding = Some(holding);
        self.settle();
        Ok(())
    }

    /// Takes a delta that a manifest named.
    pub fn delta(&mut self, now: Now, bytes: &[u8]) -> Result<(), Refused> {
        self.clock.observe(now);
        let digest = Digest::of(bytes);
        let listed = self.listed.iter().find(|(_, entry)| entry.sha256 == digest);
        let &(lineage, entry) = listed.ok_or(Refused::Unlisted)?;
        let delta = Delta::from_bytes(bytes)?;
        let holding = match &mut self.holding {
            Some(holding) if holding.lineage == lineage => holding,
            _ => return Err(Refused::Early),
        };
        let told = (delta.lineage, delta.from, delta.to, delta.hash_seed);
        if told != (lineage, entry.from, entry.to, holding.filter.hasher().seed) {
            return Err(Refused::Contradiction);
        }
        if entry.from > holding.applied {
            return Err(Refused::Early);
        }
        if entry.to <= holding.applied {
            // Doubled, or covered by another: harmless and nothing to do.
            return Ok(());
        }
        let room = self
            .config
            .overlay_ids_max
            .saturating_sub(holding.overlay.len());
        if delta.ids().len() > room {
            return Err(Refused::OverlayFull {
                ids_max: self.config.overlay_ids_max,
            });
        }
        holding.overlay.add(delta.ids(), entry.to);
        holding.applied = entry.to;
        self.settle();
        Ok(())
    }

    /// Why the newest snapshot, which is wanted, is not fetched: it is larger than the operator allows.
    pub fn snapshot_refused(&self) -> Option<Refused> {
        let manifest = self.newest.as_ref()?;
        let wanted = self.is_wanted(manifest);
        wanted.then(|| self.check_size(&manifest.snapshot).err())?
    }

    fn is_wanted(&self, manifest: &Manifest) -> bool {
        self.holding.as_ref().is_none_or(|holding| {
            holding.lineage != manifest.lineage || holding.epoch < manifest.snapshot.epoch
        })
    }

    /// What to fetch now.
    pub fn wants(&self) -> Wants {
        let Some(manifest) = &self.newest else {
            return Wants::default();
        };
        let mut wants = Wants::default();
        let same = self
            .holding
            .as_ref()
            .filter(|holding| holding.lineage == manifest.lineage);
        if self.is_wanted(manifest) && self.check_size(&manifest.snapshot).is_ok() {
            wants.snapshot = Some(manifest.snapshot);
        }
        if let Some(holding) = same {
            let missing = manifest
                .deltas
                .iter()
                .filter(|delta| delta.to > holding.applied);
            wants.deltas.extend(missing);
            let begins = wants
                .deltas
                .first()
                .is_none_or(|first| first.from <= holding.applied);
            if !begins {
                // The journal no longer reaches back to what is here: only a snapshot helps.
                wants.deltas.clear();
            }
        }
        wants
    }

    /// The wall clock is right now, whatever it showed before: to be called by an operator, after a
    /// clock was far ahead and was put back. Only dated manifests depend on it.
    pub fn trust_wall_clock_again(&mut self, now: Now) {
        self.clock = Clock::default();
        self.clock.observe(now);
        // Reckoned by the clock that was wrong.
        self.challenges.clear();
        self.pending.clear();
        self.deadline = None;
    }

    /// Looks at the clocks. Every other change does so too; a driver that was idle calls it when it
    /// wakes up.
    pub fn observe(&mut self, now: Now) {
        self.clock.observe(now);
    }

    /// A dated manifest counts where clocks are vouched for.
    fn consider_date(&mut self, now: Now, manifest: &Manifest) {
        let Some(error) = self.config.clock_error else {
            return;
        };
        let Some(age) = self.clock.age_at_most(now, manifest.covers_ms, error) else {
            return;
        };
        if let Some(left) = self.config.max_staleness.checked_sub(age) {
            self.state(Statement {
                lineage: manifest.lineage,
                epoch_min: manifest.epoch_min,
                head: manifest.head,
                deadline: self.clock.deadline(self.clock.moment(now), left),
            });
        }
    }

    /// Takes the snapshot in use for that of a new lineage, if the manifest names the same file: the
    /// publisher was restarted.
    ///
    /// The filter, the ids beside it and the deadline stay: what they were complete for, they still are.
    /// The next snapshot of the new lineage comes from a scan that began after the restart, so it has all
    /// ids committed before.
    fn adopt(&mut self, manifest: &Manifest) {
        let named = manifest.snapshot;
        if let Some(holding) = &mut self.holding
            && holding.lineage != manifest.lineage
            && holding.sha256 == named.sha256
            && holding.epoch == named.epoch
        {
            holding.lineage = manifest.lineage;
            holding.base = named.base;
            holding.applied = named.base;
        }
    }

    fn check_serial(&self, serial: u64) -> Result<(), Refused> {
        let newest = self.highest.serial;
        if serial < newest {
            return Err(Refused::Replayed { serial, newest });
        }
        Ok(())
    }

    /// Refuses a statement with smaller numbers than an earlier one of the same lineage.
    fn check_rising(&self, lineage: u64, epoch_min: u64, head: u64) -> Result<(), Refused> {
        if lineage != self.highest.lineage {
            return Ok(());
        }
        rising("head", head, self.highest.head)?;
        rising("epoch_min", epoch_min, self.highest.epoch_min)
    }

    fn raise(&mut self, serial: u64, lineage: u64, epoch_min: u64, head: u64) {
        self.highest = Highest {
            serial,
            lineage,
            head,
            epoch_min,
        };
    }

    /// Remembers a statement until its ids are here.
    fn state(&mut self, statement: Statement) {
        let same = |known: &&mut Statement| {
            known.lineage == statement.lineage
                && known.epoch_min == statement.epoch_min
                && known.head == statement.head
        };
        if let Some(known) = self.pending.iter_mut().find(same) {
            known.deadline = known.deadline.max(statement.deadline);
            return;
        }
        if self.pending.len() == PENDING_MAX {
            // The oldest is nearest to being fulfilled, and the newest is the best to have.
            self.pending.remove(PENDING_MAX / 2);
        }
        self.pending.push_back(statement);
    }

    /// Lets the statements count whose ids are all here.
    fn settle(&mut self) {
        let Some(holding) = &self.holding else {
            return;
        };
        let deadline = &mut self.deadline;
        self.pending.retain(|statement| {
            let fulfilled = statement.lineage == holding.lineage
                && statement.epoch_min <= holding.epoch
                && statement.head <= holding.applied;
            if fulfilled {
                *deadline = (*deadline).max(Some(statement.deadline));
            }
            !fulfilled
        });
    }

    fn check_set(&self, set: &str) -> Result<(), Refused> {
        if set == self.config.set {
            Ok(())
        } else {
            Err(Refused::OtherSet {
                set: set.chars().take(80).collect(),
            })
        }
    }

    fn check_size(&self, snapshot: &Snapshot) -> Result<(), Refused> {
        let bytes_max = self.config.snapshot_bytes_max;
        if snapshot.bytes > bytes_max {
            return Err(Refused::SnapshotTooLarge {
                bytes: snapshot.bytes,
                bytes_max,
            });
        }
        Ok(())
    }
}

fn rising(what: &'static str, found: u64, newest: u64) -> Result<(), Refused> {
    if found < newest {
        return Err(Refused::Falling {
            what,
            found,
            newest,
        });
    }
    Ok(())
}

/// Requests whose answers are still waited for: more than a client has under way.
const CHALLENGES_MAX: usize = 8;

/// Statements that wait for their ids.
const PENDING_MAX: usize = 16;

/// Deltas remembered as named: those of the newest manifest and as many that were merged away.
const LISTED_MAX: usize = 2 * DELTAS_MAX;
