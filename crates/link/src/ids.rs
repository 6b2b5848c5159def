//! How chunks are named, as an operator chooses it.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use edgeward_dedup::id::{IdKey, Tagger};
use edgeward_dedup::mark::MarkKey;

/// How chunks are named; the same at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// By keyed BLAKE3: two chunks of one name cannot be made even with the key.
    #[default]
    Blake3,
    /// By GMAC, several times faster. Whoever has the store key can make chunks that share a name, so whoever has it is trusted: with a
    /// store that ends of several owners fill, one could spoil what others get, until digests show it. For ends of one operator.
    Gmac,
}

impl Ids {
    /// Names by this scheme under a key; chunks that come again are known by marks of this process.
    pub fn of(self, key: &IdKey) -> IdKey {
        let key = match &*MARKS {
            Some(marks) => key.clone().with_marks(Arc::clone(marks)),
            None => key.clone(),
        };
        match self {
            Self::Blake3 => key,
            Self::Gmac => {
                let tagger = Arc::new(Gmac::new(&key.tag_key()));
                key.with_tagger(tagger)
            }
        }
    }
}

/// One key for all peers, since they share stores, and marks lie beside what is stored. Without randomness nothing is marked.
static MARKS: LazyLock<Option<Arc<MarkKey>>> = LazyLock::new(|| {
    let random = crate::random::<32>().ok()?;
    Some(Arc::new(MarkKey::new(&random)))
});

/// AES-128-GCM's tag of bytes that are associated data, under a nonce of zeroes (NIST SP 800-38D, section 6.4, for a message of no
/// bytes).
///
/// GCM with a nonce that is used twice gives its hash key away, to those who see tags. Nobody sees these: only what BLAKE3 makes of them
/// leaves the process.
struct Gmac(LessSafeKey);

impl Gmac {
    fn new(key: &[u8; 16]) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, key);
        Self(LessSafeKey::new(key.expect("it has sixteen bytes")))
    }
}

impl Tagger for Gmac {
    fn tag(&self, bytes: &[u8]) -> [u8; 16] {
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(bytes), &mut []);
        let tag = tag.expect("associated data may be far longer than a chunk");
        *tag.as_ref().first_chunk().expect("sixteen bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        let digits = pairs.map(|pair| std::str::from_utf8(pair).expect("ASCII"));
        digits
            .map(|digits| u8::from_str_radix(digits, 16).expect("hexadecimal"))
            .collect()
    }

    /// The tag is AES-128-GCM's: that of no bytes at all is test case 1 of the GCM specification (McGrew and Viega).
    #[test]
    fn tags_are_those_of_gcm() {
        let tag = Gmac::new(&[0; 16]).tag(b"");
        assert_eq!(tag.to_vec(), bytes("58e2fccefa7e3061367f1d57a4e7455a"));
    }

    /// Names of both schemes, as `docs/link-protocol.md` has them.
    #[test]
    fn names_are_as_they_are_documented() {
        let key = IdKey::new([7; 32]);
        let gmac = Ids::Gmac.of(&key);
        assert_eq!([Ids::Blake3.of(&key).scheme(), gmac.scheme()], [1, 2]);
        assert_ne!(gmac.id(b"chunk"), key.id(b"chunk"));
        assert_ne!(gmac.id(b"chunk"), gmac.id(b"chunk\0"));
        assert_eq!(gmac.id(b"chunk"), Ids::Gmac.of(&key).id(b"chunk"));
        let shown = [&key, &gmac].map(|ids| format!("{:?}", ids.id(b"chunk")));
        assert_eq!(
            shown,
            [
                "2238471ac2cc9b08e7e4e90803da24cd",
                "8aa50419033a06965c9b29882de55fc2"
            ]
        );
    }
}
