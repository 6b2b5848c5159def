//! The caches that are compared, behind one trait.
//!
//! No cache hashes its keys, because they are hashes already. A value is an `Arc` of its declared size. No memory of
//! this size is allocated, so the benchmark measures the caches and not the allocator.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use edgeward_policy::PolicySpec;
use edgeward_store::hot::{HotCache, HotConfig, Offer};
use edgeward_types::{ByteSize, KeyHash};
use hashbrown::HashMap;
use parking_lot::RwLock;

/// A value: its declared size in bytes.
pub type Value = Arc<u64>;

/// A cache with a byte budget.
pub trait Cache: Send + Sync {
    /// Looks up a key, and returns a handle of its value that the caller owns.
    fn lookup(&self, key: u64) -> Option<Value>;

    /// Stores a value after a miss.
    fn insert(&self, key: u64, size_bytes: u64);
}

/// The name of a cache, and a function that makes it. The arguments are its capacity in bytes and the expected number
/// of objects.
pub type Candidate = (&'static str, fn(u64, usize) -> Box<dyn Cache>);

/// The caches in the order of the report. The first, a table without any policy, is the upper limit for the throughput
/// of hits.
pub const CANDIDATES: [Candidate; 7] = [
    ("sharded map", |_, _| Box::new(ShardedMap::new())),
    ("edgeward density", |bytes, _| {
        Box::new(Edgeward::new("density", bytes))
    }),
    ("edgeward gdsf", |bytes, _| {
        Box::new(Edgeward::new("gdsf", bytes))
    }),
    ("edgeward lru", |bytes, _| {
        Box::new(Edgeward::new("lru", bytes))
    }),
    ("edgeward sieve", |bytes, _| {
        Box::new(Edgeward::new("sieve", bytes))
    }),
    ("moka", |bytes, objects| Box::new(Moka::new(bytes, objects))),
    ("quick_cache", |bytes, objects| {
        Box::new(Quick::new(bytes, objects))
    }),
];

/// The memory tier of edgeward.
struct Edgeward(Arc<HotCache<u64>>);

impl Edgeward {
    fn new(policy: &str, capacity_bytes: u64) -> Self {
        let mut config = HotConfig::new(ByteSize(capacity_bytes));
        config.policy = policy.parse::<PolicySpec>().expect("a known policy");
        Self(HotCache::new(config))
    }
}

impl Cache for Edgeward {
    fn lookup(&self, key: u64) -> Option<Value> {
        self.0.lookup(KeyHash(key))
    }

    fn insert(&self, key: u64, size_bytes: u64) {
        let key = KeyHash(key);
        let version = self.0.version(key);
        if let Offer::Admit(reservation) = self.0.offer(key, size_bytes) {
            reservation.commit(Arc::new(size_bytes), version);
        }
    }
}

/// A hash map in 64 shards, each with a reader-writer lock. It never evicts.
struct ShardedMap(Box<[RwLock<HashMap<u64, Value, Identity>>]>);

impl ShardedMap {
    fn new() -> Self {
        Self((0..SHARDS).map(|_| RwLock::default()).collect())
    }

    fn shard(&self, key: u64) -> &RwLock<HashMap<u64, Value, Identity>> {
        &self.0[(key >> 32) as usize % SHARDS]
    }
}

impl Cache for ShardedMap {
    fn lookup(&self, key: u64) -> Option<Value> {
        self.shard(key).read().get(&key).cloned()
    }

    fn insert(&self, key: u64, size_bytes: u64) {
        self.shard(key).write().insert(key, Arc::new(size_bytes));
    }
}

struct Moka(moka::sync::Cache<u64, Value, Identity>);

impl Moka {
    fn new(capacity_bytes: u64, objects: usize) -> Self {
        Self(
            moka::sync::Cache::builder()
                .max_capacity(capacity_bytes)
                .initial_capacity(objects)
                .weigher(|_, size: &Value| u32::try_from(**size).unwrap_or(u32::MAX))
                .build_with_hasher(Identity::default()),
        )
    }
}

impl Cache for Moka {
    fn lookup(&self, key: u64) -> Option<Value> {
        self.0.get(&key)
    }

    fn insert(&self, key: u64, size_bytes: u64) {
        self.0.insert(key, Arc::new(size_bytes));
    }
}

#[derive(Clone)]
struct BySize;

impl quick_cache::Weighter<u64, Value> for BySize {
    fn weight(&self, _key: &u64, size: &Value) -> u64 {
        **size
    }
}

struct Quick(quick_cache::sync::Cache<u64, Value, BySize, Identity>);

impl Quick {
    fn new(capacity_bytes: u64, objects: usize) -> Self {
        Self(quick_cache::sync::Cache::with(
            objects,
            capacity_bytes,
            BySize,
            Identity::default(),
            quick_cache::sync::DefaultLifecycle::default(),
        ))
    }
}

impl Cache for Quick {
    fn lookup(&self, key: u64) -> Option<Value> {
        self.0.get(&key)
    }

    fn insert(&self, key: u64, size_bytes: u64) {
        self.0.insert(key, Arc::new(size_bytes));
    }
}

/// Hashes a key to itself, because keys are hashes already.
type Identity = BuildHasherDefault<IdentityHasher>;

#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are u64");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

const SHARDS: usize = 64;
