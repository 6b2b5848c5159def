//! Maps a key to its value, in a hash table that is divided into shards. A hit takes the shared lock of one shard.

use std::sync::Arc;

use edgeward_policy::{HitRecorder, Slot};
use edgeward_types::KeyHash;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::sync::RwLock;

/// The objects in memory: for each key, its value, and its slot in the policy that decides on evictions.
#[derive(Debug)]
pub(super) struct Index<V> {
    shards: Box<[PaddedShard<V>]>,
}

impl<V> Index<V> {
    /// Makes an empty index. `recorder` belongs to the tier whose slots have no mark.
    pub(super) fn new(recorder: &HitRecorder) -> Self {
        let shard = || Shard {
            table: HashTable::new(),
            recorders: [recorder.clone(), recorder.clone()],
        };
        Self {
            shards: (0..SHARDS)
                .map(|_| PaddedShard(RwLock::new(shard())))
                .collect(),
        }
    }

    /// Returns the value under `key` and records a hit.
    #[inline]
    pub(super) fn hit(&self, key: KeyHash) -> Option<Arc<V>> {
        let shard = self.shard(key).read();
        let resident = shard.find(key)?;
        // This load and the load of the object's state, in the recorder, can wait for memory at the same time. The
        // atomic increment of the count cannot, because the processor does not reorder it with other accesses.
        std::hint::black_box(Arc::strong_count(&resident.value));
        let slot = resident.slot;
        shard.recorders[usize::from(slot.is_marked())].hit(slot.with_mark(false));
        Some(Arc::clone(&resident.value))
    }

    /// Returns the value under `key`.
    pub(super) fn find(&self, key: KeyHash) -> Option<Arc<V>> {
        let shard = self.shard(key).read();
        shard.find(key).map(|resident| Arc::clone(&resident.value))
    }

    /// Sets the recorder for slots with this mark. The index must have no such slot.
    ///
    /// A hit uses the recorder under the lock under which it read the slot, so it never records a slot in another tier.
    pub(super) fn set_recorder(&self, mark: bool, recorder: &HitRecorder) {
        for shard in &self.shards {
            shard.0.write().recorders[usize::from(mark)] = recorder.clone();
        }
    }

    /// Changes the slot of the object in slot `from`. Returns false if the index has no such object.
    pub(super) fn relocate(&self, key: KeyHash, from: Slot, to: Slot) -> bool {
        let mut shard = self.shard(key).write();
        let resident = shard.table.find_mut(rehash(key), |stored| {
            stored.key == key && stored.slot == from
        });
        resident.map(|resident| resident.slot = to).is_some()
    }

    /// Calls `visit` with each value. No lock is held during the calls.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&V)) {
        for shard in &self.shards {
            let values: Vec<_> = shard
                .0
                .read()
                .table
                .iter()
                .map(|resident| Arc::clone(&resident.value))
                .collect();
            values.iter().for_each(|value| visit(value));
        }
    }

    /// Calls `visit` with at most `values_max` values, which are a random part of the keys. Returns their share.
    pub(super) fn sample(&self, values_max: usize, mut visit: impl FnMut(&V)) -> f64 {
        let mut visited = 0;
        for (nth, shard) in self.shards.iter().enumerate() {
            let shard = shard.0.read();
            let in_shard = shard.table.len();
            let values = shard.table.iter().take(values_max - visited);
            let values: Vec<_> = values.map(|resident| Arc::clone(&resident.value)).collect();
            drop(shard);
            visited += values.len();
            values.iter().for_each(|value| visit(value));
            if values.len() < in_shard {
                let share = values.len() as f64 / in_shard as f64;
                return (nth as f64 + share) / self.shards.len() as f64;
            }
        }
        1.0
    }

    pub(super) fn contains(&self, key: KeyHash) -> bool {
        self.shard(key).read().find(key).is_some()
    }

    /// Stores a value under `key` and returns the value that it replaced.
    pub(super) fn insert(&self, key: KeyHash, slot: Slot, value: Arc<V>) -> Option<(Slot, Arc<V>)> {
        let resident = Resident { key, slot, value };
        let mut shard = self.shard(key).write();
        match shard.table.entry(
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
        let stored = shard.table.find_mut(rehash(key), |resident| {
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
            .table
            .find_entry(rehash(key), |stored| {
                stored.key == key && slot.is_none_or(|slot| stored.slot == slot)
            })
            .ok()?;
        let (resident, _) = entry.remove();
        Some((resident.slot, resident.value))
    }

    #[inline]
    fn shard(&self, key: KeyHash) -> &RwLock<Shard<V>> {
        // The hash table uses the low bits for the bucket and the top 7 bits for its tag. The shard number uses
        // bits between these.
        &self.shards[(rehash(key) >> 40) as usize % SHARDS].0
    }
}

/// A shard, aligned so that it shares no cache line with another shard. Otherwise two cores that take the locks
/// of neighbouring shards would pass one cache line back and forth.
#[derive(Debug)]
#[repr(align(128))]
struct PaddedShard<V>(RwLock<Shard<V>>);

/// A part of the index.
#[derive(Debug)]
struct Shard<V> {
    table: HashTable<Resident<V>>,
    /// The recorders of slots without and with a mark.
    recorders: [HitRecorder; 2],
}

impl<V> Shard<V> {
    #[inline]
    fn find(&self, key: KeyHash) -> Option<&Resident<V>> {
        self.table.find(rehash(key), |resident| resident.key == key)
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
