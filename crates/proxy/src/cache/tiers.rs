//! Both tiers of the cache, the fetches under way, and what was learned from their answers.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use edgeward_store::arena::Arena;
use edgeward_store::hot::{Offer, Recorder};
use edgeward_types::KeyHash;

use super::collapse::{Collapse, HitForMiss};
use super::disk::{DiskTier, Durable};
use super::key::{CacheKey, hash_key};
use super::negative::Negative;
use super::stored::{Hot, Stored, StoredBody, StoredKind, StoredResponse};
use crate::base::budget::FillBudget;
use crate::base::counters::Counters;

/// The cache that all workers share. No part of it is locked on the way of a hit.
pub(crate) struct Cache {
    pub(crate) hot: Arc<Hot>,
    /// Holds the large bodies of `hot`. `None` where the system has no such memory; they are on the heap then.
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) disk: Option<Arc<DiskTier>>,
    /// Devices of the disk cache that are not used, because they are damaged.
    pub(crate) disk_damaged: Vec<String>,
    pub(crate) collapse: Arc<Collapse>,
    pub(crate) hit_for_miss: HitForMiss,
    pub(crate) negative: Negative,
    pub(crate) fill_budget: Arc<FillBudget>,
    pub(crate) hash_seed: u64,
    pub(crate) generations: AtomicU64,
}

impl Cache {
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        hash_key(key, self.hash_seed)
    }

    /// Asks RAM for room. What has to leave may go to disk.
    pub(crate) fn offer_to_ram(
        &self,
        key: KeyHash,
        charge_bytes: u64,
        counters: &Counters,
    ) -> Offer<Stored> {
        let Some(disk) = &self.disk else {
            return self.hot.offer(key, charge_bytes);
        };
        let forgotten = disk.forgotten();
        self.hot.offer_with(key, charge_bytes, |evicted, left| {
            let StoredKind::Response(response) = &left.kind else {
                return;
            };
            if !disk.take_evicted(evicted, left.key(), response, forgotten) {
                return;
            }
            counters.disk_evicted.one();
            // A variant is found by its marker alone.
            if let Some(end) = memchr::memchr(b'\n', left.key()) {
                let primary = &left.key()[..end];
                let hash = self.hash(primary);
                let changes = disk.changes(hash);
                if let Some(marker) = self.hot.peek(hash).filter(|stored| stored.is_of(primary))
                    && let StoredKind::Varies(variants) = &marker.kind
                {
                    disk.put_marker(hash, primary, variants, changes);
                }
            }
        })
    }

    /// A large body was copied into a socket. One that is asked for often moves to where it need not be.
    pub(crate) fn move_if_worth_it(&self, hash: KeyHash, stored: &Arc<Stored>) {
        let Some(arena) = &self.arena else { return };
        let StoredKind::Response(response) = &stored.kind else {
            return;
        };
        let StoredBody::Memory(body) = &response.body else {
            return;
        };
        if !arena.accepts(body.len() as u64)
            || arena.place_of(body).is_some()
            || !stored.is_worth_moving()
        {
            return;
        }
        // Both copies count until the last reader of the old one has gone.
        let hold = self.hot.hold(stored.charge_bytes());
        if let Some(body) = arena.keep_with(body, hold) {
            let response = StoredResponse {
                body: StoredBody::Memory(body),
                ..response.clone()
            };
            let moved = stored.renewed(StoredKind::Response(response));
            self.hot.swap(hash, stored, moved);
        }
    }

    /// Takes a key out of both tiers. True if it was in one of them. The disk tells when that outlives a kill of the process.
    ///
    /// RAM first, and once more at the end: what was on its way from disk to RAM is caught by one of the two, or sees the change itself.
    pub(crate) fn invalidate(&self, hash: KeyHash, key: &[u8]) -> (bool, Option<Durable>) {
        let ours = |stored: &Arc<Stored>| stored.is_of(key);
        let mut removed = self.hot.remove_if(hash, ours);
        let Some(disk) = &self.disk else {
            return (removed, None);
        };
        let (held, durable) = disk.forget_durably(hash, key);
        removed |= held;
        removed |= self.hot.remove_if(hash, ours);
        (removed, Some(durable))
    }

    /// Takes `old` out of both tiers, and nothing that is newer. `changes` is the disk tier's count from before the origin was
    /// asked about `old`. False if something newer is there, or nothing is.
    pub(crate) fn remove_outdated(
        &self,
        hash: KeyHash,
        key: &[u8],
        old: &Arc<Stored>,
        changes: u64,
    ) -> bool {
        let mut removed = self.hot.remove_if(hash, |stored| Arc::ptr_eq(stored, old));
        if let Some(disk) = &self.disk
            && disk.changes(hash) == changes
        {
            removed |= disk.forget(hash, key);
        }
        removed
    }

    /// Whether one of the tiers has something under the key, as far as memory and the disk's index tell.
    pub(crate) fn holds(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.hot.peek(hash).is_some_and(|stored| stored.is_of(key))
            || self.disk.as_ref().is_some_and(|disk| disk.holds(hash))
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.generations.fetch_add(1, Ordering::Relaxed)
    }
}

/// The cache as one worker uses it: with the worker's counters and its samples for the tuner.
pub(crate) struct WorkerCache {
    cache: Arc<Cache>,
    pub(crate) counters: Arc<Counters>,
    recorder: RefCell<Recorder>,
    /// The buffer of the last key that was given back.
    spare_key: Cell<Vec<u8>>,
}

impl WorkerCache {
    pub(crate) fn new(cache: Arc<Cache>, counters: Arc<Counters>) -> Self {
        let recorder = RefCell::new(cache.hot.recorder());
        Self {
            cache,
            counters,
            recorder,
            spare_key: Cell::default(),
        }
    }

    /// The part that all workers share.
    pub(crate) fn shared(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Makes a primary key from the bytes that `write` appends.
    pub(crate) fn key(&self, write: impl FnOnce(&mut Vec<u8>)) -> CacheKey {
        let mut bytes = self.spare_key.take();
        bytes.clear();
        write(&mut bytes);
        CacheKey::primary_of(bytes, self.hash_seed)
    }

    /// Takes back a key that is no longer needed, so that the next one needs no memory of its own.
    pub(crate) fn give_back(&self, key: CacheKey) {
        self.spare_key.set(key.bytes);
    }

    /// Tells the tuner of a request for an object that can be kept.
    pub(crate) fn record(&self, key: KeyHash, charge_bytes: u64, hit: bool) {
        self.recorder.borrow_mut().record(key, charge_bytes, hit);
    }
}

impl Deref for WorkerCache {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}
