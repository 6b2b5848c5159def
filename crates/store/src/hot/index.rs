//! Maps a key to its value, in a hash table that is divided into shards. A hit takes the shared lock of one shard.

use std::sync::Arc;

use edgeward_policy::Slot;
use edgeward_types::KeyHash;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::sync::RwLock;

/// The objects in memory: for each key, its value, and its slot in the policy that decides on evictions.
#[derive(Debug)]
pub(super) struct Index<V> {
    shards: Box<[Shard<V>]>,
}

impl<V> Index<V> {
    #[inline]
    pub(super) fn find(&self, key: KeyHash) -> Option<(Slot, Arc<V>)> {
        let shard = self.shard(key).read();
        let resident = shard.find(rehash(key), |resident| resident.key == key)?;
        Some((resident.slot, Arc::clone(&resident.value)))
    }

    /// Calls `visit` with each value. No lock is held during the calls.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&V)) {
        for shard in &self.shards {
            let values: Vec<_> = shard
                .read()
                .iter()
                .map(|resident| Arc::clone(&resident.value))
                .collect();
            values.iter().for_each(|value| visit(value));
        }
    }

    pub(super) fn contains(&self, key: KeyHash) -> bool {
        let shard = self.shard(key).read();
        shard
            .find(rehash(key), |resident| resident.key == key)
            .is_some()
    }

    /// Stores a value under `key` and returns the value that it replaced.
    pub(super) fn insert(&self, key: KeyHash, slot: Slot, value: Arc<V>) -> Option<(Slot, Arc<V>)> {
        let resident = Resident { key, slot, value };
        let mut shard = self.shard(key).write();
        match shard.entry(
            rehash(key),
            |stored| stored.key == key,
            |stored| rehash(stored.key),
        ) {
            Entry::Occupied(mut stored) => {
                let before = std::mem::replace(stored.get_mut(), resident);
                Some((before.slot, before.value))
            }
            Entry::Vacant(vacant) => {
                vacant.insert(resident);
                None
            }
        }
    }

    /// Replaces the value under `key` in the same slot, if the current value is `before`. Otherwise returns false.
    pub(super) fn swap(&self, key: KeyHash, before: &Arc<V>, value: Arc<V>) -> bool {
        let mut shard = self.shard(key).write();
        let stored = shard.find_mut(rehash(key), |resident| {
            resident.key == key && Arc::ptr_eq(&resident.value, before)
        });
        let Some(resident) = stored else {
            return false;
        };
        let before = std::mem::replace(&mut resident.value, value);
        drop(shard);
        drop(before);
        true
    }

    /// Removes the value under `key`. If `slot` is given, removes it only from this slot.
    pub(super) fn remove(&self, key: KeyHash, slot: Option<Slot>) -> Option<(Slot, Arc<V>)> {
        let mut shard = self.shard(key).write();
        let entry = shard
            .find_entry(rehash(key), |stored| {
                stored.key == key && slot.is_none_or(|slot| stored.slot == slot)
            })
            .ok()?;
        let (resident, _) = entry.remove();
        Some((resident.slot, resident.value))
    }

    #[inline]
    fn shard(&self, key: KeyHash) -> &Shard<V> {
        // The hash table uses the low bits for the bucket and the top 7 bits for its tag. The shard number uses
        // bits between these.
        &self.shards[(rehash(key) >> 40) as usize % SHARDS]
    }
}

impl<V> Default for Index<V> {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| RwLock::default().into()).collect(),
        }
    }
}

/// A shard, aligned so that it shares no cache line with another shard. Otherwise two cores that take the locks
/// of neighbouring shards would pass one cache line back and forth.
#[derive(Debug)]
#[repr(align(128))]
struct Shard<V>(RwLock<HashTable<Resident<V>>>);

impl<V> Shard<V> {
    #[inline]
    fn read(&self) -> crate::sync::RwLockReadGuard<'_, HashTable<Resident<V>>> {
        self.0.read()
    }

    fn write(&self) -> crate::sync::RwLockWriteGuard<'_, HashTable<Resident<V>>> {
        self.0.write()
    }
}

impl<V> From<RwLock<HashTable<Resident<V>>>> for Shard<V> {
    fn from(table: RwLock<HashTable<Resident<V>>>) -> Self {
        Self(table)
    }
}

/// The entry of an object in memory.
#[derive(Debug)]
struct Resident<V> {
    key: KeyHash,
    slot: Slot,
    value: Arc<V>,
}

/// Returns a hash of a key hash, by one multiplication. Key hashes in tests and in the simulator may be
/// consecutive numbers, which would fill the shards unevenly.
#[inline]
fn rehash(key: KeyHash) -> u64 {
    let wide = u128::from(key.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93_u128;
    (wide as u64) ^ ((wide >> 64) as u64)
}

/// The bytes of memory that an entry takes. A bucket has 24 bytes and a control byte. A table has a power of
/// two of buckets and takes about 28 bytes per bucket, because the allocator rounds up. hashbrown fills at most
/// 7/8 of the buckets. Under inserts and removals it doubles a table in which more than half of this number
/// (7/16) is used. Therefore 7/32 to 7/16 of the buckets are used, which is 64 to 128 bytes per entry. The mean
/// is 89 if all numbers of entries in this range are equally likely; it is rounded up.
pub(super) const ENTRY_BYTES: u64 = 96;

/// The number of shards. It is much larger than the number of cores, so that two workers rarely use one shard
/// at the same time. 256 shards of 128 bytes take 32 KiB.
const SHARDS: usize = 256;
