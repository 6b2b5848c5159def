//! The RAM tier: values under keys, with one byte budget. Hits take shared locks only.
//!
//! The cache has two parts. The index maps a key to its value. A hit reads only the index: it takes a shared
//! lock on one shard, clones an `Arc`, and does at most one relaxed store to count the hit. The policy tier
//! (`edgeward_policy::AnyTier`) has the budget and decides which objects stay. One lock protects the policy
//! tier. Only misses and changes take this lock, and only for bookkeeping: values are built and freed without
//! this lock.
//!
//! A miss reserves space first and commits the value later:
//!
//! ```
//! # use edgeward_store::hot::{HotCache, HotConfig, Offer};
//! # use edgeward_types::{ByteSize, KeyHash, charge_bytes};
//! # use std::sync::Arc;
//! let cache = HotCache::<String>::new(HotConfig::new(ByteSize::mib(1)));
//! let (key, value) = (KeyHash(7), "a body".to_owned());
//! let charge = charge_bytes(value.len() as u64, HotCache::<String>::OBJECT_OVERHEAD_BYTES);
//! let version = cache.version(key);
//! if let Offer::Admit(reservation) = cache.offer(key, charge) {
//!     // The body arrives. If it is incomplete, dropping the reservation releases the space.
//!     reservation.commit(Arc::new(value), version);
//! }
//! assert_eq!(cache.lookup(key).as_deref(), Some(&"a body".to_owned()));
//! ```
//!
//! A change of a key takes a [`Version`] of the key. The caller reads it before it decides about the change;
//! [`versions`](crate::versions) states the rule.
//!
//! Lock order: first the policy tier, then one index shard or one stripe of versions. A thread that holds the
//! lock of a shard or a stripe takes no further lock.

mod benefit;
mod fragmentation;
mod freed;
mod index;
mod ledger;
mod policy_change;
mod recorder;
mod restart;
mod tiers;
mod tuning;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use edgeward_policy::{
    BOOKKEEPING_BYTES_CHARGED, Evicted, Object, Objective, PolicySpec, RejectReason, Slot,
};
use edgeward_types::{ByteSize, KeyHash, Seed, allocated_bytes};

use crate::sync::Mutex;
use crate::versions::{ChangeGuard, Version, Versions};
use benefit::Benefits;
pub use fragmentation::Slabs;
use freed::freed_max_bytes;
pub use freed::{AllocatorState, FreedPages};
use index::Index;
use ledger::{Ledger, pinned_free_bytes};
use policy_change::report_evicted;
use tiers::{SlotOfFill, Tiers};
use tuning::{Tuning, TuningSwitch};

pub use ledger::ChargeGuard;
pub use policy_change::{PolicyChange, PolicyChangeError};
pub use recorder::Recorder;
pub use restart::DrainedObject;
pub use tuning::{TunerMode, TuningStatus};

/// The settings of the RAM tier.
#[derive(Clone, Debug)]
pub struct HotConfig {
    /// The budget: the largest sum of the charges of all stored objects. A charge includes the value, the head
    /// and the object's share of the index.
    pub capacity: ByteSize,

    /// The policies of admission and eviction.
    pub policy: PolicySpec,

    /// The benefit of a hit, whose sum the policy maximises. Most policies ignore it; see
    /// [`PolicySpec::weighs_benefits`].
    pub objective: Objective,

    /// The seed of the policy's random numbers. With the same seed, the same requests give the same decisions.
    pub seed: Seed,

    /// The number of requests between two tunings of AdaptSize, the paper's Δ. `None` selects the paper's
    /// value, 250 000.
    pub window_requests: Option<u32>,

    /// Selects the thread that runs the tuner.
    pub tuner_mode: TunerMode,

    /// The largest number of pinned bytes, that is, bytes of values that left the cache while readers still
    /// reference them. While more bytes are pinned, no object is admitted. `None` selects an eighth of the
    /// capacity, at least 4 MiB.
    pub pinned_bytes_max: Option<ByteSize>,

    /// The largest number of bytes of freed pages that the allocator may keep. `None` selects 1/32 of the
    /// capacity, at least 2 MiB.
    pub freed_bytes_max: Option<ByteSize>,

    /// A function that returns freed pages to the system if these pages take more bytes than the argument.
    /// Fragmentation that it measures may reduce the capacity. With `None` the allocator decides when to return pages.
    pub return_freed_pages: Option<fn(u64) -> AllocatorState>,
}

impl HotConfig {
    /// Returns a configuration with the given capacity and the default policy. A tuner, if the policy has one,
    /// runs on its own thread.
    pub fn new(capacity: ByteSize) -> Self {
        Self {
            capacity,
            policy: PolicySpec::default(),
            objective: Objective::default(),
            seed: Seed(0),
            window_requests: None,
            tuner_mode: TunerMode::Thread,
            pinned_bytes_max: None,
            freed_bytes_max: None,
            return_freed_pages: None,
        }
    }

    /// Returns `freed_bytes_max`, or its default.
    pub fn freed_bytes_max(&self) -> u64 {
        let most = self.freed_bytes_max.map(ByteSize::bytes);
        most.unwrap_or_else(|| freed_max_bytes(self.capacity.bytes()))
    }

    /// Returns `pinned_bytes_max`, or its default. Never more than the capacity.
    pub fn pinned_bytes_max(&self) -> u64 {
        let most = self.pinned_bytes_max.map(ByteSize::bytes);
        most.unwrap_or_else(|| ledger::pinned_max_bytes(self.capacity.bytes()))
            .min(self.capacity.bytes())
    }
}

/// A cache of values of one type, within a byte budget.
#[derive(Debug)]
pub struct HotCache<V: Send + Sync + 'static> {
    shared: Arc<Shared<V>>,
    tuning: Arc<TuningSwitch>,
    tuner_mode: TunerMode,
    window_requests: Option<u32>,
    seed: Seed,
    /// Locked during a change of policy.
    policy_change: Mutex<()>,
}

impl<V: Send + Sync + 'static> HotCache<V> {
    /// The bytes that an object takes in addition to its value's own allocations. Add them to every charge.
    ///
    /// This is the sum of the policy's bookkeeping, the index entry, and the allocation of the value with the 16 bytes
    /// of its `Arc`. A policy with more bookkeeping reduces the capacity for objects instead.
    pub const OBJECT_OVERHEAD_BYTES: u64 = BOOKKEEPING_BYTES_CHARGED
        + index::ENTRY_BYTES
        + allocated_bytes(16 + size_of::<V>() as u64);

    /// Returns an empty cache. Starts a tuner if the policy has one.
    pub fn new(config: HotConfig) -> Arc<Self> {
        let capacity_bytes = config.capacity.bytes();
        let tier = config.policy.tier(capacity_bytes, config.seed);
        let shared = Arc::new(Shared {
            index: Index::new(&tier.hit_recorder()),
            versions: Versions::default(),
            // The tier's capacity differs from the configured one for the policy `infinite`.
            capacity_bytes: AtomicU64::new(tier.capacity_bytes()),
            tier: Mutex::new(Tiers::new(config.policy, tier)),
            benefits: Benefits::new(config.objective),
            counters: Counters::default(),
            ledger: Arc::default(),
            pinned_bytes_max: config.pinned_bytes_max(),
            freed: config.return_freed_pages.map(|return_freed_pages| {
                Arc::new(FreedPages::new(
                    return_freed_pages,
                    config.freed_bytes_max(),
                    capacity_bytes,
                ))
            }),
        });
        let tuner = config.policy.tuner(capacity_bytes, config.window_requests);
        let tuning = Arc::new(TuningSwitch::default());
        tuning.replace(
            tuner.map(|tuner| Tuning::start(tuner, config.tuner_mode, Arc::clone(&shared))),
        );
        Arc::new(Self {
            shared,
            tuning,
            tuner_mode: config.tuner_mode,
            window_requests: config.window_requests,
            seed: config.seed,
            policy_change: Mutex::default(),
        })
    }

    /// Returns the value under `key` and counts a hit for eviction. Takes no exclusive lock.
    #[inline]
    pub fn lookup(&self, key: KeyHash) -> Option<Arc<V>> {
        self.shared.index.hit(key)
    }

    /// Returns the value under `key` without counting a hit.
    pub fn peek(&self, key: KeyHash) -> Option<Arc<V>> {
        self.shared.index.find(key)
    }

    /// Calls `visit` with each value. Values that are inserted or removed during the call may be missing.
    pub fn for_each(&self, visit: impl FnMut(&V)) {
        self.shared.index.for_each(visit);
    }

    /// Returns a recorder with which one worker reports its requests to the tuner. While the policy has no tuner,
    /// the recorder does nothing.
    pub fn recorder(&self) -> Recorder {
        Recorder::new(Arc::clone(&self.tuning))
    }

    /// Reserves space for a value of `charge_bytes` that the caller commits later.
    ///
    /// The policy decides and evicts at once, so that its decisions are in the order of the misses. A key may
    /// be offered while an older value is resident: the older value is served until the new one is committed.
    pub fn offer(&self, key: KeyHash, charge_bytes: u64) -> Offer<V> {
        self.offer_with(key, charge_bytes, None, |_, _, _| ())
    }

    /// Like [`offer`](Self::offer). Calls `on_evicted` with each evicted value and the version of its key at the
    /// eviction. No lock is held during the call.
    ///
    /// `fetch_time` is the time that the fetch of the value took. [`None`] means that the value was not fetched now.
    /// The policy then uses the mean time of the recent fetches.
    pub fn offer_with(
        &self,
        key: KeyHash,
        charge_bytes: u64,
        fetch_time: Option<Duration>,
        mut on_evicted: impl FnMut(&Evicted, Version, Arc<V>),
    ) -> Offer<V> {
        let object = Object {
            key,
            size_bytes: charge_bytes,
        };
        let shared = &self.shared;
        if let Some(freed) = &shared.freed {
            freed.count(charge_bytes);
        }
        let benefit = shared.benefits.of(charge_bytes, fetch_time);
        let mut evicted = Vec::new();
        let mut removed = Vec::new();
        let mut rounds_left = PINNED_ROUNDS_MAX;
        let verdict = loop {
            let mut tier = shared.tier.lock();
            let pinned_room = shared.adjust_capacity(&mut tier, &mut evicted);
            let verdict = match pinned_room {
                PinnedRoom::Fits => {
                    shared.move_until_capacity(&mut tier, charge_bytes, &mut evicted);
                    Some(tier.offer(&object, benefit, &mut evicted))
                }
                PinnedRoom::Shrunk | PinnedRoom::Exceeded => None,
            };
            shared.unlink(&evicted, &mut removed);
            // The charge is added under the lock, so that the charged bytes are never less than the bytes of all
            // slots.
            let verdict = verdict
                .map(|verdict| verdict.map(|fill| (fill, shared.ledger.charge(charge_bytes))));
            drop(tier);
            // Bodies are freed here, with no lock held.
            report_evicted(&mut evicted, &mut removed, &mut on_evicted);
            // Readers may still reference some of the evicted values. The other evicted values are freed now, so
            // the next round computes the new number of pinned bytes.
            if pinned_room != PinnedRoom::Shrunk || rounds_left == 0 {
                break verdict;
            }
            rounds_left -= 1;
        };
        let counters = &self.shared.counters;
        match verdict {
            Some(Ok((fill, charge))) => {
                counters.admitted.fetch_add(1, Relaxed);
                Offer::Admit(Reservation {
                    shared: Arc::clone(&self.shared),
                    key,
                    fill,
                    charge_bytes,
                    charge: Some(charge),
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

    /// Returns the version of a key. The caller reads it before it decides about a change.
    pub fn version(&self, key: KeyHash) -> Version {
        self.shared.versions.current(key)
    }

    /// Returns the version of a key, or `None` while a change of the key is not on disk yet.
    pub fn settled_version(&self, key: KeyHash) -> Option<Version> {
        self.shared.versions.settled(key)
    }

    /// Returns true if the key has not changed since the version.
    pub fn is_current(&self, version: Version) -> bool {
        self.shared.versions.is_current(version)
    }

    /// Returns a newer version of the same content, or `None` if the key has changed. After many changes of other
    /// keys, an old version counts as outdated although the key has not changed. A caller that keeps a version for
    /// long therefore renews it from time to time.
    pub fn renewed(&self, version: Version) -> Option<Version> {
        self.shared.versions.renewed(version)
    }

    /// Marks a key as changing until the returned guard is dropped. The caller makes the guard before the change,
    /// and keeps it until the change is on disk.
    pub fn changing(&self, key: KeyHash) -> ChangeGuard<'_> {
        self.shared.versions.changing(key)
    }

    /// Replaces `before` by `value`, which has the same body and the same charge. If the key has another value than
    /// `before`, removes that value. Returns true if `value` is stored. If the key has changed since the version,
    /// returns `None` without a change.
    pub fn refresh(&self, version: Version, before: &Arc<V>, value: Arc<V>) -> Option<bool> {
        let mut tier = self.shared.tier.lock();
        self.shared.versions.advance(version)?;
        let swapped = self.shared.index.swap(version.key(), before, value);
        let removed = (!swapped).then(|| self.shared.remove_value(&mut tier, version.key()));
        drop(tier);
        drop(removed);
        Some(swapped)
    }

    /// Replaces `before` by `value` at the same charge. Returns false if the key has another value or none by now.
    ///
    /// Callers use this function after they have copied the body of a value to another place, for example to
    /// the arena.
    pub fn swap(&self, key: KeyHash, before: &Arc<V>, value: Arc<V>) -> bool {
        self.shared.index.swap(key, before, value)
    }

    /// Removes the value of the version's key and returns the new version. If the key has changed since the
    /// given version, returns `None` without a change.
    pub fn remove(&self, version: Version) -> Option<Version> {
        let mut tier = self.shared.tier.lock();
        let new_version = self.shared.versions.advance(version)?;
        let removed = self.shared.remove_value(&mut tier, version.key());
        drop(tier);
        drop(removed);
        Some(new_version)
    }

    /// Makes all earlier versions of the key outdated, and removes its value if `is_ours` returns true for the
    /// value. Two keys can have one hash, so `is_ours` compares the full key. Returns true if a value was
    /// removed.
    pub fn purge(&self, key: KeyHash, is_ours: impl FnOnce(&V) -> bool) -> bool {
        let mut tier = self.shared.tier.lock();
        self.shared.versions.change(key);
        let found = self.shared.index.find(key);
        let removed = found
            .filter(|value| is_ours(value))
            .and_then(|_| self.shared.remove_value(&mut tier, key));
        drop(tier);
        removed.is_some()
    }

    /// Charges the budget for memory of a value that is not in the cache, until the returned guard is dropped.
    pub fn charge(&self, bytes: u64) -> ChargeGuard {
        self.shared.ledger.charge(bytes)
    }

    /// Returns the counter for memory that is freed outside the cache. Returns `None` if freed pages have no
    /// limit.
    pub fn freed_pages(&self) -> Option<Arc<FreedPages>> {
        self.shared.freed.clone()
    }

    /// Returns the bytes of values that have left the cache and are still referenced, and the limit above which
    /// no object is admitted.
    ///
    /// Takes the tier's lock.
    pub fn pinned_bytes(&self) -> (u64, u64) {
        let used_bytes = self.shared.tier.lock().used_bytes();
        let pinned = self.shared.ledger.pinned_bytes(used_bytes);
        (pinned, self.shared.pinned_bytes_max)
    }

    /// Changes the budget. A smaller budget evicts at once.
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

    /// Returns the statistics of the cache: its content and its counters.
    pub fn stats(&self) -> HotStats {
        let counters = &self.shared.counters;
        let load = |counter: &AtomicU64| counter.load(Relaxed);
        let freed = self.shared.freed.as_deref();
        let tuning = self.tuning.status();
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
            freed_pages_returns: freed.map_or(0, FreedPages::freed_pages_returns),
            fragmentation_bytes: freed.map_or(0, FreedPages::reduction_bytes),
            policy: tier.policy(),
            policy_changes: load(&counters.policy_changes),
            policy_kept: load(&counters.policy_kept),
            policy_lost: load(&counters.policy_lost),
            digest: tier.current().digest(),
            tuning,
        }
    }
}

impl<V: Send + Sync + 'static> Drop for HotCache<V> {
    fn drop(&mut self) {
        // Recorders may live longer, and the tuner's thread must end with the cache.
        self.tuning.replace(None);
    }
}

/// The result of [`HotCache::offer`].
#[derive(Debug)]
pub enum Offer<V: Send + Sync + 'static> {
    /// Space is reserved; the caller commits the value later.
    Admit(Reservation<V>),
    /// The policy refused the object.
    Refuse(RejectReason),
    /// The object is refused because readers pin too many bytes of values that left the cache.
    Pinned,
}

/// Space that is reserved for a value. If this value is dropped without a commit, the space is released.
#[derive(Debug)]
pub struct Reservation<V: Send + Sync + 'static> {
    shared: Arc<Shared<V>>,
    key: KeyHash,
    fill: SlotOfFill,
    charge_bytes: u64,
    charge: Option<ChargeGuard>,
    committed: bool,
}

impl<V: Send + Sync + 'static> Reservation<V> {
    /// The hash of the key for which the space is reserved.
    pub fn key(&self) -> KeyHash {
        self.key
    }

    /// The charge of the reserved slot in bytes.
    pub fn charge_bytes(&self) -> u64 {
        self.charge_bytes
    }

    /// Takes the guard of the value's charge. The caller stores the guard with the value's memory, so that the
    /// memory counts against the budget even after the value has left the cache. A second call returns `None`.
    pub fn take_charge(&mut self) -> Option<ChargeGuard> {
        self.charge.take()
    }

    /// Stores `value` under the key, and makes a new version.
    pub fn commit(self, value: Arc<V>, version: Version) -> Commit {
        self.publish(value, |shared, _| shared.versions.advance(version))
    }

    /// Like [`commit`](Self::commit), but for a value that was read from disk when the key had this version.
    /// Makes no new version and replaces no value.
    pub fn promote(self, value: Arc<V>, version: Version) -> Commit {
        self.publish(value, |shared, is_present| {
            (!is_present && shared.versions.is_current(version)).then_some(version)
        })
    }

    fn publish(
        mut self,
        value: Arc<V>,
        new_version: impl FnOnce(&Shared<V>, bool) -> Option<Version>,
    ) -> Commit {
        self.committed = true;
        let shared = Arc::clone(&self.shared);
        let mut tier = shared.tier.lock();
        let Some(slot) = tier.end_fill(self.fill) else {
            return Commit::Lost;
        };
        let Some(version) = new_version(&shared, shared.index.contains(self.key)) else {
            tier.remove(slot);
            return Commit::Outdated;
        };
        let before = shared.index.insert(self.key, slot, value);
        if let Some((slot, _)) = &before {
            tier.remove(*slot);
        }
        drop(tier);
        drop(before);
        Commit::Done(version)
    }
}

/// The result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The value is stored and has this version.
    Done(Version),
    /// The slot was evicted while the value was being filled.
    Lost,
    /// The key has changed since the version that the caller passed, or `promote` found a value under the key.
    Outdated,
}

impl<V: Send + Sync + 'static> Drop for Reservation<V> {
    fn drop(&mut self) {
        if !self.committed {
            self.shared.counters.abandoned.fetch_add(1, Relaxed);
            let mut tier = self.shared.tier.lock();
            if let Some(slot) = tier.end_fill(self.fill) {
                tier.remove(slot);
            }
        }
    }
}

/// The statistics of a [`HotCache`].
#[derive(Clone, Debug)]
pub struct HotStats {
    /// The byte budget.
    pub capacity_bytes: u64,
    /// The charges of residents (stored values) and of fills in progress, in bytes. Never above the capacity.
    pub used_bytes: u64,
    /// Bytes of values that have left the cache and are still referenced. They count against the budget.
    pub pinned_bytes: u64,
    /// The limit of `pinned_bytes`. While `pinned_bytes` exceeds this limit, no object is admitted.
    pub pinned_bytes_max: u64,
    /// The number of residents, including fills in progress.
    pub objects: u64,
    /// Bytes of the policy's bookkeeping. The residents' charges include a fixed part of it per resident.
    pub bookkeeping_bytes: u64,
    /// Offers that were admitted.
    pub admitted: u64,
    /// Offers refused by the admission policy, or because the objects to evict are worth more than the offered one.
    pub refused_by_admission: u64,
    /// Offers refused because the object is larger than the whole budget.
    pub refused_too_large: u64,
    /// Offers refused because the tier had its largest number of objects.
    pub refused_object_limit: u64,
    /// Offers refused because of pinned bytes: above `pinned_bytes_max`, or more than evictions made room for.
    pub refused_pinned: u64,
    /// Residents that were evicted.
    pub evicted: u64,
    /// Bytes of the evicted residents.
    pub evicted_bytes: u64,
    /// Reservations that were dropped without a commit, because the value did not arrive completely.
    pub abandoned: u64,
    /// The number of times that freed pages were returned to the system because they exceeded their limit.
    pub freed_pages_returns: u64,
    /// The number of bytes by which fragmentation of the allocator reduces the budget.
    pub fragmentation_bytes: u64,
    /// The current policy.
    pub policy: PolicySpec,
    /// The number of changes of the policy.
    pub policy_changes: u64,
    /// The number of objects that changes of the policy kept.
    pub policy_kept: u64,
    /// The number of objects that did not fit after a change of the policy.
    pub policy_lost: u64,
    /// A fingerprint of all decisions of the current policy. It equals that of the simulator for the same requests and
    /// seed.
    pub digest: u64,
    /// The tuner's state, if the policy has a tuner.
    pub tuning: Option<TuningStatus>,
}

#[derive(Debug)]
pub(crate) struct Shared<V> {
    index: Index<V>,
    versions: Versions,
    tier: Mutex<Tiers>,
    benefits: Benefits,
    counters: Counters,
    /// The sum of the charges of all values in memory, from which the pinned bytes are computed.
    ledger: Arc<Ledger>,
    /// The byte budget. The tier's own capacity is smaller while readers pin bytes or memory is fragmented.
    capacity_bytes: AtomicU64,
    pinned_bytes_max: u64,
    freed: Option<Arc<FreedPages>>,
}

impl<V> Shared<V> {
    /// Reduces the tier's capacity by the pinned bytes above `pinned_free_bytes`, by fragmentation, and by the
    /// bookkeeping that no object is charged for.
    ///
    /// Only the pinned bytes up to `pinned_bytes_max` count. Without this limit, clients that read all residents
    /// slowly could empty the cache.
    fn adjust_capacity(&self, tier: &mut Tiers, evicted: &mut Vec<Evicted>) -> PinnedRoom {
        let budget_bytes = self.capacity_bytes.load(Relaxed);
        let pinned = self.ledger.pinned_bytes(tier.used_bytes());
        let taken = pinned
            .min(self.pinned_bytes_max)
            .saturating_sub(pinned_free_bytes(budget_bytes));
        let fragmentation_bytes = self.freed.as_ref().map_or(0, |it| it.reduction_bytes());
        let capacity_bytes = budget_bytes
            .saturating_sub(taken)
            .saturating_sub(fragmentation_bytes)
            .saturating_sub(tier.uncharged_bytes());
        tier.resize(capacity_bytes, evicted);
        if pinned > self.pinned_bytes_max {
            PinnedRoom::Exceeded
        } else if evicted.is_empty() {
            PinnedRoom::Fits
        } else {
            PinnedRoom::Shrunk
        }
    }

    /// Removes the value of `key` and returns it, to be freed outside the lock.
    fn remove_value(&self, tier: &mut Tiers, key: KeyHash) -> Option<Arc<V>> {
        let (slot, value) = self.index.remove(key, None)?;
        tier.remove(slot);
        Some(value)
    }

    /// Removes evicted objects from the index. Adds their values to `removed`, so that the caller frees them
    /// outside the lock.
    fn unlink(&self, evicted: &[Evicted], removed: &mut Vec<(Slot, Version, Arc<V>)>) {
        let mut bytes = 0;
        for object in evicted {
            bytes += object.object.size_bytes;
            // If the fill is still in progress, the index has no value of this slot. If the key was filled twice,
            // the index may have the value of the other slot, which stays.
            let value = self.index.remove(object.object.key, Some(object.slot));
            removed.extend(value.map(|(slot, value)| {
                let version = self.versions.current(object.object.key);
                (slot, version, value)
            }));
        }
        if !evicted.is_empty() {
            let counters = &self.counters;
            counters.evicted.fetch_add(evicted.len() as u64, Relaxed);
            counters.evicted_bytes.fetch_add(bytes, Relaxed);
        }
    }
}

/// The result of `adjust_capacity`: states if an object may be offered to the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PinnedRoom {
    /// The residents and the pinned bytes fit into the budget.
    Fits,
    /// Residents were evicted to make room.
    Shrunk,
    /// The pinned bytes exceed their limit.
    Exceeded,
}

/// The number of further rounds in which an offer may evict residents to make room for pinned bytes. Evicted residents
/// that are being read become pinned, so another round may be necessary. After the last round the offer is refused.
const PINNED_ROUNDS_MAX: u32 = 4;

#[derive(Debug, Default)]
struct Counters {
    admitted: AtomicU64,
    refused_by_admission: AtomicU64,
    refused_too_large: AtomicU64,
    refused_object_limit: AtomicU64,
    refused_pinned: AtomicU64,
    policy_changes: AtomicU64,
    policy_kept: AtomicU64,
    policy_lost: AtomicU64,
    evicted: AtomicU64,
    evicted_bytes: AtomicU64,
    abandoned: AtomicU64,
}

impl Counters {
    /// Returns the counter of this reason.
    fn refused(&self, refusal: RejectReason) -> &AtomicU64 {
        match refusal {
            RejectReason::Admission | RejectReason::LowRank => &self.refused_by_admission,
            RejectReason::LargerThanTier => &self.refused_too_large,
            RejectReason::ObjectLimit => &self.refused_object_limit,
        }
    }
}

#[cfg(test)]
mod tests;
