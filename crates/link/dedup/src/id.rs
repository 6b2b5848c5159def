//! Chunk hashes and the digests of bodies.
//!
//! A chunk hash is the first 128 bits of BLAKE3 under a key that both endpoints have. Without the key, a hash
//! reveals no information about its chunk. With the key, finding two chunks with the same hash takes about 2^64
//! attempts. The endpoints do not rely on hashes alone. Before bytes from a store are used, their hash is computed
//! again, or their fingerprint is compared. At the end of a body the receiver compares its [`BodyDigest`] with that of
//! the sender. The digest uses another algorithm (XXH3), so it also detects two chunks with the same chunk hash.

use std::fmt;
use std::sync::Arc;

use edgeward_types::xxh3::{Xxh3_128, xxh3_64};

use crate::fingerprint::{ChunkFingerprint, FingerprintKey};

/// The hash of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub [u8; 16]);

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Returns a checksum of a sequence of chunk hashes. Both endpoints compute it to check that they have the same
/// chunks in the same order.
pub fn sequence_check<'a>(ids: impl IntoIterator<Item = &'a ChunkId>) -> u64 {
    let bytes: Vec<u8> = ids.into_iter().flat_map(|id| id.0).collect();
    xxh3_64(&bytes)
}

/// The digest of a body: XXH3 of 128 bits. The receiver compares it with that of the sender.
#[derive(Clone, Default)]
pub struct BodyDigest(Xxh3_128);

impl BodyDigest {
    /// Adds the next bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// Returns the digest of the bytes added so far.
    pub fn value(&self) -> u128 {
        self.0.finish_128()
    }
}

impl fmt::Debug for BodyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyDigest")
    }
}

/// The key for the chunk hashes of one trust domain.
#[derive(Clone)]
pub struct IdKey {
    key: [u8; 32],
    /// The key of fingerprints, by which chunks that were hashed before are recognised.
    fingerprints: Option<Arc<FingerprintKey>>,
    /// The bits of a hash that are used: all of them, except in tests.
    mask: u128,
}

impl IdKey {
    /// Returns a key. Only the two endpoints may know `key`.
    pub const fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            fingerprints: None,
            mask: u128::MAX,
        }
    }

    /// Returns this key with fingerprints, which recognise stored chunks without hashing: see
    /// [`fingerprint`](crate::fingerprint). The key of the fingerprints exists only in this process.
    #[must_use]
    pub fn with_fingerprints(self, key: Arc<FingerprintKey>) -> Self {
        let fingerprints = Some(key);
        Self {
            fingerprints,
            ..self
        }
    }

    /// Returns the chunk's fingerprint, if fingerprints are in use.
    pub fn fingerprint(&self, chunk: &[u8]) -> Option<ChunkFingerprint> {
        self.fingerprints.as_ref()?.fingerprint(chunk)
    }

    /// Returns true if a stored chunk is intact: if it has this fingerprint or, otherwise, this hash.
    pub fn verifies(
        &self,
        id: ChunkId,
        fingerprint: Option<ChunkFingerprint>,
        chunk: &[u8],
    ) -> bool {
        self.matches_fingerprint(fingerprint, chunk) || self.id(chunk) == id
    }

    /// Returns true if the chunk has this fingerprint. Otherwise only its hash can identify the chunk.
    pub fn matches_fingerprint(&self, fingerprint: Option<ChunkFingerprint>, chunk: &[u8]) -> bool {
        fingerprint.is_some() && fingerprint == self.fingerprint(chunk)
    }

    /// Returns this key with hashes of only `bits` bits, for tests in which different chunks have the same hash.
    #[must_use]
    pub fn weakened(self, bits: u32) -> Self {
        let mask = u128::MAX.checked_shr(u128::BITS - bits);
        Self {
            mask: mask.unwrap_or(0),
            ..self
        }
    }

    /// Returns the hash of a chunk.
    pub fn id(&self, chunk: &[u8]) -> ChunkId {
        let hash = blake3::keyed_hash(&self.key, chunk);
        let first: &[u8; 16] = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
        ChunkId((u128::from_le_bytes(*first) & self.mask).to_le_bytes())
    }

    /// Returns a value by which the peers compare their keys without revealing them.
    pub fn check(&self) -> ChunkId {
        self.id(b"edgeward link: do we name chunks alike?")
    }
}

impl fmt::Debug for IdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    /// A chunk hash is BLAKE3's keyed hash, truncated to 16 bytes.
    ///
    /// Method: the test vector of the BLAKE3 team for empty input (key "whats the Elvish word for friend").
    #[test]
    fn chunk_hashes_are_blake3_under_a_key() {
        let key = IdKey::new(*b"whats the Elvish word for friend");
        let expected = 0x92b2_b756_04ed_3c76_1f9d_6f62_392c_8a92;
        assert_eq!(key.id(b""), ChunkId(u128::to_be_bytes(expected)));
    }

    /// With another key, the hashes and the check are different.
    #[test]
    fn another_key_gives_other_hashes() {
        let (one, other) = (IdKey::new([1; 32]), IdKey::new([2; 32]));
        assert_ne!(one.id(b"chunk"), other.id(b"chunk"));
        assert_ne!(one.check(), other.check());
        assert_eq!(one.check(), IdKey::new([1; 32]).check());
    }

    proptest! {
        /// The digest of a body that is added in pieces equals the XXH3 of the whole body from another
        /// implementation.
        #[test]
        fn the_digest_of_pieces_is_that_of_the_whole_body(pieces in vec((any::<u8>(), 0_usize..3000), 0..10)) {
            let (mut digest, mut whole) = (BodyDigest::default(), Vec::new());
            for (byte, length) in pieces {
                let piece: Vec<u8> = (0..length).map(|nth| byte.wrapping_mul(nth as u8)).collect();
                digest.update(&piece);
                whole.extend(piece);
                prop_assert_eq!(digest.value(), edgeward_types::xxh3::xxh3_128(&whole));
            }
        }
    }

    /// A stored chunk is not hashed if it has its fingerprint.
    ///
    /// Method: verify a chunk under another hash key and the same fingerprint key. Only the fingerprint can match.
    #[test]
    fn chunks_with_a_fingerprint_are_not_hashed() {
        let fingerprints = Arc::new(FingerprintKey::new(&[4; 32]));
        let keys = [[1; 32], [2; 32]].map(IdKey::new);
        let [key, other] = keys.map(|key| key.with_fingerprints(Arc::clone(&fingerprints)));
        let (id, fingerprint) = (key.id(b"chunk"), key.fingerprint(b"chunk"));
        assert!(key.verifies(id, fingerprint, b"chunk") && key.verifies(id, None, b"chunk"));
        assert!(other.verifies(id, fingerprint, b"chunk") && !other.verifies(id, None, b"chunk"));
        assert!(!key.verifies(id, fingerprint, b"junk"));
    }

    #[test]
    fn weakened_hashes_collide() {
        let key = IdKey::new([1; 32]).weakened(3);
        let hashes: std::collections::BTreeSet<_> = (0_u8..100).map(|n| key.id(&[n])).collect();
        assert_eq!(hashes.len(), 8);
    }

    /// The checksum of a sequence of hashes depends on their order.
    #[test]
    fn a_sequence_check_depends_on_the_order() {
        let (a, b) = (ChunkId([1; 16]), ChunkId([2; 16]));
        assert_ne!(sequence_check([&a, &b]), sequence_check([&b, &a]));
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", IdKey::new([7; 32])), "IdKey(secret)");
    }
}
