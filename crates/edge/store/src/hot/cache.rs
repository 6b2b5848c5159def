//! The cache: lookups, offers and changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use edgeward_policy::{BOOKKEEPING_BYTES_CHARGED, Evicted, Object};
use edgeward_types::{ByteSize, KeyHash, Seed, allocated_bytes};

use super::benefit::Benefits;
use super::config::HotConfig;
use super::freed::FreedPages;
use super::index::{self, Index};
use super::ledger::ChargeGuard;
use super::recorder::Recorder;
use super::reservation::{Offer, Reservation};
use super::shared::{Counters, PinnedRoom, Shared, report_evicted};
use super::stats::HotStats;
use super::tiers::Tiers;
use super::tuning::{TunerMode, Tuning, TuningSwitch};
use crate::sync::Mutex;
use crate::versions::{ChangeGuard, Version, Versions};

/// A cache of values of one type, within a byte budget.
#[derive(Debug)]
pub struct HotCache<V: Send + Sync + 'static> {
    pub(super) shared: Arc<Shared<V>>,
    pub(super) tuning: Arc<TuningSwitch>,
    pub(super) tuner_mode: TunerMode,
    pub(super) window_requests: Option<u32>,
    pub(super) seed: Seed,
    /// Locked during a change of policy.
    pub(super) policy_change: Mutex<()>,
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

    /// Calls `visit` with the values of a random part of the keys, with about `values_max` values or all. Returns the
    /// share of the keys: divide sums by it.
    pub fn sample(&self, values_max: usize, visit: impl FnMut(&V)) -> f64 {
        self.shared.index.sample(values_max, visit)
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
        self.offer_with(key, charge_bytes, (None, 1.0), |_, _, _| ())
    }

    /// Like [`offer`](Self::offer). Calls `on_evicted` with each evicted value and the version of its key at the
    /// eviction. No lock is held during the call.
    ///
    /// `fetch_time` is the time that the fetch of the value took. [`None`] means that the value was not fetched now.
    /// The policy then uses the mean time of the recent fetches. A hit has `worth` times the benefit by the objective:
    /// less than 1 if it does not save a whole fetch from the origin.
    pub fn offer_with(
        &self,
        key: KeyHash,
        charge_bytes: u64,
        (fetch_time, worth): (Option<Duration>, f64),
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
        let benefit = shared.benefits.of(charge_bytes, fetch_time).times(worth);
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

    /// Returns the charges of all values in memory, with those that have left the cache and are still referenced.
    ///
    /// Takes no lock.
    pub fn charged_bytes(&self) -> u64 {
        self.shared.ledger.charged_bytes()
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

/// The number of further rounds in which an offer may evict residents to make room for pinned bytes. Evicted residents
/// that are being read become pinned, so another round may be necessary. After the last round the offer is refused.
const PINNED_ROUNDS_MAX: u32 = 4;
