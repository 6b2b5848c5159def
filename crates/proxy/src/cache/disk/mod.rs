//! The disk tier as requests see it: what is looked up, what is written, and who waits for the device.
//!
//! A request that memory cannot answer asks the index (no I/O), then reads the head, at first without waiting: what
//! lies in the page cache is answered on the worker's own thread. Only what has to be waited for goes to
//! one of the [`readers`]. A [body](crate::cache::disk_body) is read as the client takes it. What is worth writing is for
//! `edgeward_policy::hierarchy` to say; a [`fill`] hands the pieces of a response over as they arrive and never waits.
//!
//! Whatever the disk fails to do is a miss.

pub(crate) mod admission;
pub(crate) mod fill;
pub mod head;
mod life;
mod memory;
mod readers;
mod report;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use edgeward_policy::disk_admission::{DiskRefusal, DiskVerdict};
use edgeward_policy::{Evicted, Object};
use edgeward_store::disk::{Candidate, DiskCache, DiskObject, Dropped, Now, SyncError};
use edgeward_store::versions::Version;
use edgeward_types::KeyHash;
use http::HeaderMap;
use tokio::sync::oneshot;

use crate::base::counters::Counters;
use crate::cache::key::hash_key;
use crate::cache::stored::{
    Hot, Stored, StoredBody, StoredKind, StoredResponse, Variants, stable_key,
};
use admission::Admissions;
use head::DiskHead;
pub use life::DiskError;
use readers::Readers;

/// The disk cache with what decides about it and who waits for it.
#[derive(Debug)]
pub(crate) struct DiskTier {
    pub(crate) cache: DiskCache,
    admissions: Admissions,
    readers: Readers,
    queue_bytes_max: u64,
    invalidation_wait_max: Duration,
    /// Keys on their way from disk to RAM: one reader brings them there, not each.
    promoting: KeySet,
    /// Keys on their way to disk: of those who fetch the same at once, one writes.
    writing: KeySet,
    /// Knows the versions of keys.
    hot: Arc<Hot>,
}

/// Tells when an invalidation is durable, or that it is not.
pub(crate) type Durable = oneshot::Receiver<Result<(), SyncError>>;

/// What the disk has under a key, as far as is known without waiting.
pub(crate) enum DiskEntry {
    Absent,
    /// The object's head was not parsed.
    Found(DiskObject),
    /// The device has to be waited for.
    Waits(Candidate),
}

impl DiskTier {
    /// Looks a key up without waiting for the device.
    pub(crate) fn lookup(&self, hash: KeyHash, key: &[u8], counters: &Counters) -> DiskEntry {
        let Some(candidate) = self.cache.lookup(hash) else {
            counters.disk_absent.increment();
            return DiskEntry::Absent;
        };
        match self.cache.read_head_now(&candidate, key) {
            Now::Ready(object) => DiskEntry::Found(object),
            Now::WouldBlock => DiskEntry::Waits(candidate),
            Now::Miss(_) => {
                counters.disk_unreadable.increment();
                DiskEntry::Absent
            }
        }
    }

    /// The value that an object's head describes.
    pub(crate) fn parse(
        &self,
        hash: KeyHash,
        key: &[u8],
        object: DiskObject,
        counters: &Counters,
    ) -> Option<Arc<Stored>> {
        let stored = stored(key, object, |object| self.version_of(hash, object));
        if stored.is_none() {
            counters.disk_unreadable.increment();
        }
        stored
    }

    /// Reads the head of a candidate that has to be waited for.
    pub(crate) async fn wait(
        &self,
        candidate: Candidate,
        hash: KeyHash,
        key: &[u8],
        counters: &Counters,
    ) -> Option<Arc<Stored>> {
        let (cache, hot) = (self.cache.clone(), Arc::clone(&self.hot));
        let owned: Box<[u8]> = key.into();
        let asked = self.readers.ask(move || {
            let object = cache.read_head(&candidate, &owned).ok()?;
            stored(&owned, object, |object| {
                version_of(&cache, &hot, hash, object)
            })
        });
        let Ok(answer) = asked else {
            counters.disk_busy.increment();
            return None;
        };
        counters.disk_waited_heads.increment();
        let found = answer.await.ok().flatten();
        if found.is_none() {
            counters.disk_unreadable.increment();
        }
        found
    }

    /// Whether something lies under the hash, most likely this key's.
    pub(crate) fn holds(&self, hash: KeyHash) -> bool {
        self.cache.lookup(hash).is_some()
    }

    /// Returns true if a fetch is writing the key.
    pub(in crate::cache) fn is_writing(&self, hash: KeyHash) -> bool {
        self.writing.contains(hash)
    }

    /// A request that neither tier could answer: whether its response of `length` bytes, or at least none, is written.
    pub(crate) fn admits(
        &self,
        hash: KeyHash,
        key: &[u8],
        length: Option<u64>,
        counters: &Counters,
    ) -> bool {
        let object = Object {
            key: self.admission_hash(hash, key),
            size_bytes: length.unwrap_or(0),
        };
        match self.admissions.of(key).miss(&object).disk {
            DiskVerdict::Write => {
                counters.disk_admitted.increment();
                true
            }
            DiskVerdict::Refuse(DiskRefusal::TooLarge) => {
                counters.disk_refused_size.increment();
                false
            }
            DiskVerdict::Refuse(_) => {
                counters.disk_refused_requests.increment();
                false
            }
        }
    }

    /// A request that the disk answered. Whether the object is to be offered to RAM.
    pub(crate) fn hit(&self, hash: KeyHash, length: u64) -> bool {
        let object = Object {
            key: hash,
            size_bytes: length,
        };
        self.admissions.usual().disk_hit(&object).offer_to_ram
    }

    /// One more request for what is being fetched, with its secondary key if the response varies.
    pub(crate) fn note(&self, primary: &[u8], secondary: Option<&[u8]>) {
        let mut key = primary.to_vec();
        if let Some(secondary) = secondary {
            key.push(b'\n');
            key.extend_from_slice(secondary);
        }
        let hash = hash_key(&key, self.cache.key_seed());
        self.admissions.of(primary).admission().note(hash);
    }

    /// What admission counts the requests for a key under. A variant's key holds a generation that is new whenever the list of
    /// fields the URL varies by was not stored, so admission would never see the key again; its hash leaves the generation out.
    fn admission_hash(&self, hash: KeyHash, key: &[u8]) -> KeyHash {
        match stable_key(key) {
            Some(stable) => hash_key(&stable, self.cache.key_seed()),
            None => hash,
        }
    }

    /// The version of a key, if `object` is what the disk has under it at this version.
    pub(crate) fn version_of(&self, hash: KeyHash, object: &DiskObject) -> Option<Version> {
        version_of(&self.cache, &self.hot, hash, object)
    }

    /// An object left RAM to make room, at the version `seen`: writes it if the rules say so. True if it did.
    pub(crate) fn take_evicted(
        &self,
        evicted: &Evicted,
        seen: Version,
        key: &[u8],
        response: &StoredResponse,
    ) -> bool {
        let StoredBody::Memory(body) = &response.body else {
            return false;
        };
        let hash = evicted.object.key;
        let length = body.len() as u64;
        let on_disk = || self.holds(hash) || self.writing.contains(hash);
        let rules = self.admissions.of(key);
        let mut asked = *evicted;
        asked.object.key = self.admission_hash(hash, key);
        if rules.evicted_from_ram(&asked, length, on_disk) != DiskVerdict::Write {
            return false;
        }
        let head = head::write_block(response.status, &response.policy, &response.head);
        let Some(_claim) = self.writing.claim(hash) else {
            return false;
        };
        let Ok(mut write) = self.cache.begin(hash, key, head, Some(length)) else {
            return false;
        };
        // A write that has begun is stopped by a purge from here on.
        self.hot.is_current(seen)
            && (body.is_empty() || write.push(body.clone()).is_ok())
            && write.finish().is_ok()
    }

    /// Takes a key off the disk, if something is there or on its way there.
    pub(crate) fn remove(&self, hash: KeyHash, key: &[u8]) {
        if self.cache.may_hold(hash) {
            self.cache.purge(hash, key);
        }
    }

    /// Takes a key off the disk. True if there was something under it; the answer comes when the purge outlives a kill and a crash.
    pub(crate) fn purge(&self, hash: KeyHash, key: &[u8]) -> (bool, Durable) {
        let held = self.holds(hash);
        let (told, durable) = oneshot::channel();
        self.cache.purge_then(hash, key, move |result| {
            // The client may have left.
            _ = told.send(result);
        });
        (held, durable)
    }

    /// Longest a response waits for an invalidation to become durable.
    pub(crate) fn invalidation_wait_max(&self) -> Duration {
        self.invalidation_wait_max
    }

    /// Writes by which fields a URL varies, unless that is there already. `seen` is the URL's version at which `variants` were current.
    /// False if the disk does not have them.
    pub(crate) fn put_marker(
        &self,
        hash: KeyHash,
        key: &[u8],
        variants: &Variants,
        seen: Version,
    ) -> bool {
        if variants.on_disk.load(Ordering::Relaxed) && self.holds(hash) {
            return true;
        }
        let Some(_claim) = self.writing.claim(hash) else {
            return false;
        };
        let head = head::write_varies(&variants.fields, variants.generation);
        let Ok(write) = self.cache.begin(hash, key, head, Some(0)) else {
            return false;
        };
        // A write that has begun is stopped by a purge from here on.
        let written = self.hot.is_current(seen) && write.finish().is_ok();
        variants.on_disk.fetch_or(written, Ordering::Relaxed);
        written
    }

    /// Gives what is on disk the head that a 304 made. Best effort: the old one only means to ask again.
    pub(crate) fn freshen(&self, object: &DiskObject, key: &[u8], response: &StoredResponse) {
        let head = head::write_block(response.status, &response.policy, &response.head);
        // Dropped and counted by the store.
        _ = self.cache.update_head(object, key, head);
    }

    /// The same where the response was found in RAM: the disk may hold a copy. Only a copy of `old`, the response that was
    /// validated, gets the new head; the disk may hold a newer object of the same length by now.
    pub(crate) fn freshen_copy(
        &self,
        hash: KeyHash,
        key: &[u8],
        old: &StoredResponse,
        response: &StoredResponse,
    ) {
        let Some(candidate) = self.cache.lookup(hash) else {
            return;
        };
        let validated = head::write_block(old.status, &old.policy, &old.head);
        let head = head::write_block(response.status, &response.policy, &response.head);
        let cache = self.cache.clone();
        let key: Box<[u8]> = key.into();
        let length = response.body.len();
        let work = move || -> Result<(), Dropped> {
            match cache.read_head(&candidate, &key) {
                Ok(object) if object.length() == length && *object.head() == validated => {
                    cache.update_head(&object, &key, head)
                }
                Ok(_) | Err(_) => Err(Dropped::Gone),
            }
        };
        // Nobody waits for the answer, so the receiver must not tell the reader that its asker has left.
        if let Ok(answer) = self.readers.ask(work) {
            tokio::task::spawn_local(async move {
                _ = answer.await;
            });
        }
    }

    /// Claims the way of a key from disk to RAM. False if another reader has it.
    pub(in crate::cache) fn begin_promotion(&self, hash: KeyHash) -> bool {
        self.promoting.insert(hash)
    }

    pub(in crate::cache) fn end_promotion(&self, hash: KeyHash) {
        self.promoting.remove(hash);
    }

    /// What the tier takes of the process's memory.
    pub(crate) fn memory_bytes(&self) -> TierMemory {
        let counters = self.cache.counters();
        TierMemory {
            index: counters.devices.iter().map(|d| d.index_bytes).sum(),
            verified: counters.devices.iter().map(|d| d.verified_bytes).sum(),
            admission: self.admissions.memory_bytes(),
            queues_max: self.queue_bytes_max * counters.devices.len() as u64,
        }
    }

    pub(in crate::cache) fn readers(&self) -> &Readers {
        &self.readers
    }
}

/// Keys something is being done with.
#[derive(Debug, Default)]
struct KeySet(Mutex<HashSet<KeyHash>>);

impl KeySet {
    /// False if it is there already.
    fn insert(&self, hash: KeyHash) -> bool {
        self.lock().insert(hash)
    }

    /// The key is in the set for as long as the claim lives. None if it is there already.
    fn claim(&self, hash: KeyHash) -> Option<Claim<'_>> {
        self.insert(hash).then_some(Claim { keys: self, hash })
    }

    fn contains(&self, hash: KeyHash) -> bool {
        self.lock().contains(&hash)
    }

    fn remove(&self, hash: KeyHash) {
        self.lock().remove(&hash);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<KeyHash>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key's place in a set.
struct Claim<'a> {
    keys: &'a KeySet,
    hash: KeyHash,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.keys.remove(self.hash);
    }
}

/// RAM of the tier by use, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierMemory {
    pub(crate) index: u64,
    pub(crate) verified: u64,
    pub(crate) admission: u64,
    pub(crate) queues_max: u64,
}

/// What an object on disk is to this crate. Nothing if its head cannot be read.
fn stored(
    key: &[u8],
    object: DiskObject,
    version_of: impl FnOnce(&DiskObject) -> Option<Version>,
) -> Option<Arc<Stored>> {
    let kind = match head::parse(object.head()) {
        Ok(DiskHead::Response {
            status,
            policy,
            fields,
        }) => StoredKind::Response(StoredResponse {
            policy,
            status,
            head: head::block(status, &fields, object.length()),
            body: StoredBody::Disk(object),
        }),
        Ok(DiskHead::Varies { fields, generation }) => StoredKind::Varies(Box::new(Variants {
            fields,
            generation,
            on_disk: AtomicBool::new(true),
            seen: version_of(&object),
            hold: OnceLock::new(),
        })),
        Err(error) => {
            tracing::debug!(%error, "a head on disk cannot be used");
            return None;
        }
    };
    Some(Stored::new(key, kind))
}

fn version_of(cache: &DiskCache, hot: &Hot, hash: KeyHash, object: &DiskObject) -> Option<Version> {
    // In this order: an object that is current now was so at the version.
    let seen = hot.settled_version(hash)?;
    cache.is_current(object).then_some(seen)
}

/// The head of a response for the disk.
pub(crate) fn head_of(
    status: http::StatusCode,
    policy: &edgeward_semantics::StoredPolicy,
    head: &HeaderMap,
) -> Bytes {
    head::write_response(status, policy, head)
}
