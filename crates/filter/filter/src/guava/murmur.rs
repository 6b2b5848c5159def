//! MurmurHash3, the 128-bit version for x64 with seed 0 (Austin Appleby, public domain). Guava's Bloom filters
//! hash ids with it.

/// Returns the lower and the upper 64 bits of the hash.
pub(super) fn murmur3_128(bytes: &[u8]) -> [u64; 2] {
    let (mut h1, mut h2) = (0u64, 0u64);
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let [k1, k2] = halves(block);
        h1 ^= mix_first(k1);
        h1 = h1.rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 ^= mix_second(k2);
        h2 = h2.rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    if !tail.is_empty() {
        // The reference implementation mixes a half only if the tail has bytes in it. The mix of zero is zero, so
        // mixing a half of padding changes no bit.
        let mut block = [0; 16];
        block[..tail.len()].copy_from_slice(tail);
        let [k1, k2] = halves(&block);
        h2 ^= mix_second(k2);
        h1 ^= mix_first(k1);
    }
    h1 ^= bytes.len() as u64;
    h2 ^= bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish(h1);
    h2 = finish(h2);
    h1 = h1.wrapping_add(h2);
    [h1, h2.wrapping_add(h1)]
}

fn halves(block: &[u8; 16]) -> [u64; 2] {
    let (mut low, mut high) = ([0; 8], [0; 8]);
    low.copy_from_slice(&block[..8]);
    high.copy_from_slice(&block[8..]);
    [u64::from_le_bytes(low), u64::from_le_bytes(high)]
}

fn mix_first(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_second(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are those of Guava's own tests.
    #[test]
    fn hashes_equal_known_values() {
        let text = b"The quick brown fox jumps over the lazy dog";
        assert_eq!(
            murmur3_128(text),
            [0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347]
        );
        assert_eq!(murmur3_128(b""), [0, 0]);
    }
}
