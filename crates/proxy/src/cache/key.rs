//! The hash under which both tiers keep a key.

use edgeward_types::KeyHash;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The hash of a full key, in both tiers.
pub(crate) fn hash_key(key: &[u8], seed: u64) -> KeyHash {
    KeyHash(xxh3_64_with_seed(key, seed))
}
