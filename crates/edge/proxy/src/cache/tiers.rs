//! The cache as workers use it: both tiers, the table of fetches under way, and the rules of id filters.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use edgeward_policy::{Evicted, PolicySpec};
use edgeward_semantics::{IgnoredParameters, Target};
use edgeward_store::arena::Arena;
use edgeward_store::hot::{Commit, Offer, PolicyChange, PolicyChangeError, Recorder, Reservation};
use edgeward_store::hot_list::HotObject;
use edgeward_store::purges::Purges;
use edgeward_store::versions::{ChangeGuard, Version};
use edgeward_types::KeyHash;
use http::StatusCode;

use super::collapse::{Collapse, MarkedKeys};
use super::copy_pauses::CopyPauses;
use super::dictionaries::Dictionaries;
use super::disk::fill::DiskFill;
use super::disk::{DiskTier, Durable};
use super::disk_slot::DiskSlot;
use super::key::{CacheKey, hash_key};
use super::key_parts::primary_of;
use super::miss_history::MissHistory;
use super::offers::RecentOffers;
use super::purge_counts::AcceptedPurges;
use super::slices::entry_of_slice;
use super::stored::{Hot, Stored, StoredBody, StoredKind, StoredResponse};
use super::successor::Successor;
use crate::config::FleetPurges;
use crate::config::live::Live;
use crate::observe::counters::Counters;
use crate::rt::budget::MemoryBudget;

/// The cache that all workers share. A hit takes no exclusive lock.
pub(crate) struct Cache {
    pub(crate) hot: Arc<Hot>,
    /// The memory of the large bodies of `hot`. If the system supports no arena, large bodies are on the heap.
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) disk: DiskSlot,
    /// Sends changes to the process that replaces this one.
    pub(crate) successor: Successor,
    /// The devices of the disk cache that are unused because they are damaged.
    pub(crate) disk_damaged: Vec<String>,
    pub(crate) collapse: Arc<Collapse>,
    /// The targets whose last response was for its leader alone. Their requests are not collapsed.
    pub(crate) hit_for_miss: MarkedKeys,
    /// The keys whose stale response the origin could not validate a moment ago, for any reason.
    pub(crate) failed_validations: MarkedKeys,
    /// The keys whose stale response could not be validated because the origin could not be reached.
    pub(crate) unreached_validations: MarkedKeys,
    /// The targets whose next HEAD is fetched with GET.
    pub(crate) head_fetches: MarkedKeys,
    pub(crate) copy_pauses: CopyPauses,
    /// The last events of keys, which tell why the cache lacks an object.
    pub(crate) miss_history: MissHistory,
    pub(crate) purges: Purges,
    /// The purges that all nodes of the fleet apply, if there is one.
    pub(crate) fleet: Option<FleetPurges>,
    pub(crate) accepted_purges: AcceptedPurges,
    pub(crate) warm_progress: WarmProgress,
    pub(crate) fill_budget: Arc<MemoryBudget>,
    pub(crate) hash_seed: u64,
    /// The generation of the next marker. It makes older [variants](super::stored::Variants) unreachable.
    pub(crate) next_generation: AtomicU64,
    /// True if a path may have a [rule](super::path_rules).
    pub(crate) may_have_path_rules: AtomicBool,
    /// The values of `Accept` and `Accept-Encoding` for which responses were fetched.
    pub(crate) offers: RecentOffers,
    /// The dictionaries that clients may have.
    pub(crate) dictionaries: Dictionaries,
    /// The query parameters that are not a part of keys.
    pub(crate) ignored_parameters: IgnoredParameters,
    pub(crate) live: Arc<Live>,
}

impl Cache {
    /// Returns the disk tier, unless the cache has none or its store still belongs to an earlier process.
    #[inline]
    pub(crate) fn disk(&self) -> Option<&Arc<DiskTier>> {
        self.disk.get()
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        hash_key(key, self.hash_seed)
    }

    /// Appends the target's own key, without the parameters that the operator lets the cache ignore.
    pub(crate) fn write_target_key(&self, target: Target<'_>, key: &mut Vec<u8>) {
        let kept = self.ignored_parameters.strip(target.path_and_query());
        target.with_path_and_query(&kept).write_key(key);
    }

    /// Returns the tier that has an object with the key of a slice: memory, else disk. Its head is not read.
    pub(crate) fn tier_of_slice(&self, key: &CacheKey) -> Option<Tier> {
        let in_memory = self.hot.peek(key.hash);
        if in_memory.is_some_and(|stored| stored.has_key(&key.bytes)) {
            return Some(Tier::Memory);
        }
        let disk = self.disk()?;
        disk.contains(key.hash).then_some(Tier::Disk)
    }

    /// Returns a key of a target with the query that rules of its site demand, and without the parameters that the
    /// operator lets the cache ignore.
    pub(crate) fn without_ignored_parameters(&self, key: Vec<u8>) -> Vec<u8> {
        let Ok(key) = String::from_utf8(key) else {
            unreachable!("the key of a target is text");
        };
        let live = self.live.config();
        let shaped = live.site_urls.shape(&key);
        self.ignored_parameters.strip(&shaped).into_owned().into()
    }

    /// Offers the memory tier an object with this charge. Objects that are evicted for it may be written to disk.
    /// `fetch_time` is the time from the request to the head of the origin's response; [`None`] if the object was not
    /// fetched now.
    pub(crate) fn offer_to_ram(
        &self,
        key: KeyHash,
        charge_bytes: u64,
        fetch_time: Option<Duration>,
        counters: &Counters,
    ) -> Offer<Stored> {
        self.offer_worth(key, charge_bytes, (fetch_time, 1.0), counters)
    }

    /// Offers the memory tier a copy of an object that another node of the fleet owns. A hit on the copy saves this
    /// share of the cost of a fetch from the origin.
    pub(crate) fn offer_copy(
        &self,
        key: KeyHash,
        charge_bytes: u64,
        worth: f64,
        counters: &Counters,
    ) -> Offer<Stored> {
        self.offer_worth(key, charge_bytes, (None, worth), counters)
    }

    fn offer_worth(
        &self,
        key: KeyHash,
        charge_bytes: u64,
        cost: (Option<Duration>, f64),
        counters: &Counters,
    ) -> Offer<Stored> {
        if self.disk().is_none() {
            return self.hot.offer_with(key, charge_bytes, cost, |_, _, _| ());
        }
        self.hot
            .offer_with(key, charge_bytes, cost, |evicted, version, value| {
                self.write_evicted(evicted, version, &value, counters);
            })
    }

    /// Reserves memory for objects of an earlier process; see [`Hot::reserve`](edgeward_store::hot::HotCache::reserve).
    pub(super) fn reserve(
        &self,
        objects: &[HotObject],
        counters: &Counters,
    ) -> Vec<Option<Reservation<Stored>>> {
        self.hot.reserve(objects, |evicted, version, value| {
            self.write_evicted(evicted, version, &value, counters);
        })
    }

    /// Replaces the policy of the memory tier and keeps its objects. Blocks until all objects have moved.
    pub(crate) fn change_policy(
        &self,
        policy: PolicySpec,
        counters: &Counters,
    ) -> Result<PolicyChange, PolicyChangeError> {
        self.hot.change_policy(policy, |evicted, version, value| {
            self.write_evicted(evicted, version, &value, counters);
        })
    }

    /// Writes an object that memory has evicted to disk, if the disk's policy takes the object.
    fn write_evicted(
        &self,
        evicted: &Evicted,
        version: Version,
        value: &Stored,
        counters: &Counters,
    ) {
        let (Some(disk), StoredKind::Response(response)) = (self.disk(), &value.kind) else {
            return;
        };
        let is_written = match value.slices() {
            // Slices may be on disk or in memory, and lookups need their entry.
            Some(slices) => disk.put_sliced(version.key(), value, slices, version),
            None => disk.take_evicted(evicted, version, value, response),
        };
        if is_written {
            counters.disk_evicted.increment();
            if response.status == StatusCode::PARTIAL_CONTENT {
                self.write_entry_of_slice(value.key());
            } else {
                self.write_markers_of(value.key());
            }
        }
    }

    /// Writes the entry of a slice to disk, because lookups of the slice need the entry, and the markers of the entry.
    pub(crate) fn write_entry_of_slice(&self, slice_key: &[u8]) {
        let (Some(disk), Some(key)) = (self.disk(), entry_of_slice(slice_key)) else {
            return;
        };
        let hash = self.hash(key);
        let version = self.hot.version(hash);
        if let Some(entry) = self.hot.peek(hash).filter(|stored| stored.has_key(key))
            && let Some(slices) = entry.slices()
        {
            disk.put_sliced(hash, &entry, slices, version);
        }
        self.write_markers_of(key);
    }

    /// Writes the markers to disk through which lookups find the object with this key.
    pub(crate) fn write_markers_of(&self, key: &[u8]) {
        self.write_marker_of(primary_of(key));
        // A variant's key is the primary key, a newline and more.
        let (Some(disk), Some(end)) = (self.disk(), memchr::memchr(b'\n', key)) else {
            return;
        };
        let primary = &key[..end];
        let hash = self.hash(primary);
        let version = self.hot.version(hash);
        if let Some(marker) = self.hot.peek(hash).filter(|stored| stored.has_key(primary))
            && let StoredKind::Varies(variants) = &marker.kind
        {
            disk.put_marker(hash, primary, variants, version);
        }
    }

    /// Counts a hit that copied a large body into a socket. A body with many such hits moves to the arena, from which
    /// the kernel sends it without a copy.
    pub(crate) fn record_copied_hit(&self, hash: KeyHash, stored: &Arc<Stored>) {
        let Some(arena) = &self.arena else { return };
        let StoredKind::Response(response) = &stored.kind else {
            return;
        };
        let StoredBody::Memory(body) = &response.body else {
            return;
        };
        if !arena.accepts(body.len() as u64)
            || arena.offset_of(body).is_some()
            || !stored.count_copy()
        {
            return;
        }
        // Both copies of the body are charged until the last reader of the old copy has ended.
        let charge = self.hot.charge(stored.charge_bytes());
        if let Some(body) = arena.insert_with(body, charge) {
            let response = StoredResponse {
                body: StoredBody::Memory(body),
                ..response.clone()
            };
            let in_arena = stored.renewed(StoredKind::Response(response));
            self.hot.swap(hash, stored, in_arena);
        }
    }

    /// Stores a response in memory if `ram` is given and on disk if `disk` is given, and removes the old response from
    /// the other tier. If neither tier stores the new response, but an old response is on disk, the old response is
    /// removed from both tiers. Returns `None` and changes no tier if the key has changed since `version`; see
    /// [`edgeward_store::versions`].
    pub(crate) fn insert(
        &self,
        version: Version,
        key: &[u8],
        ram: Option<(Reservation<Stored>, Arc<Stored>)>,
        disk: Option<DiskFill>,
    ) -> Option<StoredTiers> {
        let _changing = self.changing(version.key());
        let disk = disk.filter(DiskFill::is_alive);
        let commit = ram.map(|(reservation, stored)| reservation.commit(stored, version));
        let ram = match commit {
            Some(Commit::Done(_)) => true,
            Some(Commit::Outdated) => return None,
            Some(Commit::Lost) | None => false, // The reserved slot was evicted, or the caller has no slot.
        };
        let is_on_disk = || self.disk().is_some_and(|tier| tier.contains(version.key()));
        if !ram && disk.is_none() && !is_on_disk() {
            return self
                .hot
                .is_current(version)
                .then_some(StoredTiers::default());
        }
        if !ram {
            // A lookup reads memory first, and would find the old response there.
            self.hot.remove(version)?;
        }
        let disk = disk.is_some_and(DiskFill::finish);
        if !disk && let Some(tier) = self.disk() {
            tier.remove(version.key(), key);
        }
        Some(StoredTiers { ram, disk })
    }

    /// Removes a key from both tiers and returns its new version. Returns `None` and removes no response if the key
    /// has changed since `version`.
    pub(crate) fn remove(&self, version: Version, key: &[u8]) -> Option<Version> {
        let _changing = self.changing(version.key());
        let new_version = self.hot.remove(version)?;
        self.miss_history.remove(version.key());
        if let Some(disk) = self.disk.for_removal(version.key(), key) {
            disk.remove(version.key(), key);
        }
        Some(new_version)
    }

    /// Returns true if a tier has an object with this hash.
    pub(crate) fn has(&self, hash: KeyHash) -> bool {
        self.hot.peek(hash).is_some() || self.disk().is_some_and(|disk| disk.contains(hash))
    }

    /// Returns true if the disk has a key, and no fetch is writing it at the moment.
    pub(crate) fn is_settled_on_disk(&self, hash: KeyHash) -> bool {
        let disk = self.disk();
        disk.is_some_and(|disk| disk.contains(hash) && !disk.writing.contains(hash))
    }

    /// Removes a key from both tiers, and makes all earlier versions of the key outdated. Returns true if a tier had
    /// the key, and a receiver that resolves when the removal from disk is durable.
    pub(crate) fn purge(&self, hash: KeyHash, key: &[u8]) -> (bool, Option<Durable>) {
        let _changing = self.changing(hash);
        let in_ram = self.hot.purge(hash, |stored| stored.has_key(key));
        self.miss_history.remove(hash);
        let Some(disk) = self.disk.for_removal(hash, key) else {
            return (in_ram, None);
        };
        let (on_disk, durable) = disk.purge(hash, key);
        (in_ram || on_disk, Some(durable))
    }

    /// Like [`purge`](Self::purge), if the key has not changed since `version`. Also returns the key's new version.
    /// Otherwise returns `None` and removes no response.
    pub(crate) fn purge_since(
        &self,
        version: Version,
        key: &[u8],
    ) -> Option<(bool, Option<Durable>, Version)> {
        let hash = version.key();
        let _changing = self.changing(hash);
        let present = self.hot.peek(hash);
        let in_ram = present.is_some_and(|stored| stored.has_key(key));
        let new_version = self.hot.remove(version)?;
        self.miss_history.remove(hash);
        let Some(disk) = self.disk.for_removal(hash, key) else {
            return Some((in_ram, None, new_version));
        };
        let (on_disk, durable) = disk.purge(hash, key);
        Some((in_ram || on_disk, Some(durable), new_version))
    }

    /// Returns a guard that stops promotions of a key. The caller keeps it while it changes the key in both tiers.
    pub(crate) fn changing(&self, hash: KeyHash) -> Option<ChangeGuard<'_>> {
        self.disk().map(|_| self.hot.changing(hash))
    }

    pub(crate) fn next_marker_generation(&self) -> u64 {
        self.next_generation.fetch_add(1, Ordering::Relaxed)
    }
}

/// The tiers in which a response was stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoredTiers {
    pub(crate) ram: bool,
    pub(crate) disk: bool,
}

/// The tier from which a response or slice is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Memory,
    Disk,
}

/// One worker's handle of the cache, with the worker's counters and its samples for the admission tuner.
pub(crate) struct WorkerCache {
    cache: Arc<Cache>,
    pub(crate) counters: Arc<Counters>,
    recorder: RefCell<Recorder>,
    /// The buffer of the last recycled key.
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

    /// Returns the cache that all workers share.
    pub(crate) fn shared(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Returns a primary key with the bytes that `write` appends.
    pub(crate) fn key(&self, write: impl FnOnce(&mut Vec<u8>)) -> CacheKey {
        let mut bytes = self.spare_key.take();
        bytes.clear();
        bytes.reserve(KEY_BYTES); // misses take the buffer away
        write(&mut bytes);
        CacheKey::primary_of(bytes, self.hash_seed)
    }

    /// Keeps the buffer of an unused key, so that the next key needs no allocation.
    pub(crate) fn recycle_key(&self, key: CacheKey) {
        self.spare_key.set(key.bytes);
    }

    /// Records a request for a storable object for the admission tuner. `hit` is true if memory had the object.
    pub(crate) fn record(&self, key: KeyHash, charge_bytes: u64, hit: bool) {
        self.recorder.borrow_mut().record(key, charge_bytes, hit);
    }

    /// Counts a hit on disk that reads only a part of the body. The hit does not promote the object.
    pub(crate) fn count_partial_hit(&self, key: KeyHash, length: u64, charge_bytes: u64) {
        if let Some(disk) = self.disk() {
            disk.hit(key, length);
        }
        self.record(key, charge_bytes, false);
    }
}

impl Deref for WorkerCache {
    type Target = Cache;

    fn deref(&self) -> &Cache {
        &self.cache
    }
}

/// A capacity that is enough for most keys, so that writing a key allocates once.
const KEY_BYTES: usize = 128;

/// The progress of the fill of memory after a start, for metrics.
#[derive(Debug, Default)]
pub(crate) struct WarmProgress {
    /// Objects that are still to be read.
    pub(crate) pending: AtomicU64,
    /// Objects that were read into memory.
    pub(crate) loaded: AtomicU64,
    /// Bytes of the bodies of these objects.
    pub(crate) loaded_bytes: AtomicU64,
    /// Objects of the list that the disk has no longer, that a request has stored meanwhile, or that do not fit.
    pub(crate) skipped: AtomicU64,
}
