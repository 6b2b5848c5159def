//! The disk tier: lookups, writes, removals and promotions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use edgeward_policy::disk_admission::{DiskAdmissionSpec, DiskRejectReason, DiskVerdict};
use edgeward_policy::{Evicted, Object};
use edgeward_sites::DiskPlacement;
use edgeward_store::disk::{
    Candidate, DiskCache, DiskObject, NonBlockingRead, SyncError, WriteError,
};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use tokio::sync::oneshot;

use super::admission::Admissions;
use super::entry::{DiskEntry, parse};
use super::head;
use super::key_set::KeySet;
use super::readers::Readers;
use crate::cache::key::hash_key;
use crate::cache::slices::Slices;
use crate::cache::stored::{
    DiskPlan, Hot, Selector, Stored, StoredBody, StoredResponse, Variants, stable_key,
};
use crate::observe::counters::Counters;

/// The disk cache, with its admission and its read threads.
#[derive(Debug)]
pub(crate) struct DiskTier {
    pub(crate) cache: DiskCache,
    pub(super) admissions: Admissions,
    pub(in crate::cache) readers: Readers,
    pub(super) device_queue_bytes_max: u64,
    /// The longest time that the response to an unsafe method waits until its invalidation is durable.
    pub(crate) invalidation_wait_max: Duration,
    /// Keys that are being promoted to memory. At most one response promotes a key at a time.
    pub(in crate::cache) promoting: KeySet,
    /// Keys that are being written to disk. Only one fetch writes a key at a time.
    pub(in crate::cache) writing: KeySet,
    /// The memory tier, which also tracks the versions of keys for both tiers.
    pub(super) hot: Arc<Hot>,
    /// True if requests begin no more reads, because another process gets the store.
    pub(super) retiring: AtomicBool,
}

/// Resolves when a removal is durable, or with the error of the device.
pub(crate) type Durable = oneshot::Receiver<Result<(), SyncError>>;

impl DiskTier {
    /// Looks a key up without waiting for the device. Counts the lookup if it finds no readable entry.
    pub(crate) fn lookup(&self, hash: KeyHash, key: &[u8], counters: &Counters) -> DiskEntry {
        let is_retiring = self.retiring.load(Ordering::Relaxed);
        let Some(candidate) = self.cache.lookup(hash).filter(|_| !is_retiring) else {
            counters.disk_absent.increment();
            return DiskEntry::Absent;
        };
        let read = match self.cache.read_head_now(&candidate, key) {
            NonBlockingRead::Ready(object) => {
                parse(key, object, |object| self.version_of(hash, object))
            }
            NonBlockingRead::WouldBlock => return DiskEntry::Pending(candidate),
            NonBlockingRead::Miss(_) => None,
        };
        read.unwrap_or_else(|| unreadable(counters))
    }

    /// Reads the head of a [`DiskEntry::Pending`] candidate on a read thread.
    pub(crate) async fn wait(
        &self,
        candidate: Candidate,
        hash: KeyHash,
        key: &[u8],
        counters: &Counters,
    ) -> DiskEntry {
        let (cache, hot) = (self.cache.clone(), Arc::clone(&self.hot));
        let owned: Box<[u8]> = key.into();
        let queued = self.readers.queue_optional(move || {
            let object = cache.read_head(&candidate, &owned).ok()?;
            let version_of = |object: &DiskObject| version_of(&cache, &hot, hash, object);
            parse(&owned, object, version_of)
        });
        let Ok(read) = queued else {
            counters.disk_busy.increment();
            return DiskEntry::Absent;
        };
        counters.disk_waited_heads.increment();
        let read = read.await.ok().flatten();
        read.unwrap_or_else(|| unreadable(counters))
    }

    /// Reads the entry of a key. Waits for the device, and counts neither a lookup nor a hit.
    pub(crate) fn peek(&self, hash: KeyHash, key: &[u8]) -> DiskEntry {
        let object = self.cache.lookup(hash);
        let object = object.and_then(|candidate| self.cache.peek_head(&candidate, key).ok());
        let version_of = |object: &DiskObject| self.version_of(hash, object);
        let entry = object.and_then(|object| parse(key, object, version_of));
        entry.unwrap_or(DiskEntry::Absent)
    }

    /// Reads the entry of a candidate. Waits for the device.
    pub(in crate::cache) fn read(
        &self,
        candidate: Candidate,
        hash: KeyHash,
        key: &[u8],
    ) -> DiskEntry {
        let object = self.cache.read_head(&candidate, key).ok();
        let version_of = |object: &DiskObject| self.version_of(hash, object);
        let entry = object.and_then(|object| parse(key, object, version_of));
        entry.unwrap_or(DiskEntry::Absent)
    }

    /// Returns true if the disk has an object with this hash. The object may belong to another key.
    pub(crate) fn contains(&self, hash: KeyHash) -> bool {
        self.cache.lookup(hash).is_some()
    }

    /// Records a request that neither tier could answer. Returns true if its response is to be written to disk: because
    /// a rule or admission demands it, or because it replaces an older response. Admission counts an unknown `length`
    /// as 0.
    pub(crate) fn admits(
        &self,
        placement: DiskPlacement,
        hash: KeyHash,
        key: &[u8],
        length: Option<u64>,
        counters: &Counters,
    ) -> bool {
        match placement {
            DiskPlacement::Normal => {
                self.counts(hash, key, length, counters) || self.contains(hash)
            }
            DiskPlacement::Never => {
                counters.disk_refused_rule.increment();
                false
            }
            DiskPlacement::FirstRequest => {
                counters.disk_admitted.increment();
                true
            }
        }
    }

    /// Records a request in the history of admission. Returns true if admission writes the response.
    fn counts(&self, hash: KeyHash, key: &[u8], length: Option<u64>, counters: &Counters) -> bool {
        let object = Object {
            key: self.admission_hash(hash, key),
            size_bytes: length.unwrap_or(0),
        };
        match self.admissions.rule_for(key).miss(&object).disk {
            DiskVerdict::Write => {
                counters.disk_admitted.increment();
                true
            }
            DiskVerdict::Reject(DiskRejectReason::TooLarge) => {
                counters.disk_refused_size.increment();
                false
            }
            DiskVerdict::Reject(_) => {
                counters.disk_refused_requests.increment();
                false
            }
        }
    }

    /// Records a request that the disk answered. Returns true if the object is to be offered to the memory tier.
    pub(crate) fn hit(&self, hash: KeyHash, length: u64) -> bool {
        let object = Object {
            key: hash,
            size_bytes: length,
        };
        self.admissions
            .default_rule()
            .disk_hit(&object)
            .offer_to_ram
    }

    /// Records a follower's request in the history of admission. `secondary` is its secondary key, if any.
    pub(crate) fn record_follower(&self, primary: &[u8], secondary: Option<&[u8]>) {
        let mut key = primary.to_vec();
        if let Some(secondary) = secondary {
            key.push(b'\n');
            key.extend_from_slice(secondary);
        }
        let hash = hash_key(&key, self.cache.key_seed());
        self.admissions.rule_for(primary).admission().record(hash);
    }

    /// Returns the hash by which admission counts the requests for a key. For a variant it omits the marker's
    /// generation: a new marker has a new generation, and admission must still recognise the variant.
    fn admission_hash(&self, hash: KeyHash, key: &[u8]) -> KeyHash {
        match stable_key(key) {
            Some(stable) => hash_key(&stable, self.cache.key_seed()),
            None => hash,
        }
    }

    /// Returns the current version of a key if `object` is the current object of the key on disk.
    pub(crate) fn version_of(&self, hash: KeyHash, object: &DiskObject) -> Option<Version> {
        version_of(&self.cache, &self.hot, hash, object)
    }

    /// Writes an object that memory evicted, if admission accepts the object or has accepted it before. `version` is
    /// the key's version at the eviction. Returns true if the object was written.
    pub(crate) fn take_evicted(
        &self,
        evicted: &Evicted,
        version: Version,
        stored: &Stored,
        response: &StoredResponse,
    ) -> bool {
        let key = stored.key();
        let StoredBody::Memory(body) = &response.body else {
            return false;
        };
        let hash = evicted.object.key;
        let length = body.len() as u64;
        let on_disk = || self.contains(hash) || self.writing.contains(hash);
        let is_admitted = if matches!(response.disk_plan, DiskPlan::Never | DiskPlan::Copy { .. }) {
            false
        } else if response.disk_plan == DiskPlan::Queued {
            !on_disk() // Admission has counted the request of the fetch.
        } else {
            let rules = self.admissions.rule_for(key);
            let mut candidate = *evicted;
            candidate.object.key = self.admission_hash(hash, key);
            rules.evicted_from_ram(&candidate, length, on_disk) == DiskVerdict::Write
        };
        if !is_admitted {
            return false;
        }
        self.write(
            hash,
            version,
            stored,
            response,
            std::iter::once(body.clone()),
        )
    }

    /// Writes an object of memory, whose body is in `pieces`. `version` is the key's version at the eviction. Returns
    /// true if the object was written.
    pub(in crate::cache) fn write(
        &self,
        hash: KeyHash,
        version: Version,
        stored: &Stored,
        response: &StoredResponse,
        mut pieces: impl Iterator<Item = Bytes>,
    ) -> bool {
        let head = head::write_block(response, stored.stamp());
        let Some(_claim) = self.writing.claim(hash) else {
            return false;
        };
        let length = response.body.len();
        let Ok(mut write) = self.cache.begin(hash, stored.key(), head, Some(length)) else {
            return false;
        };
        // A purge from now on stops the write. The version shows if the key was purged earlier.
        self.hot.is_current(version)
            && pieces.all(|piece| write.push(piece).is_ok())
            && write.finish().is_ok()
    }

    /// Returns the size of the pieces for [`write`](Self::write) with which the queue of a device never overflows.
    pub(in crate::cache) fn piece_bytes(&self) -> usize {
        let quarter = self.device_queue_bytes_max / 4;
        usize::try_from(quarter).map_or(PIECE_BYTES_MAX, |bytes| bytes.clamp(1, PIECE_BYTES_MAX))
    }

    /// Returns false if the rule for the host of the key is to write no response.
    pub(in crate::cache) fn stores_host_of(&self, key: &[u8]) -> bool {
        self.admissions.spec_for(key) != DiskAdmissionSpec::Never
    }

    /// Removes a key's object, and stops a write of the key.
    pub(crate) fn remove(&self, hash: KeyHash, key: &[u8]) {
        if self.cache.may_hold(hash) {
            self.cache.purge(hash, key);
        }
    }

    /// Removes a key's object. Returns true if there was one, and a receiver that resolves when the removal is durable.
    pub(crate) fn purge(&self, hash: KeyHash, key: &[u8]) -> (bool, Durable) {
        let was_on_disk = self.contains(hash);
        let (sender, durable) = oneshot::channel();
        self.cache.purge_then(hash, key, move |result| {
            // The client may have disconnected.
            _ = sender.send(result);
        });
        (was_on_disk, durable)
    }

    /// Writes a marker unless the disk has it. `version` is a version of the primary key at which the marker was
    /// current. Returns true if the disk now has the marker.
    pub(crate) fn put_marker(
        &self,
        hash: KeyHash,
        key: &[u8],
        variants: &Variants,
        version: Version,
    ) -> bool {
        if variants.on_disk.load(Ordering::Relaxed) && self.contains(hash) {
            return true;
        }
        let Some(_claim) = self.writing.claim(hash) else {
            return false;
        };
        let head = match &variants.selector {
            Selector::Fields(fields) => head::write_varies(fields, variants.generation),
            Selector::Query(rule) => head::write_path_rule(rule, variants.generation),
        };
        let Ok(write) = self.cache.begin(hash, key, head, Some(0)) else {
            return false;
        };
        // A purge from now on stops the write. The version shows if the key was purged earlier.
        let written = self.hot.is_current(version) && write.finish().is_ok();
        variants.on_disk.fetch_or(written, Ordering::Relaxed);
        written
    }

    /// Writes the entry of a sliced response unless the disk has it. `version` is a version of its key at which the
    /// entry was current. Returns true if the disk now has the entry.
    pub(crate) fn put_sliced(
        &self,
        hash: KeyHash,
        stored: &Stored,
        slices: &Slices,
        version: Version,
    ) -> bool {
        if slices.on_disk.load(Ordering::Relaxed) && self.contains(hash) {
            return true;
        }
        let Some(_claim) = self.writing.claim(hash) else {
            return false;
        };
        let head = head::write_block(stored.response(), stored.stamp());
        let Ok(write) = self.cache.begin(hash, stored.key(), head, Some(0)) else {
            return false;
        };
        // A purge from now on stops the write. The version shows if the key was purged earlier.
        let written = self.hot.is_current(version) && write.finish().is_ok();
        slices.on_disk.fetch_or(written, Ordering::Relaxed);
        written
    }

    /// Replaces the head of an object on disk after a 304 has freshened the response. If the write fails, the old head
    /// stays, and the next request makes the origin validate the response again.
    pub(crate) fn freshen(&self, object: &DiskObject, key: &[u8], stored: &Stored) {
        let head = head::write_block(stored.response(), stored.stamp());
        // The store counts the error.
        _ = self.cache.update_head(object, key, head);
    }

    /// Like [`freshen`](Self::freshen), for a response in memory that may have a copy on disk. Only a copy of `old`,
    /// the validated response, gets the new head, because the disk may have a newer object of the same length.
    pub(crate) fn freshen_copy(&self, hash: KeyHash, key: &[u8], old: &Stored, stored: &Stored) {
        let Some(candidate) = self.cache.lookup(hash) else {
            return;
        };
        let validated = head::write_block(old.response(), old.stamp());
        let head = head::write_block(stored.response(), stored.stamp());
        let cache = self.cache.clone();
        let key: Box<[u8]> = key.into();
        let length = stored.response().body.own_bytes();
        let work = move || -> Result<(), WriteError> {
            match cache.read_head(&candidate, &key) {
                Ok(object)
                    if object.length() == length
                        && head::is_same_response(object.head(), &validated) =>
                {
                    cache.update_head(&object, &key, head)
                }
                Ok(_) | Err(_) => Err(WriteError::Gone),
            }
        };
        // A task keeps the receiver, because a dropped receiver would cancel the work.
        if let Ok(receiver) = self.readers.queue_optional(work) {
            tokio::task::spawn_local(async move {
                _ = receiver.await;
            });
        }
    }

    /// Returns the memory that the tier uses.
    pub(crate) fn memory_bytes(&self) -> TierMemory {
        let counters = self.cache.counters();
        TierMemory {
            index: counters.devices.iter().map(|d| d.index_bytes).sum(),
            verified: counters.devices.iter().map(|d| d.verified_bytes).sum(),
            admission: self.admissions.memory_bytes(),
            queues_max: self.device_queue_bytes_max * counters.devices.len() as u64,
        }
    }
}

/// The memory that the tier uses, in bytes. `queues_max` is the limit of the write queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierMemory {
    pub(crate) index: u64,
    pub(crate) verified: u64, // tables of verified blocks, of blocks in the page cache, and of cached metadata
    pub(crate) admission: u64,
    pub(crate) queues_max: u64,
}

/// The largest piece of a body that [`DiskTier::write`] gets, if the queue of a device is large enough.
const PIECE_BYTES_MAX: usize = 1 << 20;

fn unreadable(counters: &Counters) -> DiskEntry {
    counters.disk_unreadable.increment();
    DiskEntry::Absent
}

fn version_of(cache: &DiskCache, hot: &Hot, hash: KeyHash, object: &DiskObject) -> Option<Version> {
    // The version is read first. If the object is still current after that, it was current at this version.
    let version = hot.settled_version(hash)?; // `None` while a change of the key is not on disk yet
    cache.is_current(object).then_some(version)
}
