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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use edgeward_policy::disk_admission::{DiskRefusal, DiskVerdict};
use edgeward_policy::{Evicted, Object};
use edgeward_store::disk::{Candidate, DiskCache, DiskObject, Dropped, Now, SyncError};
use edgeward_types::KeyHash;
use http::HeaderMap;
use tokio::sync::oneshot;

use crate::base::counters::Counters;
use crate::cache::key::hash_key;
use crate::cache::stored::{
    OnDisk, Stored, StoredBody, StoredKind, StoredResponse, Variants, stable_key,
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
    /// Grow with every key of their share that is forgotten or replaced: what was read before must not outlive it in
    /// RAM.
    changes: Box<[AtomicU64]>,
    /// Keys forgotten, ever.
    forgotten: AtomicU64,
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
            counters.disk_absent.one();
            return DiskEntry::Absent;
        };
        match self.cache.read_head_now(&candidate, key) {
            Now::Ready(object) => DiskEntry::Found(object),
            Now::WouldBlock => DiskEntry::Waits(candidate),
            Now::Miss(_) => {
                counters.disk_unreadable.one();
                DiskEntry::Absent
            }
        }
    }

    /// The value that an object's head describes. `changes` is from before the object was looked up.
    pub(crate) fn parse(
        &self,
        key: &[u8],
        object: DiskObject,
        changes: u64,
        counters: &Counters,
    ) -> Option<Arc<Stored>> {
        let stored = stored(key, object, changes);
        if stored.is_none() {
            counters.disk_unreadable.one();
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
        let changes = self.changes(hash);
        let cache = self.cache.clone();
        let owned: Box<[u8]> = key.into();
        let asked = self.readers.ask(move || {
            let object = cache.read_head(&candidate, &owned).ok()?;
            stored(&owned, object, changes)
        });
        let Ok(answer) = asked else {
            counters.disk_busy.one();
            return None;
        };
        counters.disk_waited_heads.one();
        let found = answer.await.ok().flatten();
        if found.is_none() {
            counters.disk_unreadable.one();
        }
        found
    }

    /// Whether something lies under the hash, most likely this key's.
    pub(crate) fn holds(&self, hash: KeyHash) -> bool {
        self.cache.lookup(hash).is_some()
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
                counters.disk_admitted.one();
                true
            }
            DiskVerdict::Refuse(DiskRefusal::TooLarge) => {
                counters.disk_refused_size.one();
                false
            }
            DiskVerdict::Refuse(_) => {
                counters.disk_refused_requests.one();
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

    /// Number of the last change to a key (or to others that share its count); see [`changed`](Self::changed).
    pub(crate) fn changes(&self, hash: KeyHash) -> u64 {
        self.count_of(hash).load(Ordering::SeqCst)
    }

    /// What was read of a key before is no longer sure to be what is stored.
    pub(crate) fn changed(&self, hash: KeyHash) {
        self.count_of(hash).fetch_add(1, Ordering::SeqCst);
    }

    fn count_of(&self, hash: KeyHash) -> &AtomicU64 {
        let share = hash.0 % CHANGES_SHARES;
        &self.changes[usize::try_from(share).expect("below the number of shares")]
    }

    /// How many keys were forgotten so far; see [`take_evicted`](Self::take_evicted).
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// An object left RAM to make room: writes it if the rules say so. True if it did.
    ///
    /// `forgotten` was asked for before the object left. Who forgets a key takes it out of RAM first, then counts,
    /// then takes it off the disk: whatever of it came into a write meanwhile is stopped by one of the two.
    pub(crate) fn take_evicted(
        &self,
        evicted: &Evicted,
        key: &[u8],
        response: &StoredResponse,
        forgotten: u64,
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
        let Ok(mut write) = self.cache.begin(hash, key, head, Some(length)) else {
            return false;
        };
        self.forgotten() == forgotten
            && (body.is_empty() || write.push(body.clone()).is_ok())
            && write.finish().is_ok()
    }

    /// Forgets a key. True if there was something under it.
    pub(crate) fn forget(&self, hash: KeyHash, key: &[u8]) -> bool {
        let held = self.holds(hash);
        self.changed(hash);
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        // Also where nothing is found: it may be on its way.
        self.cache.purge(hash, key);
        held
    }

    /// As [`forget`](Self::forget), and the answer comes when that outlives a kill and a crash.
    pub(crate) fn forget_durably(&self, hash: KeyHash, key: &[u8]) -> (bool, Durable) {
        let held = self.holds(hash);
        self.changed(hash);
        self.forgotten.fetch_add(1, Ordering::SeqCst);
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

    /// Puts down by which fields a URI varies, unless that is there already. `changes` is from before the caller saw `variants`: if
    /// the key was invalidated since, its generation is over and must not come back.
    pub(crate) fn put_marker(&self, hash: KeyHash, key: &[u8], variants: &Variants, changes: u64) {
        if variants.on_disk.load(Ordering::Relaxed) && self.holds(hash) {
            return;
        }
        let head = head::write_varies(&variants.fields, variants.generation);
        let write = self.cache.begin(hash, key, head, Some(0));
        // A write that has begun is stopped by a purge from here on.
        if self.changes(hash) != changes {
            return;
        }
        self.changed(hash);
        let written = write
            .map_err(|_| ())
            .and_then(|write| write.finish().map_err(|_| ()));
        match written {
            Ok(()) => variants.on_disk.store(true, Ordering::Relaxed),
            // What lies there says something else.
            Err(()) => self.cache.purge(hash, key),
        }
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

/// RAM of the tier by use, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierMemory {
    pub(crate) index: u64,
    pub(crate) verified: u64,
    pub(crate) admission: u64,
    pub(crate) queues_max: u64,
}

/// What an object on disk is to this crate. Nothing if its head cannot be read.
fn stored(key: &[u8], object: DiskObject, changes: u64) -> Option<Arc<Stored>> {
    let kind = match head::parse(object.head()) {
        Ok(DiskHead::Response {
            status,
            policy,
            fields,
        }) => StoredKind::Response(StoredResponse {
            policy,
            status,
            head: head::block(status, &fields, object.length()),
            body: StoredBody::Disk(OnDisk { object, changes }),
        }),
        Ok(DiskHead::Varies { fields, generation }) => StoredKind::Varies(Box::new(Variants {
            fields,
            generation,
            on_disk: AtomicBool::new(true),
            hold: OnceLock::new(),
        })),
        Err(error) => {
            tracing::debug!(%error, "a head on disk cannot be used");
            return None;
        }
    };
    Some(Stored::new(key, kind))
}

/// The head of a response for the disk.
pub(crate) fn head_of(
    status: http::StatusCode,
    policy: &edgeward_semantics::StoredPolicy,
    head: &HeaderMap,
) -> Bytes {
    head::write_response(status, policy, head)
}

/// Counts of changes: so many that promotions are seldom given up for another key's sake; 32 KiB.
const CHANGES_SHARES: u64 = 4096;
