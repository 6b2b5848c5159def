//! Chunk hashes and the digests of bodies.
//!
//! A chunk hash is the first 128 bits of BLAKE3 under a key that both endpoints have. Without the key, a hash
//! reveals no information about its chunk. With the key, finding two chunks with the same hash takes about 2^64
//! attempts. The endpoints do not rely on hashes alone. Before bytes from a store are used, their hash is computed
//! again, or their fingerprint is compared. At the end of a body the receiver compares its [`BodyDigest`] with that of
//! the sender. The digest uses another algorithm (XXH3), so it also detects two chunks with the same chunk hash.
//!
//! Hashing is the most expensive step for a chunk, so there is a faster, second scheme for two endpoints of one
//! operator. A [`Tagger`] computes a tag from the chunk under a secret key, several times faster than BLAKE3. The
//! chunk hash is BLAKE3 of this tag, which has sixteen bytes. For an attacker without the key, both schemes are equally
//! secure. An attacker with the key can make any number of chunks with the same hash, so the peers must trust each
//! other.

use std::fmt;
use std::sync::Arc;

use edgeward_types::xxh3::xxh3_64;

pub use crate::digest::BodyDigest;

use crate::digest::{Block, DigestState};
use crate::fingerprint::{ChunkFingerprint, FingerprintKey};
use crate::lanes::keyed_hashes;

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

/// Computes a tag of sixteen bytes under a secret key. Without the key, an attacker finds different bytes with
/// the same tag only by chance. The tag is a GMAC: AES-128-GCM with a nonce of zeroes and the bytes as
/// associated data. The crate `edgeward_link` implements this trait, because this crate has no AES.
pub trait Tagger: Send + Sync {
    /// Returns the tag of these bytes.
    fn tag(&self, bytes: &[u8]) -> [u8; 16];
}

/// The key for the chunk hashes of one trust domain.
#[derive(Clone)]
pub struct IdKey {
    key: [u8; 32],
    /// Computes the tag that is hashed instead of the chunk, in the second scheme.
    tagger: Option<Arc<dyn Tagger>>,
    /// The key of fingerprints, by which chunks that were hashed before are recognised.
    fingerprints: Option<Arc<FingerprintKey>>,
    /// The bits of a hash that are used: all of them, except in tests.
    mask: u128,
}

impl IdKey {
    /// The first scheme on the wire: the first 128 bits of keyed BLAKE3 of the chunk.
    pub const BLAKE3: u8 = 1;
    /// The second scheme: the first 128 bits of keyed BLAKE3 of the chunk's tag.
    pub const GMAC: u8 = 2;

    /// Returns a key for the first scheme. Only the two endpoints may know `key`.
    pub const fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            tagger: None,
            fingerprints: None,
            mask: u128::MAX,
        }
    }

    /// Returns this key for the second scheme, for peers that trust each other. The tagger must use the key
    /// [`tag_key`](Self::tag_key).
    #[must_use]
    pub fn with_tagger(self, tagger: Arc<dyn Tagger>) -> Self {
        let tagger = Some(tagger);
        Self { tagger, ..self }
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

    /// Returns true if the chunk has this fingerprint. Otherwise only its hash can identify the chunk.
    pub fn matches_fingerprint(&self, fingerprint: Option<ChunkFingerprint>, chunk: &[u8]) -> bool {
        fingerprint.is_some() && fingerprint == self.fingerprint(chunk)
    }

    /// Like [`matches_fingerprint`](Self::matches_fingerprint), and adds `blocks` of the body to its digest in
    /// the same pass. Returns the digest state after these blocks, or `None` if the fingerprint differs.
    pub(crate) fn matches_fingerprint_along(
        &self,
        fingerprint: Option<ChunkFingerprint>,
        chunk: &[u8],
        mut digest_state: DigestState,
        blocks: &[Block],
    ) -> Option<DigestState> {
        let found = self
            .fingerprints
            .as_ref()?
            .fingerprint_along(chunk, &mut digest_state, blocks);
        (fingerprint.is_some() && fingerprint == found).then_some(digest_state)
    }

    /// Returns the key of the tagger, derived from this key: the hash of a constant, in the first scheme.
    pub fn tag_key(&self) -> [u8; 16] {
        self.hash(b"edgeward link: the key of tags").0
    }

    /// Returns the number of the scheme on the wire.
    pub fn scheme(&self) -> u8 {
        if self.tagger.is_some() {
            Self::GMAC
        } else {
            Self::BLAKE3
        }
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
        match &self.tagger {
            Some(tagger) => self.hash(&tagger.tag(chunk)),
            None => self.hash(chunk),
        }
    }

    /// Returns the hashes of the chunks in order. Hashing a dozen chunks together takes two thirds of the time
    /// of hashing them one by one.
    pub fn ids(&self, chunks: &[&[u8]]) -> Vec<ChunkId> {
        let mut ids = Vec::with_capacity(chunks.len());
        let push = |hash| ids.push(self.truncate(hash));
        match &self.tagger {
            Some(tagger) => {
                let tags: Vec<[u8; 16]> = chunks.iter().map(|chunk| tagger.tag(chunk)).collect();
                let tags: Vec<&[u8]> = tags.iter().map(|tag| &tag[..]).collect();
                keyed_hashes(&self.key, &tags, push);
            }
            None => keyed_hashes(&self.key, chunks, push),
        }
        ids
    }

    /// Returns each chunk with its hash.
    pub(crate) fn each_id<'a>(
        &self,
        chunks: &'a [&'a [u8]],
    ) -> impl Iterator<Item = (ChunkId, &'a [u8])> {
        hash_groups(chunks).flat_map(|group| self.ids(group).into_iter().zip(group.iter().copied()))
    }

    fn hash(&self, bytes: &[u8]) -> ChunkId {
        self.truncate(blake3::keyed_hash(&self.key, bytes).into())
    }

    fn truncate(&self, hash: [u8; 32]) -> ChunkId {
        let first: &[u8; 16] = hash.first_chunk().expect("a hash has 32 bytes");
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

/// Divides chunks into groups that are hashed together. A group is small enough to be still in the processor's
/// cache when its chunks are stored.
pub(crate) fn hash_groups<'a>(mut chunks: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [&'a [u8]]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let now = chunks.iter().take_while(|chunk| {
            let room = bytes < GROUP_BYTES;
            bytes += chunk.len();
            room
        });
        let (now, later) = chunks.split_at(now.count());
        chunks = later;
        (!now.is_empty()).then_some(now)
    })
}

/// The number of bytes that are hashed together. They occupy all SIMD lanes of BLAKE3, and fit into a part of
/// a second-level cache.
pub(crate) const GROUP_BYTES: usize = 128 << 10;

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

    /// In the second scheme, the chunk hash is the hash of the tag. The checks of the two schemes differ, but
    /// the tag key is the same.
    #[test]
    fn the_second_scheme_hashes_the_tag() {
        struct Lengths;
        impl Tagger for Lengths {
            fn tag(&self, bytes: &[u8]) -> [u8; 16] {
                (bytes.len() as u128).to_le_bytes()
            }
        }
        let plain = IdKey::new([1; 32]);
        let tagged = plain.clone().with_tagger(Arc::new(Lengths));
        assert_eq!([plain.scheme(), tagged.scheme()], [1, 2]);
        assert_eq!(tagged.id(b"chunk"), plain.id(&5_u128.to_le_bytes()));
        assert_ne!(tagged.check(), plain.check());
        assert_eq!(tagged.tag_key(), plain.tag_key());
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
