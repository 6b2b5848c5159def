//! Who is already asking the origin for what: one fetch a key, across all workers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edgeward_types::{KeyHash, Timestamp};

use crate::fill::{Fill, FillReader};

/// The fetches under way, by key. Misses only; hits never look here.
#[derive(Debug)]
pub(crate) struct Collapse {
    shards: Box<[Mutex<HashMap<KeyHash, Entry>>]>,
}

#[derive(Debug)]
struct Entry {
    key: Box<[u8]>,
    fill: Arc<Fill>,
}

/// The part a miss has to play.
pub(crate) enum Role {
    /// First to ask: fetch, and hold [`Lead`] until it is done.
    Leader(Lead, FillReader),
    /// Another asks already.
    Follower(FillReader),
    /// Another key of the same hash is being fetched, or this one is past sharing: ask alone.
    Alone,
}

impl Collapse {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        })
    }

    pub(crate) fn join(self: &Arc<Self>, hash: KeyHash, key: &[u8]) -> Role {
        let mut shard = self.shard(hash);
        if let Some(entry) = shard.get(&hash) {
            if *entry.key != *key {
                return Role::Alone;
            }
            return match entry.fill.join() {
                Some(reader) => Role::Follower(reader),
                None => Role::Alone,
            };
        }
        let fill = Fill::new();
        let reader = fill.join().expect("a new fill can be shared");
        shard.insert(
            hash,
            Entry {
                key: key.into(),
                fill: Arc::clone(&fill),
            },
        );
        let lead = Lead {
            collapse: Arc::clone(self),
            fill,
            keys: vec![hash],
        };
        Role::Leader(lead, reader)
    }

    /// A fetch nobody else may join.
    pub(crate) fn alone(self: &Arc<Self>) -> (Lead, FillReader) {
        let fill = Fill::new();
        let reader = fill.join().expect("a new fill can be shared");
        let lead = Lead {
            collapse: Arc::clone(self),
            fill,
            keys: Vec::new(),
        };
        (lead, reader)
    }

    /// What is being fetched under this key is out of date on arrival: who asks from now on starts
    /// anew, and it is not stored.
    pub(crate) fn doom(&self, hash: KeyHash, key: &[u8]) {
        let mut shard = self.shard(hash);
        if shard.get(&hash).is_some_and(|entry| *entry.key == *key)
            && let Some(entry) = shard.remove(&hash)
        {
            entry.fill.doom();
        }
    }

    /// Keys being fetched now.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|s| lock(s).len()).sum()
    }

    fn shard(&self, hash: KeyHash) -> MutexGuard<'_, HashMap<KeyHash, Entry>> {
        let index = usize::try_from(hash.0 % SHARDS as u64).expect("below the number of shards");
        lock(&self.shards[index])
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held; a map is whole after each of its operations.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The duty of the one who fetches. However it ends, nobody waits for it in vain.
#[derive(Debug)]
pub(crate) struct Lead {
    collapse: Arc<Collapse>,
    pub(crate) fill: Arc<Fill>,
    keys: Vec<KeyHash>,
}

impl Lead {
    /// Makes the fetch known under one more key: its variant's, once the response named one.
    pub(crate) fn also_known_as(&mut self, hash: KeyHash, key: &[u8]) {
        let mut shard = self.collapse.shard(hash);
        if let std::collections::hash_map::Entry::Vacant(vacant) = shard.entry(hash) {
            vacant.insert(Entry {
                key: key.into(),
                fill: Arc::clone(&self.fill),
            });
            self.keys.push(hash);
        }
    }

    /// From now on, whoever asks starts anew.
    pub(crate) fn close(&mut self) {
        for hash in self.keys.drain(..) {
            let mut shard = self.collapse.shard(hash);
            let ours = |entry: &Entry| Arc::ptr_eq(&entry.fill, &self.fill);
            if shard.get(&hash).is_some_and(ours) {
                shard.remove(&hash);
            }
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.close();
        // Does nothing to a fill that came to its end.
        self.fill.break_off();
    }
}

/// URIs whose last response could not be shared, so that requests for them do not queue behind
/// each other to find that out again.
///
/// A table without chains or locks: a newcomer overwrites whoever had its place. What is forgotten
/// costs one collapsed wait. A slot holds the hash's upper half and the second it expires.
#[derive(Debug)]
pub(crate) struct HitForMiss {
    slots: Box<[AtomicU64]>,
    keep: Duration,
}

impl HitForMiss {
    pub(crate) fn new(keep: Duration) -> Self {
        Self {
            slots: (0..HIT_FOR_MISS_SLOTS).map(|_| AtomicU64::new(0)).collect(),
            keep,
        }
    }

    pub(crate) fn mark(&self, hash: KeyHash, now: Timestamp) {
        // Seconds since 1970 fit 32 bits until 2106.
        let until = now.after(self.keep).as_secs() & 0xffff_ffff;
        let entry = (hash.0 & !0xffff_ffff) | until;
        self.slot(hash).store(entry, Ordering::Relaxed);
    }

    pub(crate) fn contains(&self, hash: KeyHash, now: Timestamp) -> bool {
        let entry = self.slot(hash).load(Ordering::Relaxed);
        (entry ^ hash.0) >> 32 == 0 && now.as_secs() < entry & 0xffff_ffff
    }

    pub(crate) fn clear(&self, hash: KeyHash) {
        if (self.slot(hash).load(Ordering::Relaxed) ^ hash.0) >> 32 == 0 {
            self.slot(hash).store(0, Ordering::Relaxed);
        }
    }

    fn slot(&self, hash: KeyHash) -> &AtomicU64 {
        let index = hash.0 % HIT_FOR_MISS_SLOTS as u64;
        &self.slots[usize::try_from(index).expect("below the number of slots")]
    }
}

/// Enough that workers seldom meet; only misses come here.
const SHARDS: usize = 64;

/// 512 KiB for the uncacheable URIs of the last minutes.
const HIT_FOR_MISS_SLOTS: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_key_is_known_until_it_expires() {
        let marks = HitForMiss::new(Duration::from_secs(10));
        let now = Timestamp::from_secs(1_700_000_000);
        let key = KeyHash(0x1234_5678_9abc_def0);
        assert!(!marks.contains(key, now));
        marks.mark(key, now);
        assert!(marks.contains(key, Timestamp::from_secs(1_700_000_009)));
        assert!(!marks.contains(key, Timestamp::from_secs(1_700_000_010)));
        assert!(!marks.contains(KeyHash(key.0 ^ (1 << 40)), now));
        marks.clear(key);
        assert!(!marks.contains(key, now));
    }

    #[test]
    fn a_key_has_one_leader_until_it_is_closed() {
        let collapse = Collapse::new();
        let Role::Leader(mut lead, _reader) = collapse.join(KeyHash(1), b"a") else {
            panic!("the first leads");
        };
        assert!(matches!(collapse.join(KeyHash(1), b"a"), Role::Follower(_)));
        assert!(matches!(collapse.join(KeyHash(1), b"b"), Role::Alone));
        lead.also_known_as(KeyHash(2), b"a2");
        assert!(matches!(
            collapse.join(KeyHash(2), b"a2"),
            Role::Follower(_)
        ));
        lead.close();
        assert_eq!(collapse.len(), 0);
        assert!(matches!(collapse.join(KeyHash(1), b"a"), Role::Leader(..)));
    }
}
