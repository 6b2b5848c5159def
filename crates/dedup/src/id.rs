//! What a chunk is called, and how a body is known to be whole.
//!
//! A chunk's name is 128 bits of BLAKE3 under a key that both ends hold: whoever does not have the key cannot tell
//! from a name what it names, nor make two chunks of one name, which would take 2^64 tries even with it. Nobody
//! relies on names alone: bytes that come out of a store are hashed again before they are used, and a body is
//! compared with its sender's [`BodyDigest`] at its end. That digest is of another family (XXH3) on purpose: what
//! the names let through, it notices.
//!
//! Hashing is the most that is done to a chunk, so there is a second scheme for ends of one operator: a [`Tagger`] makes sixteen bytes
//! of the chunk under a secret key, several times faster, and BLAKE3 makes the name of those. Without the key two chunks share a name no
//! sooner than before, and names tell nothing of it. Whoever has the key can make as many chunks of one name as they like.

use std::fmt;
use std::sync::Arc;

use edgeward_types::xxh3::xxh3_64;

pub use crate::digest::BodyDigest;

use crate::digest::{Block, Sums};
use crate::lanes::keyed_hashes;
use crate::mark::{Mark, MarkKey};

/// The name of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub [u8; 16]);

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// One number for a row of names: do both ends mean the same row?
pub fn row_check<'a>(ids: impl IntoIterator<Item = &'a ChunkId>) -> u64 {
    let bytes: Vec<u8> = ids.into_iter().flat_map(|id| id.0).collect();
    xxh3_64(&bytes)
}

/// Makes sixteen bytes of many under a secret key, so that different bytes have the same only by chance, for whoever does not have
/// the key: GMAC, that is AES-128-GCM with a nonce of zeroes over the bytes as associated data. A driver brings it.
pub trait Tagger: Send + Sync {
    /// The tag.
    fn tag(&self, bytes: &[u8]) -> [u8; 16];
}

/// The key under which one trust domain names its chunks.
#[derive(Clone)]
pub struct IdKey {
    key: [u8; 32],
    /// What it names instead of the chunk, in the second scheme.
    tagger: Option<Arc<dyn Tagger>>,
    /// What chunks that were named before are known again by.
    marks: Option<Arc<MarkKey>>,
    /// Laid over each name; all ones but in tests.
    mask: u128,
}

impl IdKey {
    /// What the first scheme is called on the wire: keyed BLAKE3 of the chunk, the first 128 bits.
    pub const BLAKE3: u8 = 1;
    /// The second: the same of its tag.
    pub const GMAC: u8 = 2;

    /// Names under `key`, which both ends keep to themselves.
    pub const fn new(key: [u8; 32]) -> Self {
        Self {
            key,
            tagger: None,
            marks: None,
            mask: u128::MAX,
        }
    }

    /// Names by the second scheme, for peers that are trusted. The tagger's own key is [`tag_key`](Self::tag_key).
    #[must_use]
    pub fn with_tagger(self, tagger: Arc<dyn Tagger>) -> Self {
        let tagger = Some(tagger);
        Self { tagger, ..self }
    }

    /// Knows chunks again by marks, under a key of this process alone: see [`mark`](crate::mark).
    #[must_use]
    pub fn with_marks(self, key: Arc<MarkKey>) -> Self {
        let marks = Some(key);
        Self { marks, ..self }
    }

    /// What to know this chunk again by, if that is done.
    pub fn mark(&self, chunk: &[u8]) -> Option<Mark> {
        self.marks.as_ref()?.mark(chunk)
    }

    /// Whether these are the bytes that were marked. False says nothing.
    pub fn recognises(&self, mark: Option<Mark>, chunk: &[u8]) -> bool {
        mark.is_some() && mark == self.mark(chunk)
    }

    /// As [`recognises`](Self::recognises), along with the digest of the body that the chunk is in: the sums with `blocks` more of it, if these are the bytes.
    pub(crate) fn recognises_along(
        &self,
        mark: Option<Mark>,
        chunk: &[u8],
        mut sums: Sums,
        blocks: &[Block],
    ) -> Option<Sums> {
        let found = self.marks.as_ref()?.mark_along(chunk, &mut sums, blocks);
        (mark.is_some() && mark == found).then_some(sums)
    }

    /// The key of tags that belongs to this one: the name of a sentence, in the first scheme.
    pub fn tag_key(&self) -> [u8; 16] {
        self.name(b"edgeward link: the key of tags").0
    }

    /// The scheme, as on the wire.
    pub fn scheme(&self) -> u8 {
        if self.tagger.is_some() {
            Self::GMAC
        } else {
            Self::BLAKE3
        }
    }

    /// Names of `bits` bits only, so that chunks share them: for tests of what happens then.
    #[must_use]
    pub fn weakened(self, bits: u32) -> Self {
        let mask = u128::MAX.checked_shr(u128::BITS - bits);
        Self {
            mask: mask.unwrap_or(0),
            ..self
        }
    }

    /// The name of a chunk.
    pub fn id(&self, chunk: &[u8]) -> ChunkId {
        match &self.tagger {
            Some(tagger) => self.name(&tagger.tag(chunk)),
            None => self.name(chunk),
        }
    }

    /// The names of these, in their order: for a dozen that takes two thirds of the time that one by one does.
    pub fn ids(&self, chunks: &[&[u8]]) -> Vec<ChunkId> {
        let mut ids = Vec::with_capacity(chunks.len());
        let name = |hash| ids.push(self.name_of(hash));
        match &self.tagger {
            Some(tagger) => {
                let tags: Vec<[u8; 16]> = chunks.iter().map(|chunk| tagger.tag(chunk)).collect();
                let tags: Vec<&[u8]> = tags.iter().map(|tag| &tag[..]).collect();
                keyed_hashes(&self.key, &tags, name);
            }
            None => keyed_hashes(&self.key, chunks, name),
        }
        ids
    }

    /// Each with its name.
    pub(crate) fn each_id<'a>(
        &self,
        chunks: &'a [&'a [u8]],
    ) -> impl Iterator<Item = (ChunkId, &'a [u8])> {
        together(chunks).flat_map(|group| self.ids(group).into_iter().zip(group.iter().copied()))
    }

    fn name(&self, bytes: &[u8]) -> ChunkId {
        self.name_of(blake3::keyed_hash(&self.key, bytes).into())
    }

    fn name_of(&self, hash: [u8; 32]) -> ChunkId {
        let first: &[u8; 16] = hash.first_chunk().expect("32 bytes");
        ChunkId((u128::from_le_bytes(*first) & self.mask).to_le_bytes())
    }

    /// Tells nothing about the key, and whether another end has the same.
    pub fn check(&self) -> ChunkId {
        self.id(b"edgeward link: do we name chunks alike?")
    }
}

impl fmt::Debug for IdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdKey(secret)")
    }
}

/// Chunks in groups, as they are named: so many together, and no more, that they are still at hand for what is done with them.
pub(crate) fn together<'a>(mut chunks: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [&'a [u8]]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let now = chunks.iter().take_while(|chunk| {
            let room = bytes < TOGETHER_BYTES;
            bytes += chunk.len();
            room
        });
        let (now, later) = chunks.split_at(now.count());
        chunks = later;
        (!now.is_empty()).then_some(now)
    })
}

/// What is named at once where there is more: enough for all lanes of BLAKE3, and a part of a second-level cache.
pub(crate) const TOGETHER_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    /// The name is BLAKE3's keyed hash, cut to 16 bytes.
    ///
    /// Method: the vector of the BLAKE3 team for an input of no bytes
    /// (key "whats the Elvish word for friend").
    #[test]
    fn names_are_blake3_under_a_key() {
        let key = IdKey::new(*b"whats the Elvish word for friend");
        let expected = 0x92b2_b756_04ed_3c76_1f9d_6f62_392c_8a92;
        assert_eq!(key.id(b""), ChunkId(u128::to_be_bytes(expected)));
    }

    /// Another key names everything otherwise, and the check shows it.
    #[test]
    fn keys_do_not_share_names() {
        let (one, other) = (IdKey::new([1; 32]), IdKey::new([2; 32]));
        assert_ne!(one.id(b"chunk"), other.id(b"chunk"));
        assert_ne!(one.check(), other.check());
        assert_eq!(one.check(), IdKey::new([1; 32]).check());
    }

    /// In the second scheme the name is that of the tag, and the two schemes share no name.
    #[test]
    fn names_of_the_second_scheme_are_those_of_tags() {
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
        /// However a body comes, its digest is XXH3's of all of it, by the other implementation of it here.
        #[test]
        fn digests_are_of_the_whole(pieces in vec((any::<u8>(), 0_usize..3000), 0..10)) {
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
    fn weakened_names_collide() {
        let key = IdKey::new([1; 32]).weakened(3);
        let names: std::collections::BTreeSet<_> = (0_u8..100).map(|n| key.id(&[n])).collect();
        assert_eq!(names.len(), 8);
    }

    /// The order of a row counts.
    #[test]
    fn a_row_is_checked_with_its_order() {
        let (a, b) = (ChunkId([1; 16]), ChunkId([2; 16]));
        assert_ne!(row_check([&a, &b]), row_check([&b, &a]));
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", IdKey::new([7; 32])), "IdKey(secret)");
    }
}
