//! The key of a stored response (RFC 9111 §2 and §4.1).

use std::sync::Arc;

use edgeward_types::KeyHash;
use edgeward_types::xxh3::xxh3_64_with_seed;
use http::HeaderMap;

use super::stored::{Stored, Variants};

/// Returns the hash of a key's bytes. Both tiers find the response by this hash.
pub(crate) fn hash_key(key: &[u8], seed: u64) -> KeyHash {
    KeyHash(xxh3_64_with_seed(key, seed))
}

/// The primary key of a target, followed by the secondary key of one variant if the target is known to vary.
#[derive(Clone, Debug)]
pub(crate) struct CacheKey {
    pub(crate) hash: KeyHash,
    pub(crate) bytes: Vec<u8>,
    /// The marker with the request fields by which the target varies. `None` if the key is only a primary key.
    pub(crate) marker: Option<Arc<Stored>>,
    primary_len: usize,
    primary_hash: KeyHash,
}

impl CacheKey {
    /// Returns the key of a target from the bytes of its primary key.
    pub(crate) fn primary_of(bytes: Vec<u8>, seed: u64) -> Self {
        let hash = hash_key(&bytes, seed);
        Self {
            hash,
            primary_len: bytes.len(),
            primary_hash: hash,
            marker: None,
            bytes,
        }
    }

    /// Turns this key into the key of the variant that `request` selects: appends the secondary key. `variants` are the
    /// contents of `marker`; `request` has the header fields that the origin would get.
    pub(crate) fn select(
        &mut self,
        marker: &Arc<Stored>,
        variants: &Variants,
        request: &HeaderMap,
        seed: u64,
    ) {
        variants.write_key(request, &mut self.bytes);
        self.hash = hash_key(&self.bytes, seed);
        self.marker = Some(Arc::clone(marker));
    }

    pub(crate) fn primary(&self) -> &[u8] {
        &self.bytes[..self.primary_len]
    }

    pub(crate) fn primary_hash(&self) -> KeyHash {
        self.primary_hash
    }
}
