//! The RAM tier: values under keys, one byte budget, hits under shared access.
//!
//! Two structures side by side. The index maps a key to its value and is all that a hit reads: a
//! shared lock on one of its shards, an `Arc` clone, at most one relaxed store into the object's mark.
//! The tier (`edgeward_policy::AnyTier`) holds the budget and decides; it sits behind one lock that
//! only misses take, for bookkeeping alone: no value is built or freed under it.
//!
//! A miss asks for room first and brings the value later:
//!
//! ```
//! # use edgeward_store::hot::{HotCache, HotConfig, Offer};
//! # use edgeward_types::{ByteSize, KeyHash, charge_bytes};
//! # use std::sync::Arc;
//! let cache = HotCache::<String>::new(HotConfig::new(ByteSize::mib(1)));
//! let (key, value) = (KeyHash(7), "a body".to_owned());
//! let charge = charge_bytes(value.len() as u64, HotCache::<String>::OBJECT_OVERHEAD_BYTES);
//! let seen = cache.version(key);
//! if let Offer::Admit(reservation) = cache.offer(key, charge) {
//!     // The body arrives; should it end early, dropping the reservation gives the room back.
//!     reservation.commit(Arc::new(value), seen);
//! }
//! assert_eq!(cache.lookup(key).as_deref(), Some(&"a body".to_owned()));
//! ```
//!
//! A change carries the [`Version`] of the key that it was decided on; [`versions`](crate::versions) states the rule.
//!
//! Lock order: tier, then one index shard or one stripe of versions. Nothing is taken while one of these is held.

mod freed;
mod index;
mod ledger;
mod recorder;
mod tuning;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use edgeward_policy::{AnyTier, AnyTouch, Evicted, Object, PolicySpec, Refusal, Slot, Verdict};
use edgeward_types::{ByteSize, KeyHash, Seed, allocated_bytes};

use crate::sync::Mutex;
use crate::versions::{Changing, Version, Versions};
pub use freed::FreedPages;
use freed::freed_max_bytes;
use index::Index;
use ledger::{Ledger, pinned_free_bytes};
use tuning::Tuning;

pub use ledger::Hold;
pub use recorder::Recorder;
pub use tuning::{TunerPlace, TuningStatus};

/// The RAM tier's settings, checked.
#[derive(Clone, Debug)]
pub struct HotConfig {
    /// Bytes the residents may be charged with: values, heads and the index's share for each.
    pub capacity: ByteSize,

    /// What enters and what leaves.
    pub policy: PolicySpec,

    /// Where the policy's draws come from. The same seed and requests give the same decisions.
    pub seed: Seed,

    /// Requests between two tunings of AdaptSize, the paper's Δ. None: its 250 000.
    pub window_requests: Option<u32>,

    /// Where the tuner runs.
    pub tuner_place: TunerPlace,

    /// The bytes that readers may pin: of values that left the cache and are still referenced. Above it nothing is admitted. None:
    /// an eighth of the capacity, at least 4 MiB.
    pub pinned_bytes_max: Option<ByteSize>,

    /// The bytes of freed pages that the allocator may keep. None: 1/32 of the capacity, at least 2 MiB.
    pub freed_bytes_max: Option<ByteSize>,

    /// Gives freed pages back to the system if they are more than so many bytes, and returns whether they were. None: the allocator
    /// decides alone.
    pub give_back: Option<fn(u64) -> bool>,
}

impl HotConfig {
    /// The default policy over `capacity`. A policy that tunes itself does so on a thread beside the request path.
    pub fn new(capacity: ByteSize) -> Self {
        Self {
            capacity,
            policy: PolicySpec::default(),
            seed: Seed(0),
            window_requests: None,
            tuner_place: TunerPlace::Thread,
            pinned_bytes_max: None,
            freed_bytes_max: None,
            give_back: None,
        }
    }

    /// The bound of freed pages, its default filled in.
    pub fn freed_bytes_max(&self) -> u64 {
        let most = self.freed_bytes_max.map(ByteSize::bytes);
        most.unwrap_or_else(|| freed_max_bytes(self.capacity.bytes()))
    }

    /// The bound of pinned bytes, its default filled in.
    pub fn pinned_bytes_max(&self) -> u64 {
        let most = self.pinned_bytes_max.map(ByteSize::bytes);
        most.unwrap_or_else(|| ledger::pinned_max_bytes(self.capacity.bytes()))
            .min(self.capacity.bytes())
    }
}

/// Values of one kind under keys, within a byte budget. Share it in an `Arc`.
#[derive(Debug)]
pub struct HotCache<V: Send + Sync + 'static> {
    shared: Arc<Shared<V>>,
    tuning: Option<Tuning>,
}

impl<V: Send + Sync + 'static> HotCache<V> {
    /// What an object costs beside its value's own allocations. Add it to every charge.
    ///
    /// The tier's place (32), queue entry (16) and mark (8), the index entry, and the allocation of the `Arc` (16) with the value.
    pub const OBJECT_OVERHEAD_BYTES: u64 =
        32 + 16 + 8 + index::ENTRY_BYTES + allocated_bytes(16 + size_of::<V>() as u64);

    /// An empty cache, its tuner running if its policy has one.
    pub fn new(config: HotConfig) -> Arc<Self> {
        let capacity_bytes = config.capacity.bytes();
        let tier = config.policy.tier(capacity_bytes, config.seed);
        let shared = Arc::new(Shared {
            index: Index::default(),
            versions: Versions::default(),
            touch: tier.touch(),
            // Not the configured one: the policy `infinite` has another.
            capacity_bytes: AtomicU64::new(tier.capacity_bytes()),
            tier: Mutex::new(tier),
            counters: Counters::default(),
            ledger: Arc::default(),
            pinned_bytes_max: config.pinned_bytes_max(),
            freed: config
                .give_back
                .map(|give_back| Arc::new(FreedPages::new(give_back, config.freed_bytes_max()))),
        });
        let tuning = config
            .policy
            .tuner(capacity_bytes, config.window_requests)
            .map(|tuner| Tuning::start(tuner, config.tuner_place, Arc::clone(&shared)));
        Arc::new(Self { shared, tuning })
    }

    /// The value under `key`. A hit in the eyes of eviction; takes no exclusive lock.
    #[inline]
    pub fn lookup(&self, key: KeyHash) -> Option<Arc<V>> {
        let (slot, value) = self.shared.index.find(key)?;
        self.shared.touch.hit(slot);
        Some(value)
    }

    /// The value under `key`, without a trace of having looked.
    pub fn peek(&self, key: KeyHash) -> Option<Arc<V>> {
        self.shared.index.find(key).map(|(_, value)| value)
    }

    /// Where one worker reports its requests, for the tuner. Costs nothing if nothing is tuned.
    pub fn recorder(&self) -> Recorder {
        self.tuning
            .as_ref()
            .map_or_else(Recorder::off, Tuning::recorder)
    }

    /// Asks for room for a value of `charge_bytes`, which is to follow.
    ///
    /// Decided and made at once, so that the decisions come in the order of the misses. A key may be
    /// offered while an older value is resident: the old one serves until the new one is committed.
    pub fn offer(&self, key: KeyHash, charge_bytes: u64) -> Offer<V> {
        self.offer_with(key, charge_bytes, |_, _, _| ())
    }

    /// The same, and `left` gets what had to make room, with the version at which it left, outside of every lock.
    pub fn offer_with(
        &self,
        key: KeyHash,
        charge_bytes: u64,
        mut left: impl FnMut(&Evicted, Version, Arc<V>),
    ) -> Offer<V> {
        let object = Object {
            key,
            size_bytes: charge_bytes,
        };
        let shared = &self.shared;
        if let Some(freed) = &shared.freed {
            freed.count(charge_bytes);
        }
        let mut evicted = Vec::new();
        let mut removed = Vec::new();
        let mut rounds_left = PINNED_ROUNDS_MAX;
        let verdict = loop {
            let mut tier = shared.tier.lock();
            let room = shared.make_room_for_pinned(&mut tier, &mut evicted);
            let verdict = match room {
                PinnedRoom::Fits => Some(tier.offer(&object, &mut evicted)),
                PinnedRoom::Shrunk | PinnedRoom::Exceeded => None,
            };
            shared.unlink(&evicted, &mut removed);
            // Under the lock, so that what is held is never less than what has a place.
            let verdict = verdict.map(|verdict| match verdict {
                Verdict::Admit(slot) => Ok((slot, shared.ledger.hold(charge_bytes))),
                Verdict::Refuse(refusal) => Err(refusal),
            });
            drop(tier);
            // Bodies are freed here, with no lock held. They come in the order in which they were evicted; of one that
            // was still on its way there is no value.
            let mut gone = evicted.drain(..);
            for (slot, seen, value) in removed.drain(..) {
                if let Some(gone) = gone.find(|gone| gone.slot == slot) {
                    left(&gone, seen, value);
                }
            }
            drop(gone);
            // What was evicted may be read as well: only now that the rest is freed, the pinned bytes are known.
            if room != PinnedRoom::Shrunk || rounds_left == 0 {
                break verdict;
            }
            rounds_left -= 1;
        };
        let counters = &self.shared.counters;
        match verdict {
            Some(Ok((slot, hold))) => {
                counters.admitted.fetch_add(1, Relaxed);
                Offer::Admit(Reservation {
                    shared: Arc::clone(&self.shared),
                    key,
                    slot,
                    charge_bytes,
                    hold: Some(hold),
                    committed: false,
                })
            }
            Some(Err(refusal)) => {
                counters.refused(refusal).fetch_add(1, Relaxed);
                Offer::Refuse(refusal)
            }
            None => {
                counters.refused_pinned.fetch_add(1, Relaxed);
                Offer::Pinned
            }
        }
    }

    /// Returns the version of a key. A caller reads it before it decides about a change.
    pub fn version(&self, key: KeyHash) -> Version {
        self.shared.versions.of(key)
    }

    /// Returns the version of a key, or `None` while the disk has yet to follow a change of the key.
    pub fn settled_version(&self, key: KeyHash) -> Option<Version> {
        self.shared.versions.settled(key)
    }

    /// Returns true if the key has not changed since `seen`.
    pub fn is_current(&self, seen: Version) -> bool {
        self.shared.versions.is_current(seen)
    }

    /// Returns a recent version with the content of `seen`, or `None` if the key has changed. Changes of other keys make an old version
    /// outdated earlier.
    pub fn renewed(&self, seen: Version) -> Option<Version> {
        self.shared.versions.renewed(seen)
    }

    /// Marks a key as changing. The caller holds the value from before the change until the disk has followed.
    pub fn changing(&self, key: KeyHash) -> Changing<'_> {
        self.shared.versions.changing(key)
    }

    /// Replaces `before` by `value`, which has the same body, at the same charge, or removes another value of the key. Returns true if
    /// `value` is stored. Returns `None`, and changes nothing, if the key has changed since `seen`.
    pub fn refresh(&self, seen: Version, before: &Arc<V>, value: Arc<V>) -> Option<bool> {
        let mut tier = self.shared.tier.lock();
        self.shared.versions.advance(seen)?;
        let swapped = self.shared.index.swap(seen.key(), before, value);
        let removed = (!swapped).then(|| self.shared.take_out(&mut tier, seen.key()));
        drop(tier);
        drop(removed);
        Some(swapped)
    }

    /// Puts `value` in the place of `before`, at the same charge. False if something else lies there by now.
    ///
    /// For a value whose body has moved.
    pub fn swap(&self, key: KeyHash, before: &Arc<V>, value: Arc<V>) -> bool {
        self.shared.index.swap(key, before, value)
    }

    /// Removes the value of the key and returns the new version. Returns `None`, and changes nothing, if the key has changed since `seen`.
    pub fn remove(&self, seen: Version) -> Option<Version> {
        let mut tier = self.shared.tier.lock();
        let made = self.shared.versions.advance(seen)?;
        let removed = self.shared.take_out(&mut tier, seen.key());
        drop(tier);
        drop(removed);
        Some(made)
    }

    /// Makes all earlier versions of the key outdated, and removes its value if `is_ours` returns true for it. Returns true if a
    /// value was removed.
    pub fn purge(&self, key: KeyHash, is_ours: impl FnOnce(&V) -> bool) -> bool {
        let mut tier = self.shared.tier.lock();
        self.shared.versions.change(key);
        let found = self.shared.index.find(key);
        let removed = found
            .filter(|(_, value)| is_ours(value))
            .and_then(|_| self.shared.take_out(&mut tier, key));
        drop(tier);
        removed.is_some()
    }

    /// Memory beside any place that counts against the budget, for as long as the returned value lives.
    pub fn hold(&self, bytes: u64) -> Hold {
        self.shared.ledger.hold(bytes)
    }

    /// Where memory that is freed beside the cache is counted, if freed pages are bounded.
    pub fn freed_pages(&self) -> Option<Arc<FreedPages>> {
        self.shared.freed.clone()
    }

    /// Bytes that have left the cache and are still referenced, and the bound above which nothing is admitted.
    ///
    /// Takes the tier's lock.
    pub fn pinned_bytes(&self) -> (u64, u64) {
        let used_bytes = self.shared.tier.lock().used_bytes();
        let pinned = self.shared.ledger.pinned_bytes(used_bytes);
        (pinned, self.shared.pinned_bytes_max)
    }

    /// Changes the budget; a smaller one evicts at once.
    pub fn resize(&self, capacity: ByteSize) {
        let mut evicted = Vec::new();
        let mut removed = Vec::new();
        let mut tier = self.shared.tier.lock();
        self.shared.capacity_bytes.store(capacity.bytes(), Relaxed);
        tier.resize(capacity.bytes(), &mut evicted);
        self.shared.unlink(&evicted, &mut removed);
        drop(tier);
        drop(removed);
    }

    /// What the cache holds and has done.
    pub fn stats(&self) -> HotStats {
        let counters = &self.shared.counters;
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let tier = self.shared.tier.lock();
        HotStats {
            capacity_bytes: load(&self.shared.capacity_bytes),
            used_bytes: tier.used_bytes(),
            pinned_bytes: self.shared.ledger.pinned_bytes(tier.used_bytes()),
            pinned_bytes_max: self.shared.pinned_bytes_max,
            objects: tier.residents() as u64,
            bookkeeping_bytes: tier.bookkeeping_bytes() as u64,
            admitted: load(&counters.admitted),
            refused_by_admission: load(&counters.refused_by_admission),
            refused_too_large: load(&counters.refused_too_large),
            refused_object_limit: load(&counters.refused_object_limit),
            refused_pinned: load(&counters.refused_pinned),
            evicted: load(&counters.evicted),
            evicted_bytes: load(&counters.evicted_bytes),
            abandoned: load(&counters.abandoned),
            given_back: self
                .shared
                .freed
                .as_ref()
                .map_or(0, |freed| freed.given_back()),
            digest: tier.digest(),
            tuning: self.tuning.as_ref().map(Tuning::status),
        }
    }
}

/// The answer to [`HotCache::offer`].
#[derive(Debug)]
pub enum Offer<V: Send + Sync + 'static> {
    /// There is room; bring the value.
    Admit(Reservation<V>),
    /// Not kept.
    Refuse(Refusal),
    /// Not kept: readers pin too many bytes of values that have left.
    Pinned,
}

/// Room made for a value that is on its way. Dropped without a commit, it gives the room back.
#[derive(Debug)]
pub struct Reservation<V: Send + Sync + 'static> {
    shared: Arc<Shared<V>>,
    key: KeyHash,
    slot: Slot,
    charge_bytes: u64,
    hold: Option<Hold>,
    committed: bool,
}

impl<V: Send + Sync + 'static> Reservation<V> {
    /// Bytes the place is charged with.
    pub fn charge_bytes(&self) -> u64 {
        self.charge_bytes
    }

    /// The hold for the value's memory, to be dropped with that memory: from then on the memory counts against the budget also
    /// after the value has left the cache. `None` the second time.
    pub fn take_hold(&mut self) -> Option<Hold> {
        self.hold.take()
    }

    /// Makes `value` the key's value, and a new version.
    pub fn commit(self, value: Arc<V>, seen: Version) -> Commit {
        self.place(value, |shared, _| shared.versions.advance(seen))
    }

    /// As [`commit`](Self::commit), for the value that the disk has at the version `seen`. Makes no new version and replaces no value.
    pub fn promote(self, value: Arc<V>, seen: Version) -> Commit {
        self.place(value, |shared, is_present| {
            (!is_present && shared.versions.is_current(seen)).then_some(seen)
        })
    }

    fn place(
        mut self,
        value: Arc<V>,
        version: impl FnOnce(&Shared<V>, bool) -> Option<Version>,
    ) -> Commit {
        self.committed = true;
        let shared = Arc::clone(&self.shared);
        let mut tier = shared.tier.lock();
        if !tier.holds(self.slot) {
            return Commit::Lost;
        }
        let Some(version) = version(&shared, shared.index.contains(self.key)) else {
            tier.remove(self.slot);
            return Commit::Outdated;
        };
        let before = shared.index.insert(self.key, self.slot, value);
        if let Some((slot, _)) = &before {
            tier.remove(*slot);
        }
        drop(tier);
        drop(before);
        Commit::Done(version)
    }
}

/// What became of a value that was to be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Lookups find it, at this version.
    Done(Version),
    /// Its place was lost to others while it was filled.
    Lost,
    /// The key had changed.
    Outdated,
}

impl<V: Send + Sync + 'static> Drop for Reservation<V> {
    fn drop(&mut self) {
        if !self.committed {
            self.shared.counters.abandoned.fetch_add(1, Relaxed);
            self.shared.tier.lock().remove(self.slot);
        }
    }
}

/// What [`HotCache::stats`] tells.
#[derive(Clone, Debug)]
pub struct HotStats {
    /// The budget.
    pub capacity_bytes: u64,
    /// Bytes charged to residents and to fills on their way. Never above the capacity.
    pub used_bytes: u64,
    /// Bytes of values that have left the cache and are still referenced. They count against the budget.
    pub pinned_bytes: u64,
    /// The bound of `pinned_bytes` above which nothing is admitted.
    pub pinned_bytes_max: u64,
    /// Residents, fills on their way included.
    pub objects: u64,
    /// Bytes of the tier's own bookkeeping; part of what residents are charged.
    pub bookkeeping_bytes: u64,
    /// Offers that were let in.
    pub admitted: u64,
    /// Offers that the rule of admission refused.
    pub refused_by_admission: u64,
    /// Offers larger than the whole budget.
    pub refused_too_large: u64,
    /// Offers beyond the number of objects a tier can hold.
    pub refused_object_limit: u64,
    /// Offers while readers pinned more than their bound.
    pub refused_pinned: u64,
    /// Residents that had to leave.
    pub evicted: u64,
    /// Bytes that came free with them.
    pub evicted_bytes: u64,
    /// Places given back because the value never came whole.
    pub abandoned: u64,
    /// How often freed pages were given back to the system because they exceeded their bound.
    pub given_back: u64,
    /// A fingerprint of all decisions: equal to the simulator's for the same requests and seed.
    pub digest: u64,
    /// The tuner's state, if the policy has one.
    pub tuning: Option<TuningStatus>,
}

#[derive(Debug)]
pub(crate) struct Shared<V> {
    index: Index<V>,
    versions: Versions,
    touch: AnyTouch,
    tier: Mutex<AnyTier>,
    counters: Counters,
    ledger: Arc<Ledger>,
    /// The budget. The tier's own capacity is smaller while readers pin bytes.
    capacity_bytes: AtomicU64,
    pinned_bytes_max: u64,
    freed: Option<Arc<FreedPages>>,
}

impl<V> Shared<V> {
    /// Takes from the tier's capacity what readers pin.
    ///
    /// Beyond their bound nothing more is taken: or readers of all residents could empty the cache.
    fn make_room_for_pinned(&self, tier: &mut AnyTier, evicted: &mut Vec<Evicted>) -> PinnedRoom {
        let budget_bytes = self.capacity_bytes.load(Relaxed);
        let pinned = self.ledger.pinned_bytes(tier.used_bytes());
        let taken = pinned
            .min(self.pinned_bytes_max)
            .saturating_sub(pinned_free_bytes(budget_bytes));
        let capacity_bytes = budget_bytes.saturating_sub(taken);
        if tier.capacity_bytes() != capacity_bytes {
            tier.resize(capacity_bytes, evicted);
        }
        if pinned > self.pinned_bytes_max {
            PinnedRoom::Exceeded
        } else if evicted.is_empty() {
            PinnedRoom::Fits
        } else {
            PinnedRoom::Shrunk
        }
    }

    /// Removes the value of `key` and returns it, to be freed outside the lock.
    fn take_out(&self, tier: &mut AnyTier, key: KeyHash) -> Option<Arc<V>> {
        let (slot, value) = self.index.remove(key, None)?;
        tier.remove(slot);
        Some(value)
    }

    /// Takes the evicted out of the index; their values are handed back to be freed outside the lock.
    fn unlink(&self, evicted: &[Evicted], removed: &mut Vec<(Slot, Version, Arc<V>)>) {
        let mut bytes = 0;
        for gone in evicted {
            bytes += gone.object.size_bytes;
            // Absent if its fill is still on its way, another's if the key was filled twice.
            let value = self.index.remove(gone.object.key, Some(gone.slot));
            removed.extend(value.map(|(slot, value)| {
                let seen = self.versions.of(gone.object.key);
                (slot, seen, value)
            }));
        }
        if !evicted.is_empty() {
            let counters = &self.counters;
            counters.evicted.fetch_add(evicted.len() as u64, Relaxed);
            counters.evicted_bytes.fetch_add(bytes, Relaxed);
        }
    }
}

/// Whether the budget has room for the pinned bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PinnedRoom {
    Fits,
    /// Residents had to leave for them.
    Shrunk,
    /// They are more than their bound.
    Exceeded,
}

/// How often an offer evicts residents to make room for pinned bytes. Residents that are read become pinned bytes themselves, so
/// that a round may need another; after the last one the offer is refused.
const PINNED_ROUNDS_MAX: u32 = 4;

#[derive(Debug, Default)]
struct Counters {
    admitted: AtomicU64,
    refused_by_admission: AtomicU64,
    refused_too_large: AtomicU64,
    refused_object_limit: AtomicU64,
    refused_pinned: AtomicU64,
    evicted: AtomicU64,
    evicted_bytes: AtomicU64,
    abandoned: AtomicU64,
}

impl Counters {
    fn refused(&self, refusal: Refusal) -> &AtomicU64 {
        match refusal {
            Refusal::Admission => &self.refused_by_admission,
            Refusal::LargerThanTier => &self.refused_too_large,
            Refusal::ObjectLimit => &self.refused_object_limit,
        }
    }
}

#[cfg(test)]
mod tests;
