//! Keys of operations under way, so that two operations of a kind do not work on one key at the same time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use edgeward_types::KeyHash;

use crate::rt::panics::lock;

/// The keys of operations under way.
#[derive(Debug, Default)]
pub(in crate::cache) struct KeySet(Arc<Mutex<HashSet<KeyHash>>>);

impl KeySet {
    /// Inserts a key until the returned claim is dropped. Returns `None` if the set already contains the key.
    pub(in crate::cache) fn claim(&self, hash: KeyHash) -> Option<Claim> {
        let is_new = lock(&self.0).insert(hash);
        is_new.then(|| Claim {
            keys: Arc::clone(&self.0),
            hash,
        })
    }

    pub(in crate::cache) fn contains(&self, hash: KeyHash) -> bool {
        lock(&self.0).contains(&hash)
    }
}

/// A key in a [`KeySet`]. Dropping the claim removes the key.
pub(crate) struct Claim {
    keys: Arc<Mutex<HashSet<KeyHash>>>,
    hash: KeyHash,
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.keys).remove(&self.hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_claimed_although_a_second_claim_is_refused() {
        let (keys, hash) = (KeySet::default(), KeyHash(1));
        let claim = keys.claim(hash);
        assert!(claim.is_some() && keys.claim(hash).is_none());
        assert!(keys.contains(hash)); // a refused claim must not remove the key, as dropping a claim does
        drop(claim);
        assert!(!keys.contains(hash));
    }
}
