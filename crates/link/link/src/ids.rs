//! The hash function of chunk ids. The operator selects it in the configuration.

use std::sync::{Arc, LazyLock};

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
#[cfg(target_arch = "x86_64")]
use aws_lc_rs::cipher::{AES_128, EncryptingKey, EncryptionContext, UnboundCipherKey};

use edgeward_dedup::fingerprint::FingerprintKey;
#[cfg(target_arch = "x86_64")]
use edgeward_dedup::ghash::Ghash;
use edgeward_dedup::id::{IdKey, Tagger};

#[cfg(target_arch = "x86_64")]
use crate::cipher;

/// The hash function of chunk ids; the same at both endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdScheme {
    /// Keyed BLAKE3. Two chunks with the same id cannot be constructed, even with the key.
    #[default]
    Blake3,
    /// GMAC, several times faster. An endpoint that has the store key can construct chunks with the same id. If
    /// endpoints of several owners share a store, one of them could replace chunks of the others. A body with a
    /// replaced chunk fails, because its digest is wrong. GMAC is therefore for endpoints of one operator.
    Gmac,
}

impl IdScheme {
    /// Returns a key that computes chunk ids with this hash function. The key also computes fingerprints, by
    /// which the sender recognises repeated chunks faster. Fingerprints depend on a random key of this process.
    pub fn of(self, key: &IdKey) -> IdKey {
        let key = match &*FINGERPRINT_KEY {
            Some(fingerprints) => key.clone().with_fingerprints(Arc::clone(fingerprints)),
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

/// The fingerprint key of all peers. The peers share the chunk store, which caches the fingerprints of chunks,
/// so they need the same key. `None` if the random number generator fails; the endpoint then uses no
/// fingerprints.
static FINGERPRINT_KEY: LazyLock<Option<Arc<FingerprintKey>>> = LazyLock::new(|| {
    let random = crate::random::<32>().ok()?;
    Some(Arc::new(FingerprintKey::new(&random)))
});

/// The tag of AES-128-GCM for an empty message with the bytes as associated data, under a nonce of zeroes (NIST SP
/// 800-38D, section 6.4).
///
/// If a nonce is used twice, an observer of the tags can compute the hash key of GCM. The process therefore never
/// sends or stores these tags, only their BLAKE3 hashes.
///
/// AWS-LC is fast on processors with AVX-512. On processors that have vector multiplications (VPCLMULQDQ) without
/// AVX-512, AWS-LC uses 128-bit multiplications. There, `VectorGmac` is more than twice as fast.
struct Gmac {
    key: LessSafeKey,
    #[cfg(target_arch = "x86_64")]
    vector: Option<VectorGmac>,
}

impl Gmac {
    fn new(key: &[u8; 16]) -> Self {
        let unbound = UnboundKey::new(&AES_128_GCM, key);
        Self {
            key: LessSafeKey::new(unbound.expect("the key has sixteen bytes")),
            #[cfg(target_arch = "x86_64")]
            vector: cipher::has_vaes_without_avx512()
                .then(|| VectorGmac::new(key))
                .flatten(),
        }
    }

    fn tag_by_aws_lc(&self, bytes: &[u8]) -> [u8; 16] {
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(bytes), &mut []);
        let tag = tag.expect("associated data may be far longer than a chunk");
        *tag.as_ref()
            .first_chunk()
            .expect("the array has sixteen bytes")
    }
}

impl Tagger for Gmac {
    fn tag(&self, bytes: &[u8]) -> [u8; 16] {
        #[cfg(target_arch = "x86_64")]
        if let Some(vector) = &self.vector {
            return vector.tag(bytes);
        }
        self.tag_by_aws_lc(bytes)
    }
}

/// Computes the tag of [`Gmac`] with 256-bit vector instructions.
#[cfg(target_arch = "x86_64")]
struct VectorGmac {
    ghash: Ghash,
    /// The encrypted counter block of the nonce. XOR with the result of GHASH yields the tag.
    mask: u128,
}

#[cfg(target_arch = "x86_64")]
impl VectorGmac {
    /// Returns `None` if the processor lacks the instructions.
    fn new(key: &[u8; 16]) -> Option<Self> {
        let key = UnboundCipherKey::new(&AES_128, key).expect("the key has sixteen bytes");
        let key = EncryptingKey::ctr(key).expect("AES has that mode");
        // Encrypts the counter blocks 0 and 1. Block 0 consists of zeroes and yields the hash key. Block 1 is the
        // nonce with a counter of one and yields the mask.
        let mut blocks = [0; 32];
        let from_zero = EncryptionContext::Iv128([0; 16].into());
        let encrypted = key.less_safe_encrypt(&mut blocks, from_zero);
        encrypted.expect("the length is a multiple of the block size");
        let (hash_key, mask) = blocks
            .split_first_chunk()
            .expect("the buffer has two blocks");
        let mask = mask
            .first_chunk()
            .expect("the second block has sixteen bytes");
        Some(Self {
            ghash: Ghash::new(*hash_key)?,
            mask: u128::from_le_bytes(*mask),
        })
    }

    fn tag(&self, bytes: &[u8]) -> [u8; 16] {
        let hash = u128::from_le_bytes(self.ghash.hash_data(bytes));
        (hash ^ self.mask).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    use proptest::prelude::{any, prop_assert_eq, proptest};

    fn bytes(hex: &str) -> Vec<u8> {
        let pairs = hex.as_bytes().chunks(2);
        let digits = pairs.map(|pair| std::str::from_utf8(pair).expect("the text is ASCII"));
        digits
            .map(|digits| u8::from_str_radix(digits, 16).expect("the text is hexadecimal"))
            .collect()
    }

    /// The tag of no bytes is test case 1 of the GCM specification (McGrew and Viega).
    #[test]
    fn the_tag_of_no_bytes_is_the_test_case_of_gcm() {
        let tag = Gmac::new(&[0; 16]).tag(b"");
        assert_eq!(tag.to_vec(), bytes("58e2fccefa7e3061367f1d57a4e7455a"));
    }

    #[cfg(target_arch = "x86_64")]
    proptest! {
        /// `VectorGmac` computes the same tags as AWS-LC, for random lengths and any alignment of the bytes.
        #[test]
        fn vector_tags_equal_those_of_aws_lc(
            key in any::<[u8; 16]>(),
            seed in any::<u64>(),
            length in 0_usize..3000,
            start in 0_usize..32,
        ) {
            let Some(vector) = VectorGmac::new(&key) else {
                eprintln!("skipped: this processor has no VPCLMULQDQ");
                return Ok(());
            };
            let mut word = seed;
            let mut next = || {
                word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (word >> 56) as u8
            };
            let bytes: Vec<u8> = (0..start + length).map(|_| next()).collect();
            prop_assert_eq!(vector.tag(&bytes[start..]), Gmac::new(&key).tag_by_aws_lc(&bytes[start..]));
        }
    }

    /// `VectorGmac` computes the same tags as AWS-LC for every length from 0 to 1199 bytes. This includes all lengths
    /// around the borders of blocks and of groups of blocks.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vector_tags_equal_those_of_aws_lc_for_every_length() {
        let key = [0x5a; 16];
        let Some(vector) = VectorGmac::new(&key) else {
            eprintln!("skipped: this processor has no VPCLMULQDQ");
            return;
        };
        let gmac = Gmac::new(&key);
        let bytes: Vec<u8> = (0..1200_u32).map(|n| ((n * n) >> 3) as u8).collect();
        for length in 0..bytes.len() {
            let bytes = &bytes[..length];
            assert_eq!(
                vector.tag(bytes),
                gmac.tag_by_aws_lc(bytes),
                "{length} bytes"
            );
        }
    }

    /// Both hash functions return the ids that `docs/reference/link-protocol.md` lists.
    #[test]
    fn ids_are_as_documented() {
        let key = IdKey::new([7; 32]);
        let gmac = IdScheme::Gmac.of(&key);
        assert_eq!([IdScheme::Blake3.of(&key).scheme(), gmac.scheme()], [1, 2]);
        assert_ne!(gmac.id(b"chunk"), key.id(b"chunk"));
        assert_ne!(gmac.id(b"chunk"), gmac.id(b"chunk\0"));
        assert_eq!(gmac.id(b"chunk"), IdScheme::Gmac.of(&key).id(b"chunk"));
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
