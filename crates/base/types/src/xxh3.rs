//! XXH3: the hash of keys, ids and names, and the checksum of files and frames.
//!
//! All crates hash through this module, so that the implementation is chosen in one place. Results follow the
//! specification, <https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>, and are part of file and
//! wire formats.
//!
//! The implementation is `twox-hash`, which detects AVX2 when the program runs. Compared with `xxhash-rust`, it
//! takes about 20 instructions more on a short key, and 40 % less time on a block of 8 KiB
//! (`docs/adr/0006-xxhash-for-keys.md`).

/// The state of XXH3 with 64 bits, for bytes that are hashed in parts; see [`std::hash::Hasher`].
pub use twox_hash::XxHash3_64 as Xxh3;

/// The state of XXH3 with 128 bits, for bytes that are hashed in parts.
pub use twox_hash::XxHash3_128 as Xxh3_128;

/// Returns the hash of `bytes` with 64 bits.
#[inline]
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    Xxh3::oneshot(bytes)
}

/// Returns the hash of `bytes` with 64 bits under `seed`.
#[inline]
pub fn xxh3_64_with_seed(bytes: &[u8], seed: u64) -> u64 {
    Xxh3::oneshot_with_seed(seed, bytes)
}

/// Returns the hash of `bytes` with 128 bits.
#[inline]
pub fn xxh3_128(bytes: &[u8]) -> u128 {
    Xxh3_128::oneshot(bytes)
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use super::*;

    /// The values are those of the reference implementation, `xxhsum` 0.8.
    #[test]
    fn hashes_are_those_of_the_reference_implementation() {
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(xxh3_128(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
        assert_eq!(xxh3_64(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(xxh3_64_with_seed(b"a", 0), xxh3_64(b"a"));
    }

    /// The lengths are on both sides of the bounds at which XXH3 changes its algorithm: 16, 128, 240 and 1024 bytes.
    #[test]
    fn parts_have_the_hash_of_the_whole() {
        let bytes: Vec<u8> = (0..5000_u32).map(|n| ((n * 251) >> 3) as u8).collect();
        for length in [0, 1, 16, 17, 128, 129, 240, 241, 1024, 1025, 5000] {
            let (bytes, seed) = (&bytes[..length], 77);
            let mut parts = Xxh3::with_seed(seed);
            bytes.chunks(100).for_each(|part| parts.write(part));
            assert_eq!(parts.finish(), xxh3_64_with_seed(bytes, seed), "{length}");
        }
    }
}
